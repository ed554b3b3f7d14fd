"""Runs the cases of `tests.values.structure`: groups on stdin, a line of faults for each.

    python -m tests.values.structure_child shardwise < groups.json

The library is a name: jax has the same functions, and shows whether an error is XLA's.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.values import structure_numpy
from tests.values.structure import ZEROS, Case, Input

Fault = tuple[str, str]


def array(data: Input, place: int) -> np.ndarray:
    """The elements of an argument: all different numbers, special ones, or integers in a range.

    holds: "counted", "special", "small", or "LOW:HIGH".
    """
    size = int(np.prod(data.shape))
    rng = np.random.default_rng(zlib.crc32(f"{data.shape} {data.dtype} {place}".encode()))
    dtype = np.dtype(data.dtype)
    if ":" in data.holds:
        low, high = map(int, data.holds.split(":"))
        flat = rng.integers(low, high, size, endpoint=True)
    elif data.holds == "small":
        flat = rng.integers(-4 if dtype.kind != "u" else 0, 5, size)
    else:
        flat = np.arange(1, size + 1)
        if dtype.kind == "b":
            flat = rng.integers(0, 2, size)
        if data.holds == "special" and size:
            return _special(rng, flat, dtype).reshape(data.shape)
    return flat.astype(dtype).reshape(data.shape)


def _special(rng: Any, flat: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        extreme = np.array([limits.min, limits.max, 0, limits.max - 1], dtype)
    elif dtype.kind == "b":
        return flat.astype(dtype)
    else:
        extreme = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0], np.float32).astype(dtype)
    signed = flat if dtype.kind == "u" else flat * rng.choice([-1, 1], flat.size)
    where = rng.random(flat.size) < 0.4
    return np.where(where, rng.choice(extreme, flat.size), signed.astype(dtype))


class Library:
    """The functions of shardwise, or of jax, that programs use."""

    def __init__(self, name: str):
        self.module = importlib.import_module(name)
        self.sharding = importlib.import_module(f"{name}.sharding")
        self.uneven = name == "shardwise"  # whether arguments and results may be split unevenly
        self.devices = np.array(self.module.devices())
        self.names = {
            "lax": importlib.import_module(f"{name}.lax"),
            "jnp": importlib.import_module(f"{name}.numpy"),
            "nn": importlib.import_module(f"{name}.nn"),
            "sw": self.module,
            "np": np,
        }

    def place(self, mesh: tuple[int, ...], spec: str) -> Any:
        """The sharding of `x,-` or `xy,-` over a mesh with the axes x, y, …; None for "?"."""
        if spec == "?":
            return None
        count = int(np.prod(mesh))
        axes = self.sharding.Mesh(self.devices[:count].reshape(mesh), tuple("xyz"[: len(mesh)]))
        parts = [tuple(p) if p != "-" else None for p in spec.split(",")] if spec else []
        return self.sharding.NamedSharding(axes, self.sharding.PartitionSpec(*parts))

    def functions(self, case: Case) -> Callable:
        """The program of a case. `at(value, "x,-")` in it is a constraint."""

        def at(value: Any, spec: str) -> Any:
            if case.mesh == (1,):
                return value
            return self.module.lax.with_sharding_constraint(value, self.place(case.mesh, spec))

        letters = "abcdefgh"[: len(case.inputs)]
        return eval(f"lambda {', '.join(letters)}: {case.program}", {**self.names, "at": at})

    def run(self, cases: Sequence[Case]) -> list[list[np.ndarray]]:
        """The results of all cases, which share one mesh, in one module."""
        funs = [self.functions(c) for c in cases]
        mesh = cases[0].mesh
        sharded = mesh != (1,)

        def all_of(args: list[list[Any]]) -> list[tuple[Any, ...]]:
            return [_several(f(*xs)) for f, xs in zip(funs, args, strict=True)]

        args = [[array(x, i) for i, x in enumerate(c.inputs)] for c in cases]
        options = {}
        if sharded and self.uneven:
            args = [
                [
                    self.module.device_put(x, self.place(mesh, i.spec))
                    for x, i in zip(xs, c.inputs, strict=True)
                ]
                for xs, c in zip(args, cases, strict=True)
            ]
            options["out_shardings"] = [
                tuple(self.place(mesh, s) for s in c.out.split(";"))
                if ";" in c.out
                else self.place(mesh, c.out)
                for c in cases
            ]
        elif sharded:
            funs = [self._inside(f, c) for f, c in zip(funs, cases, strict=True)]
        results = self.module.jit(all_of, **options)(args)
        return [[_whole(x) for x in found] for found in results]

    def _inside(self, fun: Callable, case: Case) -> Callable:
        """A program that shards its own arguments and results."""

        def placed(x: Any, spec: str) -> Any:
            place = self.place(case.mesh, spec)
            return x if place is None else self.module.lax.with_sharding_constraint(x, place)

        def run(*args: Any) -> tuple[Any, ...]:
            ins = [placed(x, i.spec) for x, i in zip(args, case.inputs, strict=True)]
            found = _several(fun(*ins))
            outs = case.out.split(";") if ";" in case.out else [case.out] * len(found)
            return tuple(placed(x, s) for x, s in zip(found, outs, strict=True))

        return run


def _several(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, list | tuple) else (found,)


def _whole(x: Any) -> np.ndarray:
    """An array assembled from its shards, which must have the shapes of its sharding."""
    if len(x.sharding.device_set) > 1 and x.is_fully_replicated:
        parts = [np.asarray(s.data) for s in x.addressable_shards]
        for p in parts[1:]:
            if not _same(parts[0], p, 0.0):
                return p
    return np.asarray(x)


def _same(a: np.ndarray, b: np.ndarray, close: float, exact: bool = False) -> bool:
    """Whether results are equal; all NaN are one, and so are zeros unless it is to be `exact`."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    if a.dtype.kind == "c":
        return _same(a.real, b.real, close, exact) and _same(a.imag, b.imag, close, exact)
    x, y = a.astype(np.float64), b.astype(np.float64)
    if close:
        return bool(np.allclose(x, y, rtol=close, atol=close, equal_nan=True))
    equal = (x == y) & (np.signbit(x) == np.signbit(y)) if exact else x == y
    return bool(np.all((np.isnan(x) & np.isnan(y)) | equal))


class Checker:
    """Compares groups of cases with one device and with NumPy, each program once."""

    def __init__(self, library: Library):
        self.library = library
        self.expected: dict[Case, list[np.ndarray] | Exception] = {}
        self.told: set[Case] = set()

    def group(self, cases: list[Case]) -> list[Fault]:
        self._expect([c.unsharded for c in cases])
        faults = [f for c in cases for f in self._numpy(c.unsharded)]
        cases = [c for c in cases if not isinstance(self.expected[c.unsharded], Exception)]
        if not cases:
            return faults
        try:
            found = self.library.run(cases)
        except Exception as error:
            if len(cases) > 1:
                alone = [f for c in cases for f in self.group([c])]
                if all(kind == ZEROS for kind, _ in alone):
                    alone.append(("refused beside others", f"{cases[0]} …\n  {_short(error)}"))
                return faults + alone
            return [*faults, ("refused", f"{cases[0]}\n  {_short(error)}")]
        for case, results in zip(cases, found, strict=True):
            faults += self._compared(case, results, len(cases) > 1)
        return faults

    def _compared(self, case: Case, results: list[np.ndarray], together: bool) -> list[Fault]:
        expected = self.expected[case.unsharded]
        for got, want in zip(results, expected, strict=True):
            if not _same(got, want, case.close):
                about = f"{case}\n  {_difference(got, want, case.close)}"
                alone = together and not any(k != ZEROS for k, _ in self.group([case]))
                return [("wrong beside others" if alone else "wrong", about)]
            if not (case.close or _same(got, want, 0.0, exact=True)):
                return [(ZEROS, "")]
        return []

    def _expect(self, cases: list[Case]) -> None:
        new = [c for c in dict.fromkeys(cases) if c not in self.expected]
        if not new:
            return
        try:
            self.expected.update(zip(new, self.library.run(new), strict=True))
        except Exception as error:
            if len(new) == 1:
                self.expected[new[0]] = error
            else:
                for case in new:
                    self._expect([case])

    def _numpy(self, case: Case) -> list[Fault]:
        if case in self.told:
            return []
        self.told.add(case)
        found = self.expected[case]
        if isinstance(found, Exception):
            return [("refused on one device", f"{case}\n  {_short(found)}")]
        if not case.wanted:
            return []
        args = [array(x, i) for i, x in enumerate(case.inputs)]
        names = {**vars(structure_numpy), **dict(zip("abcdefgh", args, strict=False))}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = [np.asarray(w) for w in _several(eval(case.wanted, names))]
        for got, want in zip(found, wanted, strict=True):
            if not _same(got, want.astype(got.dtype), case.close):
                return [("not NumPy's", f"{case}\n  {_difference(got, want, case.close)}")]
        return []


def _short(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:300]


def _difference(got: np.ndarray, want: np.ndarray, close: float) -> str:
    """The difference, and its first position."""
    if got.shape != want.shape or not got.ndim:
        return f"got {_shown(got)}, want {_shown(want)}"
    if got.size <= 12:
        return f"got {_shown(got)}, want {_shown(want)}"
    want = want.astype(got.dtype)
    places = [
        p
        for p in np.ndindex(*got.shape)
        if not _same(np.asarray(got[p]), np.asarray(want[p]), close)
    ]
    return (
        f"{len(places)} of {got.size} elements of shape {got.shape} differ; at {places[0]}: "
        f"got {got[places[0]]}, want {want[places[0]]}"
    )


def _shown(x: np.ndarray) -> str:
    return re.sub(r"\s+", " ", f"{x.dtype}{list(x.shape)} {np.array2string(x, threshold=40)}")


def main() -> None:
    groups = [[Case.read(c) for c in group] for group in json.load(sys.stdin)]
    checker = Checker(Library(sys.argv[1]))
    for group in groups:
        print(json.dumps(checker.group(group)), flush=True)


if __name__ == "__main__":
    main()

"""Every function that both libraries have returns the same in both, whatever the shardings.

The calls are those of `benchmarks.tables`, each in several variants: operands of other dtypes, with
special values, empty or 0-d, mapped, differentiated, and sharded, evenly or not. Expected values
are jax's on one device, including dtypes and weak types. A difference is accepted if
NumPy or SciPy agrees with us; `DIFFERENT` lists the other intended differences.

The tests run most variants. Run the variants in `BY_HAND`, whose list is incomplete, with

    python -m tests.values.test_same_as_jax 'numpy.lin*' special    # calls and variants, as globs
"""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import scipy

import shardwise as sw
from benchmarks.arguments import ARRAYS, Call, Operands, arrays_in, bound, calls, find
from benchmarks.libs import Lib
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.values.differences import DIFFERENT

OURS, THEIRS = (Lib(name, itertools.count()) for name in ("shardwise", "jax"))
DEVICES = np.array(sw.devices()[:8])
EXPLICIT = Mesh(DEVICES.reshape(4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
FIXED = {"few", "sorted", "positive"}  # operands that must not change
POINTWISE = {"unary", "binary", "activation", "special", "distributions"}
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 1e-40, -1, 1, 0.5, 2.5, -2.5, -0.3, 7, 30],
    np.float32,
)
OF_DTYPES = {
    "whole": np.int32,
    "bytes": np.uint8,
    "truths": np.bool_,
    "half": np.float16,
    "brain": ml_dtypes.bfloat16,
    "complex": np.complex64,
    "double": np.float64,
}
WIDTHS = ("half", "brain", "double")
VALUES = ("plain", "signed", "nan")
BY_HAND = ("special", *OF_DTYPES, "empty", "scalars", "grad signed")
DERIVED = ("grad", "vmap", "grad signed")
PLACED = ("even", "uneven", "columns", "explicit")
EVERY = (*VALUES, *BY_HAND, *DERIVED[:2], *PLACED)
SIZES = {"special": 256, "even": 64, "explicit": 64, "uneven": 56, "columns": 56}


# -- operands --


def operand(name: str, way: str, kind: str) -> np.ndarray:
    """An array of benchmarks.arguments in a variant, which changes float32 arrays."""
    value = ARRAYS[name][0](SIZES.get(way, 16))
    if way == "empty" and name not in FIXED:
        return value[:0]
    if value.dtype != np.float32 or (name in FIXED and way not in WIDTHS):
        return value
    if way == "scalars":
        return value.ravel()[0]
    if "signed" in way:
        return (value - np.float32(0.5)) * 8
    if way == "nan":
        value.flat[value.size // 2] = np.nan
    if way == "special":  # pairs of these, for functions of two operands
        k = np.arange(value.size) // (16 if name in ("y", "v", "turned", "column") else 1)
        return SPECIAL[(k if kind in POINTWISE else k * 5 + 3) % 16].reshape(value.shape)
    if way in ("whole", "bytes"):
        value = value * 10
    if way == "truths":
        return value < 0.5
    return value.astype(OF_DTYPES.get(way, value.dtype))


class Given(Operands):
    """The operands of a variant; for this library, with the variant's shardings."""

    def __init__(self, lib: Lib, way: str, kind: str):
        super().__init__(lib, SIZES.get(way, 16))
        self.way, self.kind = way, kind

    def __getitem__(self, name: str) -> Any:
        if name not in self.kept and name != "key":
            value = operand(name, self.way, self.kind)
            place = placement(self.way, name, value.shape) if self.lib is OURS else None
            self.kept[name] = self.lib.root.device_put(value, place)
        return super().__getitem__(name)


def placement(way: str, name: str, shape: tuple[int, ...]) -> NamedSharding | None:
    """Shards the first dimension with several elements; for columns the last."""
    if way not in PLACED:
        return None
    count = {"even": 8, "uneven": 5, "columns": 4}.get(way)
    mesh = Mesh(DEVICES[:count], ("x",)) if count else EXPLICIT
    long = [d for d, n in enumerate(shape) if n > 1 and (count or n % 4 == 0)]
    if not long or (name in FIXED and way != "even"):
        return NamedSharding(mesh, P())
    spec: list[str | None] = [None] * len(shape)
    spec[long[-1 if way == "columns" else 0]] = "x"
    return NamedSharding(mesh, P(*spec))


# -- calls --


def found(lib: Lib, name: str, call: Call, way: str) -> list[Any]:
    """The leaves of a library's result."""
    if way in DERIVED:
        assert call.cached
        run, args = bound(call.cached, find(lib, name), Given(lib, way, call.kind))
        names = arrays_in(call.cached)
        out = mapped(lib, run, names, args) if way == "vmap" else derived(lib, run, args)
    elif way == "explicit":
        assert call.cached
        run, args = bound(call.cached, find(lib, name), Given(lib, way, call.kind))
        with lib.root.set_mesh(EXPLICIT) if lib is OURS else warnings.catch_warnings():
            out = lib.root.jit(run)(*args)
    else:
        run, args = bound(call.eager, find(lib, name), Given(lib, way, call.kind))
        # One program compiles faster than many; but some functions require concrete values.
        quick = lib is THEIRS and call.cached == call.eager
        out = lib.root.jit(run)(*args) if quick else run(*args)
    return [on_host(lib, leaf) for leaf in lib.root.tree.leaves(out)]


def on_host(lib: Lib, leaf: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and "key<" in str(dtype):
        leaf = lib.random.key_data(leaf)
    if isinstance(leaf, str | type | np.dtype) or dtype is None:
        return leaf
    return np.asarray(leaf), getattr(leaf, "weak_type", False)


def weighed(lib: Lib, leaves: list[Any]) -> Any:
    total = 0.0
    for leaf in leaves:
        if leaf.dtype.kind in "fc":
            weights = np.cos(np.arange(leaf.size, dtype=np.float32)).reshape(leaf.shape)
            total = total + (lib.np.real(leaf) * weights).sum()
            total = total + (lib.np.imag(leaf) * weights).sum() * 0.5
    return total


def derived(lib: Lib, run: Callable, args: list[Any]) -> Any:
    """The gradient in all float arrays."""
    moving = tuple(k for k, x in enumerate(args) if getattr(x, "dtype", None) == np.float32)
    loss = lambda *a: weighed(lib, lib.root.tree.leaves(run(*a)))  # noqa: E731
    return lib.root.jit(lib.root.grad(loss, moving))(*args)


def mapped(lib: Lib, run: Callable, names: list[str], args: list[Any]) -> Any:
    """Over a new last dimension of size two: each array, and the array rolled by one element."""
    axes = tuple(None if name in ("key", "sorted", "positive") else -1 for name in names)
    args = [
        x if d is None else np.stack([np.asarray(x), np.roll(x, 1)], -1)
        for x, d in zip(args, axes, strict=True)
    ]
    return lib.root.jit(lib.root.vmap(run, axes, 0))(*args)


# -- comparison --

ELSEWHERE = {
    "lax.lgamma": "gammaln",
    "lax.igamma": "gammainc",
    "lax.igammac": "gammaincc",
    "lax.betainc": "betainc",
    "lax.digamma": "digamma",
    "lax.zeta": "zeta",
}


def unlike(x: Any, y: Any, others: list[np.ndarray], **how: Any) -> str | None:
    """How a result differs: in dtype, shape, weakness, or in elements that differ from those of
    `others`, too.
    """
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        x, y = x[0] if isinstance(x, tuple) else x, y[0] if isinstance(y, tuple) else y
        plain = r"\b0x\w+|dtype\(|<class 'ml_dtypes\.|[')>]"  # addresses; dtypes and their classes
        forms = [(str(v), re.sub(plain, "", repr(v))) for v in (x, y)]
        same = isinstance(x, type) or any(p == q for p, q in zip(*forms, strict=True))
        return None if same else f"{x!r}, jax: {y!r}"
    (a, weak), (b, weak_there) = x, y
    others = [o for o in others if o.shape == a.shape]
    if (a.dtype, weak) != (b.dtype, weak_there) or (a.shape != b.shape and not others):
        return f"{a.dtype}{a.shape} {weak}, jax: {b.dtype}{b.shape} {weak_there}"
    bad = ~alike(a, b, **how) if a.shape == b.shape else np.ones(a.shape, bool)
    for other in others:
        with np.errstate(all="ignore"):
            bad &= ~alike(a, other.astype(a.dtype), **how)
    if not bad.any():
        return None
    places = [tuple(map(int, i)) for i in np.argwhere(bad)[:4]]
    wanted = b if a.shape == b.shape else np.full(a.shape, "none")
    shown = [f"{[*i]}: {a[i]!r}, {wanted[i]!r}" for i in places]
    return f"{int(bad.sum())} of {a.size}: {'; '.join(shown)}"


def alike(a: np.ndarray, b: np.ndarray, loose: float, signs: bool) -> np.ndarray:
    """By element; signs: whether signs of zeros count."""
    if a.dtype == object:
        return np.vectorize(lambda x, y: repr(x) == repr(y), otypes=[bool])(a, b)
    try:
        eps = float(ml_dtypes.finfo(a.dtype).eps)
    except ValueError:
        return np.asarray(a == b)
    tol = loose * (4 * eps if a.dtype.itemsize < 4 else 2e-5 if eps > 1e-10 else 1e-11)
    if a.dtype.kind == "c":
        p, q = a.astype(np.complex128), b.astype(np.complex128)
        return close(p.real, q.real, tol, np.abs(q)) & close(p.imag, q.imag, tol, np.abs(q))
    p, q = a.astype(np.float64), b.astype(np.float64)
    same_zero = (p != 0) | (q != 0) | (np.signbit(p) == np.signbit(q))
    return close(p, q, tol, np.abs(q)) & (same_zero | (not signs))


def close(p: np.ndarray, q: np.ndarray, tol: float, scale: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        near = np.abs(p - q) <= tol * np.fmax(1e-2, scale)
    return np.where(np.isfinite(p) & np.isfinite(q), near, (p == q) | np.isnan(p) & np.isnan(q))


def peer(name: str) -> Any:
    """NumPy's or SciPy's function of this name, or None."""
    if name in ELSEWHERE:
        return getattr(scipy.special, ELSEWHERE[name])
    space, _, last = name.rpartition(".")
    space = {"lax": "numpy", "lax.linalg": "numpy.linalg"}.get(space, space)
    try:
        if space.startswith("scipy.stats."):
            return getattr(getattr(importlib.import_module("scipy.stats"), space[12:]), last)
        return getattr(importlib.import_module(space), last, None)
    except (ImportError, AttributeError):
        return None


def elsewhere(name: str, call: Call, way: str, flush: bool = False) -> list[np.ndarray]:
    """NumPy's or SciPy's result in double precision; empty if it has no such call.

    flush: subnormal numbers are 0, as in CPU code.
    """
    function = None if way in DERIVED else peer(name)
    if function is None:
        return []
    names = arrays_in(call.eager)
    code = f"lambda f, n, rows, columns, numpy, {', '.join(names)}: {call.eager}"
    wide = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
    n = SIZES.get(way, 16)
    try:
        given = [operand(name, way, call.kind) for name in names]
        given = [x.astype(wide.get(x.dtype, x.dtype)) for x in given]
        if flush:
            given = [np.where(np.abs(x) < 1e-38, x * 0, x) for x in given]
        with np.errstate(all="ignore"):
            out = eval(code)(function, n, *ARRAYS["matrix"][0](n).shape, np, *given)
        return [np.asarray(x) for x in (out if isinstance(out, tuple | list) else [out])]
    except Exception:
        return []


# -- tests --


@cache
def shared() -> dict[str, Call]:
    def there(lib: Lib, name: str) -> bool:
        try:
            return find(lib, name) is not None
        except (AttributeError, ImportError):
            return False

    return {n: c for n, c in calls().items() if there(OURS, n) and there(THEIRS, n)}


def meant(name: str, way: str) -> str | None:
    return next(
        (
            reason
            for reason, globs in DIFFERENT.items()
            for glob in globs
            if fnmatch(f"{name} {way}", glob)
        ),
        None,
    )


def ways(name: str, call: Call, some: tuple[str, ...]) -> Iterator[str]:
    """The variants of a call, without those that do not change it."""
    names = {*arrays_in(call.eager)} - {"key"}
    real = {n for n in names if ARRAYS[n][0](16).dtype == np.float32}
    for way in some:
        needed = names if way in (*PLACED, "empty", "vmap") else real
        there = call.cached or way not in (*DERIVED, "explicit")
        if (way == "plain" or needed) and there and not meant(name, way):
            yield way


def difference(name: str, call: Call, way: str) -> str | None:
    with sw.enable_x64(way == "double"), jax.enable_x64(way == "double"):
        try:
            wanted = found(THEIRS, name, call, way)
        except Exception:
            return None  # jax rejects it
        try:
            got = found(OURS, name, call, way)
        except Exception as error:
            if way == "explicit" and refused_in_explicit_mode(name, call):
                return None
            return f"{type(error).__name__}: {error}"
    if len(got) != len(wanted):
        return f"{len(got)} results, jax: {len(wanted)}"
    how = {
        "loose": 50 if way in DERIVED else 3 if way in PLACED else 1,
        "signs": way == "special" and call.kind in ("unary", "binary"),
    }
    said = [unlike(x, y, [], **how) for x, y in zip(got, wanted, strict=True)]
    if any(said):
        others = [elsewhere(name, call, way, flush) for flush in {False, way == "special"}]
        others = [o for o in others if len(o) == len(got)]
        said = [
            unlike(x, y, [o[k] for o in others], **how)
            for k, (x, y) in enumerate(zip(got, wanted, strict=True))
        ]
    return next((f"result {k}: {line}" for k, line in enumerate(said) if line), None)


def refused_in_explicit_mode(name: str, call: Call) -> bool:
    """Whether jax rejects it, too: results with an ambiguous sharding require `out_sharding`."""
    run, args = bound(call.cached or "", find(THEIRS, name), Given(THEIRS, "explicit", call.kind))
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    placed = []
    for n, x in zip(arrays_in(call.cached or ""), args, strict=True):
        place = None if n == "key" else placement("explicit", n, x.shape)
        spec = jax.P(*(place.spec if place else ()))
        placed.append(jax.device_put(x, jax.NamedSharding(mesh, spec)))
    try:
        with jax.set_mesh(mesh):
            jax.jit(run)(*placed)
    except Exception:
        return True
    return False


def differences(name: str, some: tuple[str, ...]) -> list[str]:
    call = shared()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both libraries warn, such as about disabled x64
        return [
            f"{name}, {way}: {call.eager}: {said}"
            for way in ways(name, call, some)
            if (said := difference(name, call, way))
        ]


@pytest.mark.parametrize("name", everyday(shared(), 3, "values"))
def test_values(name: str):
    assert differences(name, VALUES) == []


@pytest.mark.parametrize("name", everyday(shared(), 2, "derived"))
def test_derivatives_and_maps(name: str):
    assert differences(name, DERIVED[:2]) == []


@pytest.mark.parametrize("name", everyday(shared(), 2, "placed"))
def test_placed_operands(name: str):
    assert differences(name, PLACED) == []


def test_what_differs_is_there():
    """Each line of the list matches a call and a variant."""
    every = [f"{name} {way}" for name in calls() for way in EVERY]
    for globs in DIFFERENT.values():
        for glob in globs:
            assert any(fnmatch(case, glob) for case in every), glob


def printed(differences: Callable[[str], Iterable[str]], names: str) -> None:
    """For the command line: the differences of the calls that match a glob."""
    for name in shared():
        if fnmatch(name, names):
            for line in differences(name):
                print(re.sub(r"\s+", " ", line)[:600], flush=True)
            jax.clear_caches()
            sw.clear_caches()


if __name__ == "__main__":
    names, some = [*sys.argv[1:], "*", "*"][:2]
    chosen = tuple(w for w in EVERY if fnmatch(w, some))
    printed(lambda name: differences(name, chosen), names)

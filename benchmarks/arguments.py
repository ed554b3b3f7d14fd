"""The arguments of each function of both libraries, by kind of call.

    calls()["numpy.sin"]            # Call(kind="unary", eager="f(x)", cached="f(x)")
    operands = Operands(lib, 16384)
    operands["x"]                   # float32[16384], as an array of the library

A call is a Python expression over `f`, the arrays of `ARRAYS`, the numbers `n` (elements of an
operand), `rows` and `columns` (of a matrix with n elements), and the library `lib`. The arrays in
it become arguments of the jitted function; everything else is static.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from types import CodeType
from typing import Any

import numpy

from benchmarks import tables
from benchmarks.libs import Lib

ROWS = 8  # of a matrix if n is not a power of two: the increment of new sizes

# -- operands --


def shape_of_matrix(n: int) -> tuple[int, int]:
    """As square as possible for a power of two."""
    power = n.bit_length() - 1
    rows = 1 << power // 2 if n == 1 << power else ROWS
    return rows, n // rows


def real(n: int, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).uniform(0.1, 0.9, n).astype("float32")


def whole(n: int, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(1, 8, n, "int32")


def vectors(n: int, seed: int) -> numpy.ndarray:
    return real(n // 4 * 3, seed).reshape(-1, 3)


def matrices(n: int, seed: int) -> numpy.ndarray:
    """A batch of square matrices, 8 × 8 if there are enough elements: for batched functions."""
    side = min(8, math.isqrt(n))
    return real(n // side**2 * side**2, seed).reshape(-1, side, side)


def positive(n: int, seed: int) -> numpy.ndarray:
    """A symmetric positive definite matrix."""
    found = matrices(n, seed)
    return found @ found.mT + numpy.eye(found.shape[-1], dtype="float32")


# name: (factory for n elements, whether its size depends on n)
ARRAYS: Mapping[str, tuple[Callable[[int], numpy.ndarray], bool]] = {
    "x": (lambda n: real(n, 0), True),
    "y": (lambda n: real(n, 1), True),
    "z": (lambda n: (real(n // 2, 0) + 1j * real(n // 2, 1)).astype("complex64"), True),
    "i": (lambda n: whole(n, 2), True),
    "j": (lambda n: whole(n, 3), True),
    "b": (lambda n: real(n, 4) < 0.5, True),
    "matrix": (lambda n: real(n, 5).reshape(shape_of_matrix(n)), True),
    "turned": (lambda n: real(n, 6).reshape(shape_of_matrix(n)[::-1]), True),
    "square": (lambda n: real(math.isqrt(n) ** 2, 7).reshape(math.isqrt(n), -1), True),
    "row": (lambda n: real(shape_of_matrix(n)[1], 8), True),
    "column": (lambda n: real(shape_of_matrix(n)[0], 9), True),
    "pairs": (lambda n: real(n // 2 * 2, 15).reshape(-1, 2), True),
    "u": (lambda n: vectors(n, 10), True),
    "v": (lambda n: vectors(n, 11), True),
    "cube": (lambda n: real(n // 4 * 4, 12).reshape(-1, 2, 2), True),
    "matrices": (lambda n: matrices(n, 16), True),
    "positive": (lambda n: positive(n, 17), True),
    "few": (lambda n: real(8, 13), False),
    "sorted": (lambda n: numpy.linspace(0, 1, 9, dtype="float32"), False),
    "heads": (lambda n: real(n, 14).reshape(-1, math.gcd(n // 4, 64), 2, 2), True),
}


class Operands(Mapping[str, Any]):
    """The variables of a call: arrays of a library, created on first use."""

    def __init__(self, lib: Lib, n: int):
        rows, columns = shape_of_matrix(n)
        self.kept = {"lib": lib, "numpy": numpy, "n": n, "rows": rows, "columns": columns}
        self.lib, self.n = lib, n

    def __getitem__(self, name: str) -> Any:
        if name not in self.kept:
            if name == "key":
                self.kept[name] = self.lib.random.key(0)
            else:
                self.kept[name] = self.lib.root.device_put(ARRAYS[name][0](self.n))
        return self.kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return len(self.kept)


# -- calls --


@dataclass(frozen=True)
class Call:
    """How a function is called; `cached` is None if it cannot be jitted."""

    kind: str
    eager: str
    cached: str | None

    @cached_property
    def grows(self) -> bool:
        """Whether the work depends on the number of elements."""
        names = names_in(self.eager)
        sized = {name for name, (_, sized) in ARRAYS.items() if sized}
        return not names.isdisjoint(sized | {"n", "rows", "columns"})


def names_in(call: str) -> set[str]:
    """The names in a call, including those inside its lambdas."""
    found, codes = set(), [compile(call, "<call>", "eval")]
    while codes:
        code = codes.pop()
        found |= {*code.co_names, *code.co_freevars}
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return found


def arrays_in(call: str) -> list[str]:
    return sorted(names_in(call) & (ARRAYS.keys() | {"key"}))


def bound(call: str, function: Any, operands: Operands) -> tuple[Callable[..., Any], list[Any]]:
    """The call as a function of its arrays, and the arrays."""
    names = arrays_in(call)
    static = {k: operands[k] for k in ("lib", "numpy", "n", "rows", "columns")}
    code = compile(f"lambda {', '.join(names)}: {call}", "<call>", "eval")
    return eval(code, {**static, "f": function}), [operands[name] for name in names]


def calls() -> dict[str, Call]:
    """All functions that the table names, as `namespace.name`."""
    found = {}
    for (kind, space), rows in itertools.chain(*(table.items() for table in tables.TABLES)):
        for expression, names in rows.items():
            eager, _, cached = expression.partition(" | ")
            cached = None if cached == "-" else cached or eager
            for name in names.split():
                assert f"{space}.{name}" not in found, name
                found[f"{space}.{name}"] = Call(kind, eager, cached)
    return found


# Functions of both libraries that are not timed, and why.
LEFT_OUT: Mapping[str, str] = {
    f"{space}.{name}": reason
    for space, reasons in tables.LEFT_OUT.items()
    for reason, names in reasons.items()
    for name in names.split()
}


def shared(one: Lib, other: Lib) -> list[str]:
    """The callables that both libraries have, as `namespace.name`."""
    return [
        f"{space}.{name}"
        for space in tables.SPACES
        if find_spec(f"{one.name}.{space}") and find_spec(f"{other.name}.{space}")
        for name in dir(find(one, space))
        if not name.startswith("_")
        and callable(find(one, f"{space}.{name}"))
        and hasattr(find(other, space), name)
    ]


def find(lib: Lib, name: str) -> Any:
    """Looks up a name such as `numpy.linalg.norm` in a library."""
    space, _, last = name.rpartition(".")
    if name in tables.SPACES:
        return importlib.import_module(f"{lib.name}.{name}")
    return getattr(find(lib, space), last)

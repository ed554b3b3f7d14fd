"""Random choices for a program: operands that suit a step, axes, amounts, input values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import ml_dtypes
import numpy as np

from tests.values.programs.facts import Fact, Var, kind, largest, settled, unfit_if

DTYPES = {
    "float32": 12, "int32": 4, "bool": 2, "int8": 2, "uint8": 2, "uint32": 2, "float16": 2,
    "bfloat16": 2, "complex64": 2,
}  # fmt: skip
SIZES = [0, 1, 1, 2, 3, 3, 4, 5, 5, 7, 8, 8, 9, 12]
MOST = 400  # elements


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


class Draw:
    """The values of a program so far, and a stream of choices."""

    def __init__(self, rng: random.Random, vars: Sequence[Var], favourite: str | None = None):
        self.rng = rng
        self.vars = list(vars)
        self.favourite = favourite
        self.depth = 0

    def one(self, choices: Sequence[Any]) -> Any:
        return choices[self.rng.randrange(len(choices))]

    def between(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def often(self, share: float = 0.5) -> bool:
        return self.rng.random() < share

    def var(
        self,
        kinds: str = "biufc",
        *,
        least: int = 0,
        exact: bool = False,
        like: Callable[[Var], bool] | None = None,
    ) -> Var:
        """A value of one of these kinds with at least this many dimensions."""
        found = [
            v for v in self.vars
            if v.kind in kinds and v.ndim >= least and (v.exact or not exact)
            and (like is None or like(v))
        ]  # fmt: skip
        unfit_if(not found)
        liked = [v for v in found if v.name == self.favourite]
        return liked[0] if liked and self.often() else self.one(found)

    def axis(self, x: Var, *, filled: bool = False) -> int:
        """One of its axes, sometimes counted from the end."""
        axes = [i for i in range(x.ndim) if x.shape[i] or not filled]
        unfit_if(not axes)
        i = self.one(axes)
        return i - x.ndim if self.often(0.2) else i

    def partner(self, x: Var, kinds: str, like: Callable[[Var], bool] | None = None) -> Var:
        """A value, maybe the same one, that can be broadcast against this one."""

        def fits(y: Var) -> bool:
            try:
                shape = np.broadcast_shapes(x.shape, y.shape)
            except ValueError:
                return False
            return int(np.prod(shape)) <= MOST and (like is None or like(y))

        return self.var(kinds, like=fits)

    def indices(self, n: int, count: int, outside: bool = False) -> list[int]:
        """Positions along a dimension, possibly repeated."""
        low, high = (-n - 2, n + 2) if outside else (-n, n - 1)
        return [self.between(low, high) for _ in range(count)]


def shapes(draw: Draw) -> list[tuple[int, ...]]:
    """Shapes for the inputs of a program, which share dimensions."""
    sizes = [draw.one(SIZES) for _ in range(3)]
    found = []
    for _ in range(3):
        shape = tuple(draw.one(sizes) for _ in range(draw.one([1, 1, 2, 2, 2, 3])))
        while int(np.prod(shape)) > 150:
            shape = shape[:-1]
        found.append(shape)
    return found


def value(draw: Draw, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, Fact]:
    """Host values: small integers, real numbers, or any value of the dtype."""
    size, k = int(np.prod(shape)), kind(dtype)
    sort = draw.one(["whole"] * 6 + ["real", "wild", "wild"])
    if k in "biu":
        return _integers(draw, shape, dtype, sort == "wild")
    if k == "c":
        real, imaginary = (_floats(draw, size, "whole", np.dtype(np.float32)) for _ in range(2))
        real[~np.isfinite(real)], imaginary[~np.isfinite(imaginary)] = 0, 0
        found = (real + 1j * imaginary).astype(dtype)
        return found.reshape(shape), Fact(6.0, whole=True)
    found = _floats(draw, size, sort, dtype).astype(dtype).reshape(shape)
    return found, Fact({"whole": 3.0, "real": 4.0, "wild": inf}[sort], whole=sort == "whole")


def _integers(draw: Draw, shape: tuple, dtype: np.dtype, wild: bool) -> tuple[np.ndarray, Fact]:
    size = int(np.prod(shape))
    if kind(dtype) == "b":
        return np.array([draw.often() for _ in range(size)], bool).reshape(shape), Fact(1.0, True)
    few = range(0, 5) if dtype.kind == "u" else range(-3, 4)
    ends = [np.iinfo(dtype).min, np.iinfo(dtype).max, np.iinfo(dtype).max - 1, 0, 1]
    found = [draw.one(ends) if wild and draw.often() else draw.one(few) for _ in range(size)]
    fact = settled(Fact(inf if wild else 4.0, whole=True), dtype)
    return np.array(found, dtype).reshape(shape), fact


def _floats(draw: Draw, size: int, sort: str, dtype: np.dtype) -> np.ndarray:
    if sort == "real":
        found = [draw.rng.uniform(-3.9, 3.9) for _ in range(size)]
    else:
        found = [draw.one([-3.0, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 3.0]) for _ in range(size)]
    if sort == "wild":
        tiny, most = float(ml_dtypes.finfo(dtype).smallest_subnormal), largest(dtype)
        odd = [tiny, -tiny, 5 * tiny, float(ml_dtypes.finfo(dtype).tiny), most, -most, -0.0]
        found = [draw.one(odd) if draw.often(0.4) else v for v in found]
    specials = draw.one([[], [], [np.nan], [np.inf, -np.inf], [np.nan, np.inf], [-np.inf]])
    for special in specials if size else []:
        for _ in range(draw.one([1, 1, 2])):
            found[draw.rng.randrange(size)] = special
    if specials and draw.often(0.1):
        found = [specials[0]] * size
    return np.array(found, np.float64)

"""Samples of an op, and comparison and reporting of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.random.bits import THREEFRY, is_key, random_unwrap, random_wrap
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_complex, is_float, is_inexact

# Relative tolerance by dtype: the error of a few roundings, and of XLA's elementary functions.
_TOLERANCES = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}


@dataclass(frozen=True, eq=False)
class Sample:
    """A small application of an op.

        Sample((x, y), reference=np.arctan2)
        Sample((x,), dict(axes=(0,)), reference=lambda x: x.sum(0))

    args:      NumPy arrays or scalars, or arrays of the library.
    params:    the op's parameters.
    reference: a NumPy function of the arguments, or the value; a list if the op has several
               results. None: the value is not checked.
    order:     of the derivatives to check; 0 at a kink, or where they do not exist.
    batched:   whether to check batching.
    heavy:     whether it compiles slowly: then fewer positions of batch dimensions are tested.
    placed:    whether to check every sharding of every factor. Costs two compilations.
    unnamed:   (operand, dimension) pairs that XLA happens to shard although `dims` says None.
    communicates: XLA is known to communicate, or to gather results, although it is not necessary
               by `dims`; then only values are compared.
    variants:  `(position, value, k) → value` for other values of an argument, if a permutation
               of its elements is invalid; k is 1 or 2.
    keys:      positions of operands that are typed keys; their arguments are the keys' integers.
    x64:       whether the sample needs 64-bit types.
    tolerance: relative and absolute, if the default for the dtype is too strict.
    why:       the reason for whatever is disabled; then required.
    """

    args: tuple
    params: dict[str, Any] = field(default_factory=dict)
    reference: Any = None
    order: int = 2
    batched: bool = True
    heavy: bool = False
    placed: bool = True
    unnamed: tuple[tuple[int, int], ...] = ()
    communicates: bool = False
    variants: Callable | None = None
    keys: tuple[int, ...] = ()
    x64: bool = False
    tolerance: float | None = None
    why: str = ""

    def __post_init__(self) -> None:
        reduced = self.order < 2 or not self.batched or self.unnamed or self.communicates
        if reduced and not self.why:
            raise ValueError(f"{self.describe()} skips checks; give the reason in `why`.")

    def describe(self) -> str:
        """`(f32[3], i32[]) axes=(0,)`."""
        types = ", ".join(t.str_short(True) for t in self.types())
        params = "".join(f" {k}={v}" for k, v in self.params.items())
        return f"({types}){params}"

    def types(self) -> tuple[ArrayType, ...]:
        """The types of the op's operands."""
        types = [type_of(a) for a in self.args]
        for i in self.keys:
            types[i] = array_type(types[i].shape[:-1], THREEFRY)
        return tuple(types)

    def apply(self, op: Op, *args: Any) -> list[Any]:
        """The op's results as a list; converts integers to keys in arguments, and back."""
        made = [random_wrap(a, dtype=THREEFRY) if i in self.keys else a for i, a in enumerate(args)]
        out = op(*made, **self.params)
        outs = list(out) if op.multiple else [out]
        return [random_unwrap(o) if is_key(type_of(o)) else o for o in outs]

    def expected(self) -> list[np.ndarray] | None:
        """The reference values, one per result."""
        if self.reference is None:
            return None
        value = self.reference(*self.args) if callable(self.reference) else self.reference
        return [np.asarray(v) for v in (value if isinstance(value, list | tuple) else [value])]

    def variant(self, position: int, k: int) -> Any:
        """The k-th of three values of an argument: unchanged, then changed twice."""
        value = self.args[position]
        if k == 0:
            return value
        if self.variants is not None:
            return self.variants(position, value, k)
        return changed(np.asarray(value), k)


def changed(value: np.ndarray, k: int) -> np.ndarray:
    """Another value of the same type and range: permuted elements; a single one is made smaller."""
    if value.size > 1:
        return np.roll(value.ravel(), k).reshape(value.shape)
    if value.dtype == bool:
        return np.logical_xor(value, k % 2 == 1)
    if is_inexact(value.dtype):
        return np.asarray(value * value.dtype.type(1 - 0.1 * k)).astype(value.dtype)
    return np.maximum(value, k).astype(value.dtype) - np.asarray(k, value.dtype)


@dataclass(frozen=True)
class Failure:
    """A failure: which check, on which sample, the actual and the expected value."""

    check: str
    sample: str
    got: str
    expected: str

    def __str__(self) -> str:
        got, expected = _indented(self.got), _indented(self.expected)
        return f"{self.check}: {self.sample}\n    got:      {got}\n    expected: {expected}"


def _indented(text: str) -> str:
    return text.replace("\n", "\n" + " " * 14)


class CheckFailure(AssertionError):
    """Raised by `check_op`: a report of all failures."""

    __module__ = "shardwise.testing"

    def __init__(self, name: str, failures: Sequence[Failure]):
        self.failures = list(failures)
        noun = "fault" if len(self.failures) == 1 else "faults"
        parts = "\n  ".join(str(f).replace("\n", "\n  ") for f in self.failures)
        super().__init__(f"{len(self.failures)} {noun} in op '{name}'\n  {parts}")


class Report:
    """Collects failures; `about` sets the sample that they belong to."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.about = "-"

    def add(self, check: str, came: Any, expected: Any) -> None:
        self.failures.append(Failure(check, self.about, shown(came), shown(expected)))

    def raised(self, check: str, error: BaseException) -> None:
        lines = str(error).strip().splitlines() or [""]
        text = "\n".join(lines[:6])
        self.add(check, f"{type(error).__name__}: {text}", "no error")

    def compare(self, check: str, came: Any, expected: Any, tolerance: float | None = None) -> bool:
        """Adds a failure unless shapes are equal and values are close."""
        came, expected = np.asarray(came), np.asarray(expected)
        if came.shape != expected.shape:
            self.add(check, f"shape {came.shape}", f"shape {expected.shape}")
            return False
        if not close(came, expected, tolerance):
            self.add(check, came, expected)
            return False
        return True

    def compare_results(
        self, check: str, came: Sequence[Any], expected: Sequence[Any], tolerance: float | None
    ) -> bool:
        """Compares each result; whether all are close."""
        rows = enumerate(zip(came, expected, strict=True))
        return all([self.compare(f"{check} (result {i})", *row, tolerance) for i, row in rows])


def close(came: np.ndarray, expected: np.ndarray, tolerance: float | None = None) -> bool:
    """Equality for integers and booleans; closeness for other dtypes, with NaN equal to NaN."""
    if not is_inexact(came.dtype) and not is_inexact(expected.dtype):
        return bool(np.array_equal(came, expected))
    if tolerance is None:
        tolerance = _TOLERANCES.get(came.dtype.name, 0.15)
    with np.errstate(all="ignore"):
        left, right = wide(came), wide(expected)
        scale = max(1.0, float(np.abs(right[np.isfinite(right)]).max(initial=0.0)) * 1e-2)
        near = np.isclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    return bool(near.all())


def wide(x: Any) -> np.ndarray:
    """Converts to float64 or complex128 if inexact; other values are unchanged."""
    x = np.asarray(x)
    if is_complex(x.dtype):
        return x.astype(np.complex128)
    return x.astype(np.float64) if is_float(x.dtype) else x


def wide_param(value: Any) -> Any:
    """Converts a parameter that is an inexact dtype to its 64-bit form."""
    if isinstance(value, np.dtype) and is_inexact(value):
        return np.dtype(np.complex128 if is_complex(value) else np.float64)
    return value


def shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        text = np.array2string(np.asarray(value), threshold=24, precision=6, separator=", ")
        return f"{text} {value.dtype}"
    return str(value)

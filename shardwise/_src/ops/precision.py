"""The precision of products: `Precision`, and the algorithms that compute one.

canonical_precision("highest")             # a pair of `Precision`
canonical_precision("BF16_BF16_F32_X3")    # a `DotAlgorithmPreset`
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.config import default_matmul_precision
from shardwise._src.base.lazy import public
from shardwise._src.types.array_type import join_types
from shardwise._src.types.dtypes import (
    bfloat16,
    float8_e4m3b11fnuz,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    is_float,
    short_name,
)


@public("shardwise.lax")
class Precision(enum.Enum):
    """The required accuracy of a product on devices that can trade accuracy for speed."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Precision.{self.name}"


@public("shardwise.lax")
class DotAlgorithmPreset(enum.Enum):
    """A specific algorithm: (type of the operands, type of the sum, number of partial products,
    whether the sum may be less accurate). Without a type of the sum, the result determines it.
    """

    DEFAULT = ()
    ANY_F8_ANY_F8_F32 = ("f8", "f32", 1)
    ANY_F8_ANY_F8_F32_FAST_ACCUM = ("f8", "f32", 1, True)
    ANY_F8_ANY_F8_ANY = ("f8", None, 1)
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = ("f8", None, 1, True)
    F16_F16_F16 = ("f16", "f16", 1)
    F16_F16_F32 = ("f16", "f32", 1)
    BF16_BF16_BF16 = ("bf16", "bf16", 1)
    BF16_BF16_F32 = ("bf16", "f32", 1)
    BF16_BF16_F32_X3 = ("bf16", "f32", 3)
    BF16_BF16_F32_X6 = ("bf16", "f32", 6)
    BF16_BF16_F32_X9 = ("bf16", "f32", 9)
    TF32_TF32_F32 = ("tf32", "f32", 1)
    TF32_TF32_F32_X3 = ("tf32", "f32", 3)
    F32_F32_F32 = ("f32", "f32", 1)
    F64_F64_F64 = ("f64", "f64", 1)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def _fields(self) -> tuple[str, str | None, int, bool]:
        """The fields; `DEFAULT` sets nothing."""
        operand, total, products, *fast = self.value or ("", None, 1)
        return operand, total, products, bool(fast)

    @property
    def supported_lhs_types(self) -> tuple[Any, ...] | None:
        """The dtypes of operands that are not converted, the default first; None for all."""
        operand, _, products, _ = self._fields()
        if operand in ("", "f8"):
            return None
        if operand == "bf16" and products == 1:
            return bfloat16, np.float32
        return (_DTYPES["f32" if products > 1 or operand == "tf32" else operand],)

    @property
    def supported_rhs_types(self) -> tuple[Any, ...] | None:
        return self.supported_lhs_types

    @property
    def accumulation_type(self) -> Any:
        """The dtype of the sum; None if the result determines it."""
        total = self._fields()[1]
        return None if total is None else _DTYPES[total]

    def supported_output_types(self, lhs_dtype: Any, rhs_dtype: Any) -> tuple[Any, ...] | None:
        """The dtypes that a product of such operands can return, the default first; None: all."""
        operand, total, products, _ = self._fields()
        if total is None:
            return None
        if operand == "f8":
            return np.float32, np.float16, bfloat16, *_SUMS_IN_F8
        kinds = _DTYPES[total], _DTYPES.get(operand)
        narrow = kinds[1] != kinds[0] and lhs_dtype == rhs_dtype == kinds[1]
        return kinds if narrow and products == 1 else kinds[:1]

    def text(self, ins: Any) -> str:
        """The algorithm in StableHLO's syntax."""
        operand, total, products, fast = self._fields()  # never DEFAULT
        kinds = (
            [short_name(t.dtype).replace("_", "") for t in ins]
            if operand == "f8"
            else [operand, operand]
        )
        return _algorithm_text(*kinds, total or "f32", 1, 1, products, fast)

    def dtypes(self, ins: Any, out: Any) -> tuple[Any, Any, Any]:
        """Dtypes of operands and sums; the full dtype for an operand split into parts."""
        operand, _, products, _ = self._fields()
        if operand == "f8":
            if not all(is_float(t.dtype) and t.dtype.itemsize == 1 for t in ins):
                raise ValueError(
                    f"dot_general: the algorithm {self} is for operands of 8-bit floats; got "
                    f"{join_types(ins)}. Convert them with `astype`."
                )
            lhs, rhs = ins[0].dtype, ins[1].dtype
        else:
            of_parts = operand == "tf32" or products > 1
            lhs = rhs = np.dtype(_DTYPES["f32" if of_parts else operand])
        types = self.supported_output_types(lhs, rhs)
        return lhs, rhs, out if types is None or out in types else np.dtype(types[0])


@public("shardwise.lax")
class DotAlgorithm(NamedTuple):
    """A specific algorithm, by the types of operands and sums, and the numbers of parts and
    products. `DotAlgorithmPreset` contains the algorithms that backends support.
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False

    def text(self, ins: Any) -> str:
        """The algorithm in StableHLO's syntax."""
        kinds = [short_name(np.dtype(kind)).replace("_", "") for kind in self[:3]]
        return _algorithm_text(*kinds, *self[3:])

    def dtypes(self, ins: Any, out: Any) -> tuple[Any, Any, Any]:
        """Dtypes of operands and of sums."""
        lhs, rhs, total = [np.dtype(kind) for kind in self[:3]]
        return lhs, rhs, total


def _algorithm_text(*values: Any) -> str:
    """The fields of a `DotAlgorithm` in StableHLO's syntax."""
    texts = [str(v).lower() if isinstance(v, bool) else v for v in values]
    fields = zip(DotAlgorithm._fields, texts, strict=True)
    return f"algorithm = <{', '.join(f'{name} = {text}' for name, text in fields)}>"


ALGORITHMS = DotAlgorithm, DotAlgorithmPreset
_DTYPES = {"f16": np.float16, "bf16": bfloat16, "f32": np.float32, "f64": np.float64}
_SUMS_IN_F8 = float8_e4m3fn, float8_e5m2, float8_e5m2fnuz, float8_e4m3fnuz, float8_e4m3b11fnuz
_PRECISIONS = {
    "default": Precision.DEFAULT,
    "bfloat16": Precision.DEFAULT,
    "fastest": Precision.DEFAULT,
    "high": Precision.HIGH,
    "bfloat16_3x": Precision.HIGH,
    "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST,
    "float32": Precision.HIGHEST,
}


def canonical_precision(precision: Any) -> Any:
    """None, a pair of `Precision`, or a `DotAlgorithmPreset`; for None the flag applies."""
    if precision is None:
        precision = default_matmul_precision.value
        if precision is None:
            return None
    found = _canonical_precision(tuple(precision) if isinstance(precision, list) else precision)
    if found is NotImplemented:
        raise ValueError(
            f"precision must be None, one of {', '.join(_PRECISIONS)}, a Precision, a pair of "
            f"these, or a DotAlgorithmPreset or its name; got {precision!r}."
        )
    return found


@cached(256)
def _canonical_precision(precision: Any) -> Any:
    """NotImplemented if it is not a precision."""
    if isinstance(precision, DotAlgorithm):
        return precision
    if isinstance(precision, DotAlgorithmPreset):
        return None if precision is DotAlgorithmPreset.DEFAULT else precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return _canonical_precision(DotAlgorithmPreset[precision])
    pair = precision if isinstance(precision, tuple) else (precision, precision)
    found = tuple(_PRECISIONS.get(p, p) if isinstance(p, str) else p for p in pair)
    found = tuple(Precision.DEFAULT if p is None else p for p in found)
    # By name, so that an enum of another library with the same names is accepted.
    found = tuple(Precision.__members__.get(getattr(p, "name", ""), p) for p in found)
    is_pair = len(found) == 2 and all(isinstance(p, Precision) for p in found)
    return found if is_pair else NotImplemented


def precision_text(precision: Any, ins: Any) -> str:
    if isinstance(precision, ALGORITHMS):
        return f"precision = [DEFAULT, DEFAULT], {precision.text(ins)}"
    return _pair_text(precision or (Precision.DEFAULT, Precision.DEFAULT))


@cached(256)
def _pair_text(pair: Any) -> str:
    return f"precision = [{', '.join(_canonical_precision(p)[0].name for p in pair)}]"


# What XLA computes on the CPU: in the dtype of the sums, whatever is requested.
ON_CPU = [
    DotAlgorithmPreset[name]
    for name in """
    F16_F16_F16 F32_F32_F32 F64_F64_F64 BF16_BF16_F32 BF16_BF16_F32_X3 BF16_BF16_F32_X6
""".split()
]
ON_CPU += [DotAlgorithm(*a.dtypes((), None)) for a in ON_CPU[:4]]

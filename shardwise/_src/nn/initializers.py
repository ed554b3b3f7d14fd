"""Parameter initializers: functions `(key, shape, dtype) → array`, built by the functions here.

They also accept `out_sharding`: how the array is sharded over explicit mesh axes.

    init = he_normal()
    weights = init(random.key(0), (784, 256), "float32")

The `variance_scaling` family scales with the number of inputs (`fan_in`) or outputs (`fan_out`) of
a layer: the sizes of `in_axis` and `out_axis` times the receptive field, that is, all other axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import dtype_of
from shardwise._src.numpy.padding import pad
from shardwise._src.ops.basis import move_axis, reshape
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import complex, cos, log, mul, neg, sin, sqrt, sub
from shardwise._src.ops.families import lit
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.random.continuous import normal_sample, truncated_normal_sample
from shardwise._src.random.draws import keys_of, uniform_sample, unit_sample
from shardwise._src.random.matrix_samplers import orthogonal_sample
from shardwise._src.random.named_shapes import keyed
from shardwise._src.random.sampler_arguments import inexact_dtype, sizes, typed_key
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.dtypes import is_complex, real_dtype
from shardwise._src.types.named_shape import NamedShape
from shardwise._src.types.partition_spec import AxisName
from shardwise._src.values.convert import broadcast_to, cast


class Initializer(Protocol):
    """A function that returns an array of initial values."""

    def __call__(
        self,
        key: ArrayLike,
        shape: ShapeLike,
        dtype: DTypeLike | None = ...,
        out_sharding: OutSharding = ...,
    ) -> Array: ...


Axes = AxisName | Sequence[AxisName]  # dimensions, and names of axes in scope

# Standard deviations of a standard normal truncated at 2: on both sides, and in modulus.
_CUT_REAL, _CUT_COMPLEX = 0.87962566103423978, 0.95311164380491208


# -- constant values --


def zeros(
    key: ArrayLike,
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Zeros; ignores the key."""
    return _constant("zeros", 0.0, shape, dtype, out_sharding)


def ones(
    key: ArrayLike,
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Ones; ignores the key."""
    return _constant("ones", 1.0, shape, dtype, out_sharding)


def constant(value: ArrayLike, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer that returns `value`, broadcast to the shape."""

    def init(
        key: ArrayLike,
        shape: ShapeLike,
        dtype: DTypeLike | None = dtype,
        out_sharding: OutSharding = None,
    ) -> Array:
        return _constant("constant", value, shape, dtype, out_sharding)

    return init


def _constant(name: str, value: Any, shape: Any, dtype: Any, out_sharding: Any) -> Any:
    lengths = shape.positional if isinstance(shape, NamedShape) else shape
    args = value, sizes(name, lengths), dtype_of(dtype, name)
    return _filled(*args) if out_sharding is None else placed(_filled, out_sharding, *args)


@fused(arrays=1)
def _filled(value: Any, shape: tuple, dtype: Any) -> Any:
    if type_of(value).shape:
        return broadcast_to(cast(value, dtype), shape)
    return full(value, shape, dtype)


# -- with a given scale --


def uniform(scale: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer with uniform numbers in [0, scale)."""
    return _made("uniform", dtype, lambda shape, dtype: ("unit", scale))


def normal(stddev: float = 1e-2, dtype: DTypeLike | None = None) -> Initializer:
    """An initializer with normal numbers of the given standard deviation."""
    return _made("normal", dtype, lambda shape, dtype: ("normal", stddev))


def truncated_normal(
    stddev: float = 1e-2, dtype: DTypeLike | None = None, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """An initializer with `stddev` times standard normal numbers truncated to (lower, upper)."""
    kind = ("truncated", float(lower), float(upper))
    return _made("truncated_normal", dtype, lambda shape, dtype: (kind, stddev))


def _made(name: str, default: Any, plan: Callable) -> Initializer:
    """An initializer; `plan(shape, dtype)` returns the distribution and the scale factor."""

    def init(
        key: ArrayLike,
        shape: ShapeLike,
        dtype: DTypeLike | None = default,
        out_sharding: OutSharding = None,
    ) -> Array:
        wanted = inexact_dtype(name, dtype)
        own, lengths = keyed(name, key, shape)
        kind, factor = plan(shape if isinstance(shape, NamedShape) else lengths, wanted)
        args = own, kind, float(factor), lengths, wanted
        return _drawn(*args) if out_sharding is None else placed(_drawn, out_sharding, *args)

    init.__name__ = init.__qualname__ = name
    return init


@fused(arrays=1)
def _drawn(key: Any, kind: Any, factor: float, shape: tuple, dtype: Any) -> Any:
    x = _sample(typed_key("an initializer", key), kind, shape, dtype)
    return mul(x, lit(factor, x))


def _sample(key: Any, kind: Any, shape: tuple, dtype: Any) -> Any:
    if kind == "normal":
        return normal_sample(key, shape, dtype)
    if kind[0] == "orthogonal":
        return _orthogonal(key, kind[1], shape, dtype)
    if kind[0] == "delta":
        return _delta(_orthogonal(key, kind[1], shape[-2:], dtype), shape)
    if is_complex(dtype):
        return _in_disk(key, kind, shape, dtype)
    if kind == "unit":
        return unit_sample(key, shape, dtype)
    if kind == "symmetric":
        return uniform_sample(key, -1.0, 1.0, shape, dtype)
    _, lower, upper = kind
    return truncated_normal_sample(key, lower, upper, shape, dtype)


def _in_disk(key: Any, kind: Any, shape: tuple, dtype: Any) -> Any:
    """Complex numbers of random direction: uniform in a disk with variance 1, or normal with
    modulus up to `upper`.
    """
    real = real_dtype(dtype)
    u, turns = [unit_sample(k, shape, real) for k in keys_of(key, 2)]
    if kind == "unit" or kind == "symmetric":
        size = sqrt(mul(lit(2, u), u))
    else:
        inside = lit(1 - math.exp(-(kind[2] ** 2)), u)
        size = sqrt(neg(log(sub(lit(1, u), mul(inside, u)))))
    angle = mul(lit(2 * np.pi, turns), turns)
    return complex(mul(size, cos(angle)), mul(size, sin(angle)))


# -- orthogonal --


def orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """An initializer with `scale` times uniformly distributed orthogonal matrices.

    column_axis: the dimension of the columns; all other dimensions together are the rows. The
      fewer of the two are orthonormal.
    """

    def plan(shape: Any, dtype: Any) -> tuple[Any, float]:
        if len(shape) < 2:
            raise ValueError(f"orthogonal: shape must have two dimensions or more; got {shape}.")
        return ("orthogonal", column_axis), scale

    return _made("orthogonal", dtype, plan)


def delta_orthogonal(
    scale: float = 1.0, column_axis: int = -1, dtype: DTypeLike | None = None
) -> Initializer:
    """An initializer for convolution kernels that are an orthogonal matrix at their center and zero
    elsewhere.

    The last two dimensions of 3, 4 or 5 are the input and output channels; inputs must not exceed
    outputs.

    Source: Xiao et al., "Dynamical isometry and a mean field theory of CNNs", 2018.
    """

    def plan(shape: Any, dtype: Any) -> tuple[Any, float]:
        if len(shape) not in (3, 4, 5):
            raise ValueError(f"delta_orthogonal: shape must have 3 to 5 dimensions; got {shape}.")
        if shape[-1] < shape[-2]:
            raise ValueError(
                "delta_orthogonal: the last dimension must not be smaller than the one before; got "
                f"shape {shape}."
            )
        return ("delta", column_axis), scale

    return _made("delta_orthogonal", dtype, plan)


def _orthogonal(key: Any, axis: int, shape: tuple, dtype: Any) -> Any:
    if 0 in shape:
        return full(0, shape, dtype)
    axis = canonical_axis(axis, len(shape))
    columns, rest = shape[axis], (*shape[:axis], *shape[axis + 1 :])
    found = orthogonal_sample(key, (), dtype, rows=math.prod(rest), columns=columns)
    return move_axis(reshape(found, shape=(*rest, columns)), len(rest), axis)


def _delta(matrix: Any, shape: tuple) -> Any:
    around = [((n - 1) // 2, n // 2) for n in shape[:-2]]
    if 0 in shape:
        return full(0, shape, type_of(matrix).dtype)
    inside = reshape(matrix, shape=(*[1] * len(around), *shape[-2:]))
    return pad(inside, [*around, (0, 0), (0, 0)])


# -- by the number of inputs and outputs --


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: DTypeLike | None = None,
) -> Initializer:
    """An initializer with random numbers of mean 0 and variance scale / n.

    mode:         n is "fan_in", "fan_out", their mean "fan_avg", or their geometric mean
                  "fan_geo_avg".
    distribution: "truncated_normal" (truncated at 2 standard deviations), "normal" or "uniform".
    in_axis, out_axis: the axes of inputs and outputs; all others except batch_axis are the
                  receptive field.
    batch_axis:   axes of independent layers.

    Axes are dimensions, or names of axes that the shape has (`core.NamedShape`).
    """
    _check_choice("mode", mode, _FANS)
    _check_choice("distribution", distribution, ("truncated_normal", "normal", "uniform"))

    def plan(shape: Any, dtype: Any) -> tuple[Any, float]:
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        variance = scale / _FANS[mode](fan_in, fan_out)
        if distribution == "normal":
            return "normal", math.sqrt(variance)
        if distribution == "uniform":
            return "symmetric", math.sqrt(variance if is_complex(dtype) else 3 * variance)
        cut = _CUT_COMPLEX if is_complex(dtype) else _CUT_REAL
        return ("truncated", -2.0, 2.0), math.sqrt(variance) / cut

    return _made("variance_scaling", dtype, plan)


_FANS: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda i, o: i,
    "fan_out": lambda i, o: o,
    "fan_avg": lambda i, o: (i + o) / 2,
    "fan_geo_avg": lambda i, o: math.sqrt(i * o),
}


def _check_choice(what: str, given: str, known: Any) -> None:
    if given not in known:
        raise ValueError(
            f"variance_scaling: {what} must be one of {', '.join(map(repr, known))}; got {given!r}."
        )


def _fans(shape: Any, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """The fan-in and fan-out of each unit."""
    if len(shape) < 2 and in_axis == -2:
        raise ValueError(
            f"the number of inputs of weights of shape {shape} is unknown: they must have at least "
            "two dimensions, or `in_axis` must specify the input dimension."
        )

    def size(axes: Axes) -> int:
        return math.prod(shape[a] for a in (axes if isinstance(axes, tuple | list) else (axes,)))

    inputs, outputs = size(in_axis), size(out_axis)
    total = shape.total if isinstance(shape, NamedShape) else math.prod(shape)
    receptive = total / max(inputs * outputs * size(batch_axis), 1)
    return inputs * receptive, outputs * receptive


def glorot_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 1, "fan_avg", uniform (Glorot and Bengio, 2010)."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, batch_axis, dtype)


def glorot_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 1, "fan_avg", truncated normal (Glorot and Bengio, 2010)."""
    return variance_scaling(
        1.0, "fan_avg", "truncated_normal", in_axis, out_axis, batch_axis, dtype
    )


def lecun_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 1, "fan_in", uniform (LeCun et al., 1998)."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def lecun_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 1, "fan_in", truncated normal (LeCun et al., 1998)."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


def he_uniform(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 2, "fan_in", uniform (He et al., 2015)."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, batch_axis, dtype)


def he_normal(
    in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: DTypeLike | None = None
) -> Initializer:
    """`variance_scaling` with 2, "fan_in", truncated normal (He et al., 2015)."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, batch_axis, dtype)


xavier_uniform, xavier_normal = glorot_uniform, glorot_normal
kaiming_uniform, kaiming_normal = he_uniform, he_normal

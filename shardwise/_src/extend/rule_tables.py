"""Tables of the rules of user-defined primitives, and JAX's functions that fill them.

Rules of the library's own ops are in their records (core/op.py); these tables are for `Primitive`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.interrupts import import_module
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Linear as UndefinedPrimal
from shardwise._src.core.op import is_linear as is_undefined_primal
from shardwise._src.numpy.creation import zeros
from shardwise._src.ops.basis import broadcast_in_dim, move_axis
from shardwise._src.ops.families import add
from shardwise._src.runtime.platforms import Platform
from shardwise._src.transforms.batch import MappedAxis
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.annotations import Array
from shardwise._src.types.array_type import ArrayType

Rule = Callable[..., Any]
NOT_MAPPED = None
_BUILDING = "shardwise._src.extend.mlir_lowering"  # imports MLIR's bindings


class Zero:
    """A tangent or cotangent that is known to be zero, of type `aval`."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Zero({self.aval.str_short(True)})"

    def instantiate(self) -> Any:
        return zeros_like_aval(self.aval)

    @staticmethod
    def from_primal_value(value: Any) -> Zero:
        return Zero(type_of(value).strong())


class AxisData(NamedTuple):
    """The mapped axis of a function, for rules of `vmap`."""

    name: Any
    size: int
    spmd_name: Any
    explicit_mesh_axis: Any

    @staticmethod
    def of(mapped: MappedAxis) -> AxisData:
        explicit = mapped.split_over if mapped.batch_sharding is not None else None
        return AxisData(mapped.axis.name, mapped.size, mapped.axis.spmd, explicit)


class _Batchers(dict[Any, Rule]):
    """`vmap` rules with another signature, adapted to that of `fancy_primitive_batchers`."""

    def __init__(self, adapt: Callable[[Any, Rule], Rule]):
        super().__init__()
        self._adapt = adapt

    def __setitem__(self, primitive: Any, rule: Rule) -> None:
        super().__setitem__(primitive, rule)
        fancy_primitive_batchers[primitive] = self._adapt(primitive, rule)

    def __delitem__(self, primitive: Any) -> None:
        super().__delitem__(primitive)
        fancy_primitive_batchers.pop(primitive, None)


def _by_values(primitive: Any, rule: Rule) -> Rule:
    def adapted(axis: AxisData, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        if all(d is NOT_MAPPED for d in dims):
            out = primitive.bind(*args, **params)
            return out, [NOT_MAPPED] * len(out) if primitive.multiple_results else NOT_MAPPED
        return rule(args, dims, **params)

    return adapted


def _by_axis(primitive: Any, rule: Rule) -> Rule:
    return lambda axis, args, dims, **params: rule(axis.size, axis.name, None, args, dims, **params)


primitive_jvps: dict[Any, Rule] = {}
primitive_transposes: dict[Any, Rule] = {}
fancy_primitive_batchers: dict[Any, Rule] = {}
dce_rules: dict[Any, Rule] = {}  # (used results, equation) → (used operands, remaining equation)
primitive_batchers = _Batchers(_by_values)
axis_primitive_batchers = _Batchers(_by_axis)
# Libraries add their classes here; values of these convert themselves (`__array__`) instead.
canonicalize_dtype_handlers: dict[type, Any] = {np.ndarray: np.asarray}
_lowerings: dict[tuple[Any, str | None], Any] = {}


# Derivatives


def zeros_like_aval(aval: ArrayType) -> Array:
    """An array of zeros of a type."""
    return zeros(aval.shape, aval.dtype)


def instantiate_zeros(tangent: Any) -> Array:
    """The tangent as an array."""
    return tangent.instantiate() if isinstance(tangent, Zero) else tangent


def add_tangents(x: Any, y: Any) -> Array | Zero:
    """The sum of two tangents or cotangents, each of which may be a `Zero`."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add(x, y)


def get_primitive_transpose(p: Any) -> Rule:
    """The transpose rule of a primitive."""
    try:
        return primitive_transposes[p]
    except KeyError:
        raise NotImplementedError(
            f"{p}: this primitive has no transpose rule. Define it with "
            f"`shardwise.interpreters.ad.primitive_transposes[{p}] = rule`."
        ) from None


def deflinear2(primitive: Any, transpose_rule: Rule) -> None:
    """Declares that a primitive is linear in all of its operands.

    transpose_rule: `(cotangent, *operands, **params)` → a cotangent for each operand; linear
      operands arrive as `UndefinedPrimal`s.
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        if all(isinstance(t, Zero) for t in tangents):
            if primitive.multiple_results:
                zero = [Zero.from_primal_value(x) for x in out]
            else:
                zero = Zero.from_primal_value(out)
            return out, zero
        return out, primitive.bind(*map(instantiate_zeros, tangents), **params)

    primitive_jvps[primitive] = jvp
    primitive_transposes[primitive] = transpose_rule


def deflinear(primitive: Any, transpose_rule: Rule) -> None:
    """Like `deflinear2`, for `transpose_rule(cotangent, **params)`, which gets no operands."""
    deflinear2(primitive, lambda ct, *_, **params: transpose_rule(ct, **params))


def defjvp(primitive: Any, *jvps: Rule | None) -> None:
    """Sets a rule for each operand: `(tangent, *operands, **params)` → tangent of the result."""

    def with_result(rule: Rule) -> Rule:
        return lambda t, out, *primals, **params: rule(t, *primals, **params)

    defjvp2(primitive, *[None if rule is None else with_result(rule) for rule in jvps])


def defjvp2(primitive: Any, *jvps: Rule | None) -> None:
    """Like `defjvp`, for rules that get the result: `(tangent, result, *operands, **params)`."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        moved: Any = Zero.from_primal_value(out)
        for rule, t in zip(jvps, tangents, strict=True):
            if rule is not None and not isinstance(t, Zero):
                moved = add_tangents(moved, rule(t, out, *primals, **params))
        return out, moved

    primitive_jvps[primitive] = jvp


def defbilinear(prim: Any, lhs_rule: Rule, rhs_rule: Rule) -> None:
    """Declares that a primitive is linear in each of two operands.

    lhs_rule, rhs_rule: `(cotangent, left operand, right operand, **params)` → cotangent of that
      operand.
    """
    defjvp(
        prim, lambda t, x, y, **params: prim.bind(t, y, **params),
        lambda t, x, y, **params: prim.bind(x, t, **params),
    )  # fmt: skip

    def transpose(ct: Any, x: Any, y: Any, **params: Any) -> list[Any]:
        if is_undefined_primal(x):
            return [lhs_rule(ct, x, y, **params), None]
        return [None, rhs_rule(ct, x, y, **params)]

    primitive_transposes[prim] = transpose


# Batching


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Array:
    """A value repeated along a new axis."""
    shape = type_of(x).shape
    kept = tuple(i for i in range(len(shape) + 1) if i != axis)
    return broadcast_in_dim(x, shape=(*shape[:axis], sz, *shape[axis:]), dims=kept)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Array:
    """A value with its mapped axis moved to the front; broadcast if it has none."""
    return broadcast(x, size, 0) if bdim is None else move_axis(x, bdim, 0)


def defvectorized(prim: Any) -> None:
    """Declares that a primitive is elementwise, with one operand or operands of equal rank."""

    def rule(axis: AxisData, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        if len({*dims}) > 1:
            return _broadcast_rule(prim, axis, args, dims, **params)
        out = prim.bind(*args, **params)
        return out, [dims[0]] * len(out) if prim.multiple_results else dims[0]

    fancy_primitive_batchers[prim] = rule


def defbroadcasting(prim: Any) -> None:
    """Declares that a primitive is elementwise, with operands that are broadcast to one shape."""
    fancy_primitive_batchers[prim] = functools.partial(_broadcast_rule, prim)


def _broadcast_rule(
    primitive: Any, /, axis: AxisData, args: Sequence[Any], dims: Sequence[Any], **params: Any
) -> Any:
    pairs = zip(args, dims, strict=True)
    out = primitive.bind(*[bdim_at_front(x, d, axis.size) for x, d in pairs], **params)
    return out, [0] * len(out) if primitive.multiple_results else 0


def defreducer(prim: Any) -> None:
    """Declares that a primitive reduces its operand over the axes in its parameter `axes`."""

    def rule(axis: AxisData, args: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        (x,), (dim,) = args, dims
        axes = params.pop("axes")
        moved = tuple(a + (a >= dim) for a in axes)
        return prim.bind(x, axes=moved, **params), dim - sum(a < dim for a in moved)

    fancy_primitive_batchers[prim] = rule


# Lowering


class FromFunction:
    """A lowering defined by a function of ops."""

    __slots__ = ("fun", "multiple_results")

    def __init__(self, fun: Callable[..., Any], multiple_results: bool):
        self.fun, self.multiple_results = fun, multiple_results

    def __call__(self, ctx: Any, *operands: Any, **params: Any) -> list[Any]:
        """Inlines it in another rule, which builds operations (`building`)."""
        return ctx.emitter.inline(self.staged(ctx.avals_in, params), *operands)

    def staged(self, types: Sequence[ArrayType], params: dict[str, Any]) -> Any:
        """Its program, without a mesh: the partitioner chooses the shardings inside."""
        free = [t.update(spec=None, mesh=None) if t.mesh else t for t in types]

        def flat(*values: Any) -> list[Any]:
            result = self.fun(*values, **params)
            return list(result) if self.multiple_results else [result]

        return program_of(flat, free, getattr(self.fun, "__name__", "f"), "lower")


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> FromFunction:
    """A lowering rule: inlines the program of `fun(*values, **params)` in place of the primitive.

    multiple_results: whether `fun` returns a sequence.
    """
    return FromFunction(fun, multiple_results)


def register_lowering(
    prim: Any, rule: Any, platform: str | None = None, inline: bool = True, cacheable: bool = True
) -> FromFunction | Rule:
    """Sets the lowering of a primitive for one platform, or for all platforms without their own.

    rule: from `lower_fun` or `shardwise.ffi.ffi_lowering`, or `rule(ctx, *operands, **params)`,
      which builds operations with jaxlib's MLIR bindings (`jaxlib.mlir.ir`,
      `jaxlib.mlir.dialects.stablehlo`) and returns their results. `ctx` has `avals_in`,
      `avals_out`, `module_context`, `primitive`.
    inline, cacheable: accepted and ignored.
    """
    _lowerings[prim, platform] = rule
    return rule


def has_lowering(primitive: Any) -> bool:
    return any(owner is primitive for owner, _ in _lowerings)


def lowering(primitive: Any, platform: Platform) -> Any:
    """The lowering of a primitive on a platform; None if absent."""
    for name in (*platform.names, None):
        if (primitive, name) in _lowerings:
            return _lowerings[primitive, name]
    return None


def built(
    op: Any,
    rule: Rule,
    e: Any,
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    names: Sequence[str],
    params: dict[str, Any],
) -> list[str]:
    """Writes what a rule builds with MLIR's bindings, which are imported on demand."""
    building: Any = import_module(_BUILDING)
    return building.lowered(op, rule, e, ins, outs, names, params)


__all__ = ["UndefinedPrimal", "is_undefined_primal"]

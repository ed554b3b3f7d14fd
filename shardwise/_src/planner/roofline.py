"""Lower bounds on a program's cost: operations, bytes of memory, bytes between devices.

    shapes, found = roofline(step, mesh, in_specs, out_specs)(state, batch)
    found.flops, found.hbm_bytes, found.peak_hbm_bytes, found.ici_bytes["model"]

It traverses the program and adds up the cost of each operation, using the op's record or a rule
that users register. Nothing is compiled. `flops` and `hbm_bytes` count matrix products only, which
remain if everything else is fused with them; `unfused_*` count all operations, each one separately.
For a `shard_map`, the numbers are per device.

In addition to what JAX counts, it multiplies the body of a loop by its length, and counts the
most expensive branch of a `cond`, all elementwise operations, all reductions, and `pmax` like
`psum`. A `while_loop` counts once.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.autodiff.grad import vjp as gradient
from shardwise._src.base.warn import warn
from shardwise._src.core.op import Elements, Op
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.jit.eval_shape import make_jaxpr
from shardwise._src.maps.shard_map import shard_map
from shardwise._src.maps.shard_map_op import shard_map as shard_map_op
from shardwise._src.ops import cumulative, reduce
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.convolution import conv_general_dilated
from shardwise._src.ops.indexing import gather_scatter as gather
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.sharded import collective
from shardwise._src.tree.functions import broadcast
from shardwise._src.tree.functions import map as tree_map
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import bfloat16
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding

FMA = 2  # operations per multiply-add


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """Context for a rule: the equation's primitive and types, the mesh of `roofline`, and whether
    the first or second operand of matrix products counts as already read."""

    name_stack: Any = None
    primitive: Any = None
    avals_in: Sequence[ArrayType] = ()
    avals_out: Sequence[ArrayType] = ()
    jaxpr_eqn_ctx: Any = None
    mesh: Mesh | AbstractMesh | None = None
    pin_lhs_in_vmem: bool = False
    pin_rhs_in_vmem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """The shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: ArrayType) -> RooflineShape:
        """From an array type; a TypeError for other types."""
        if not isinstance(aval, ArrayType):
            raise TypeError(
                f"RooflineShape.from_aval takes an array type, such as `shardwise.typeof(x)`; "
                f"got {aval!r}."
            )
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    @classmethod
    def total_bytes(cls, avals: Sequence[ArrayType]) -> int:
        """Total bytes of arrays of several types."""
        return sum([cls.from_aval(a).bytes for a in avals])


def _summed(a: Any, b: Any) -> Any:
    """The sum of two numbers, or of the numbers by mesh axis."""
    if not isinstance(a, dict):
        return a + b
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}


def _scaled(a: Any, constant: int | float) -> Any:
    if not isinstance(a, dict):
        return int(a * constant)
    return {k: int(n * constant) for k, n in a.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """A lower bound on cost. Results can be added, and multiplied by numbers.

    flops, hbm_bytes: operations, and bytes from and to memory, of matrix products.
    unfused_flops, unfused_hbm_bytes: of all operations, each one separately.
    ici_bytes, ici_latency: by mesh axis, bytes that a device sends and steps that this takes.
    peak_hbm_bytes: maximum size of the values that are live at the same time.
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: dict[str, int] = field(default_factory=dict)
    ici_latency: dict[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """The result with all costs zero."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        names = [field.name for field in fields(self)]
        sums = {name: _summed(getattr(self, name), getattr(other, name)) for name in names}
        sums["peak_hbm_bytes"] = max(self.peak_hbm_bytes, other.peak_hbm_bytes)
        return RooflineResult(**sums)

    def __mul__(self, constant: int | float) -> RooflineResult:
        names = [field.name for field in fields(self)]
        return RooflineResult(**{name: _scaled(getattr(self, name), constant) for name in names})

    __rmul__ = __mul__


Rule = Callable[..., RooflineResult]
_rules: dict[Any, Rule] = {}


def register_roofline(prim: Any) -> Callable[[Rule], Rule]:
    """A decorator for a primitive's rule: `(ctx, *shapes, **params) → RooflineResult`."""

    def register(rule: Rule) -> Rule:
        _rules[prim] = rule
        return rule

    return register


def register_standard_roofline(prim: Any) -> None:
    """Registers a primitive as free of cost."""
    _rules[prim] = _nothing


# ----------------------------------------------------------------------------------- functions


def roofline(
    f: Callable[..., Any],
    mesh: Mesh | AbstractMesh | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    vjp: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult]]:
    """A function that returns a lower bound on the cost of `f` for given argument types.

    Args:
      f: a function of arrays; of per-device shards if there are specs.
      mesh, in_specs, out_specs: as in `shard_map`, if `shard_map` runs `f`.
      pin_lhs_in_vmem, pin_rhs_in_vmem: whether the first operand of matrix products and the result,
        or the second operand, is already in fast memory.
      vjp: whether to count the gradient of `f` instead, with its results as cotangents; for a
        `shard_map`, the backward pass.
      print_jaxpr: whether to print the analyzed program.

    Returns:
      `(*args) → (types of the results, RooflineResult)`; `args` may be `ShapeDtypeStruct`s. Nothing
      is computed. For a `shard_map`, the result is per device.
    """

    @functools.wraps(f)
    def counted(*args: Any) -> tuple[Any, RooflineResult]:
        fun: Callable[..., Any] = f
        if mesh is not None and in_specs is not None and out_specs is not None:
            fun = shard_map(fun, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
        if vjp:
            fun = _backward(fun)
        program, shapes = make_jaxpr(fun, return_shape=True)(*args)
        if mesh is not None and out_specs is not None and not vjp:
            over = functools.partial(NamedSharding, mesh)
            shapes = tree_map(
                lambda t, spec: ShapeDtypeStruct(t.shape, t.dtype, sharding=over(spec)),
                shapes,
                broadcast(out_specs, shapes),
            )
        maps = [e for e in program.eqns if e.op is shard_map_op]
        if maps:
            (program,) = maps[-1].programs()
        if print_jaxpr:
            print(program)
        return shapes, _of_program(program, mesh, pin_lhs_in_vmem, pin_rhs_in_vmem)

    return counted


def _backward(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        outs, pull = gradient(f, *args)
        return pull(outs)

    return run


def roofline_and_grad(
    f: Callable[..., Any],
    mesh: Mesh | AbstractMesh,
    in_specs: Any,
    out_specs: Any,
    *,
    pin_lhs_in_vmem: bool = False,
    pin_rhs_in_vmem: bool = False,
    print_jaxpr: bool = False,
) -> Callable[..., tuple[Any, RooflineResult, RooflineResult]]:
    """`roofline` of `f` and of its backward pass: `(*args) → (types of the results, both)`.

    The backward pass is computed for bfloat16 arguments, except int32 ones. It is the last
    `shard_map` of the gradient, which takes the residuals of the forward pass.
    """
    how: dict[str, Any] = {
        "pin_lhs_in_vmem": pin_lhs_in_vmem,
        "pin_rhs_in_vmem": pin_rhs_in_vmem,
        "print_jaxpr": print_jaxpr,
    }

    def short(x: Any) -> ShapeDtypeStruct:
        dtype = x.dtype if x.dtype == np.int32 else bfloat16
        return ShapeDtypeStruct(x.shape, dtype, sharding=getattr(x, "sharding", None))

    @functools.wraps(f)
    def counted(*args: Any) -> tuple[Any, RooflineResult, RooflineResult]:
        shapes, forward = roofline(f, mesh, in_specs, out_specs, **how)(*args)
        backward = roofline(f, mesh, in_specs, out_specs, vjp=True, **how)
        return shapes, forward, backward(*tree_map(short, args))[1]

    return counted


# ------------------------------------------------------------------------------------ programs


def _of_program(program: Program, mesh: Any, pin_lhs: bool, pin_rhs: bool) -> RooflineResult:
    """The sum over all equations, and the peak size of live values between them."""
    last: dict[Var, Any] = {a: e for e in program.eqns for a in e.invars if isinstance(a, Var)}
    last |= dict.fromkeys([a for a in program.outvars if isinstance(a, Var)])
    here = most = RooflineShape.total_bytes([v.aval for v in program.inputs])
    total = RooflineResult.zeros()
    for eqn in program.eqns:
        total += _of_equation(eqn, mesh, pin_lhs, pin_rhs)
        here += RooflineShape.total_bytes([v.aval for v in eqn.outvars])
        done = {a for a in eqn.invars if isinstance(a, Var) and last[a] is eqn}
        here -= RooflineShape.total_bytes([v.aval for v in done])
        most = max(most, here)
    return total + RooflineResult(peak_hbm_bytes=most)


def _of_equation(eqn: Equation, mesh: Any, pin_lhs: bool, pin_rhs: bool) -> RooflineResult:
    rule = _rules.get(eqn.primitive)
    if rule is None and eqn.op.programs:
        found = [_of_program(p, mesh, pin_lhs, pin_rhs) for p in eqn.programs()]
        if any(isinstance(eqn.params.get(n), tuple) for n in eqn.op.programs):  # branches
            return max(found, key=lambda r: (r.unfused_flops, r.unfused_hbm_bytes))
        whole = functools.reduce(RooflineResult.__add__, found, RooflineResult.zeros())
        times = eqn.params.get("length", 1)  # of a loop
        return replace(whole * times, peak_hbm_bytes=whole.peak_hbm_bytes)
    if rule is None:
        rule = _by_facts(eqn.op)
    ctx = RooflineRuleContext(
        name_stack=eqn.source_info.name_stack, primitive=eqn.primitive, mesh=mesh,
        avals_in=[a.aval for a in eqn.invars], avals_out=[v.aval for v in eqn.outvars],
        pin_lhs_in_vmem=pin_lhs, pin_rhs_in_vmem=pin_rhs,
    )  # fmt: skip
    return rule(ctx, *map(RooflineShape.from_aval, ctx.avals_in), **eqn.params)


def _by_facts(op: Op) -> Rule:
    """The default rule of an operation without a registered rule."""
    if op.foreign is not None:
        warn(
            f"roofline: {op.name} has no rule and counts as zero. Register one with "
            "`shardwise.experimental.roofline.register_roofline`."
        )
    if op.host is not None:
        return _traffic
    counts = op.pointwise and op.elements not in (Elements.MOVED, Elements.KNOWN)
    return _elementwise if counts and op is not convert_element_type else _nothing


# --------------------------------------------------------------------------------------- rules


def _nothing(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    return RooflineResult.zeros()


def _traffic(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """Reads the operands and writes the results."""
    moved = RooflineShape.total_bytes([*ctx.avals_in, *ctx.avals_out])
    return RooflineResult(unfused_hbm_bytes=moved)


def _elementwise(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    size = max([math.prod(t.shape) for t in ctx.avals_out], default=0)
    return RooflineResult(unfused_flops=size) + _traffic(ctx)


@register_roofline(select_n)
def _selection(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    (out,) = map(RooflineShape.from_aval, ctx.avals_out)
    return RooflineResult(unfused_flops=out.size, unfused_hbm_bytes=shapes[0].bytes + out.bytes)


def _cumulative(
    ctx: RooflineRuleContext, x: RooflineShape, *, axis: int, factor: int = 1, **params: Any
) -> RooflineResult:
    return RooflineResult(unfused_flops=factor * x.shape[axis]) + _traffic(ctx)


def _reduction(
    ctx: RooflineRuleContext, x: RooflineShape, *, axes: Sequence[int], **params: Any
) -> RooflineResult:
    """For each result, one operation fewer than the number of elements reduced into it."""
    results = math.prod([n for i, n in enumerate(x.shape) if i not in axes])
    return RooflineResult(unfused_flops=x.size - results) + _traffic(ctx)


@register_roofline(dot_general)
def _product(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *,
    dimension_numbers: Any,
    **params: Any,
) -> RooflineResult:
    (contracted, _), (batch, _) = dimension_numbers
    shared = math.prod([lhs.shape[i] for i in (*contracted, *batch)])
    flops = FMA * lhs.size * rhs.size // shared if shared else 0
    moved = 0 if ctx.pin_lhs_in_vmem else lhs.bytes + RooflineShape.total_bytes(ctx.avals_out)
    moved += 0 if ctx.pin_rhs_in_vmem else rhs.bytes
    return RooflineResult(
        flops=flops, unfused_flops=flops, hbm_bytes=moved, unfused_hbm_bytes=moved
    )


@register_roofline(conv_general_dilated)
def _convolution(
    ctx: RooflineRuleContext,
    lhs: RooflineShape,
    rhs: RooflineShape,
    *,
    dimension_numbers: Any,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    batch_group_count: int,
    **params: Any,
) -> RooflineResult:
    """A multiply-add for each kernel element that overlaps an image element."""
    left, right, result = (
        dimension_numbers.lhs_spec,
        dimension_numbers.rhs_spec,
        dimension_numbers.out_spec,
    )
    out = ctx.avals_out[0].shape
    places = 1
    for d in range(len(window_strides)):
        size, kernel = lhs.shape[left[2 + d]], rhs.shape[right[2 + d]]
        at = np.arange(out[result[2 + d]])[:, None] * window_strides[d] - padding[d][0]
        at = at + np.arange(kernel) * rhs_dilation[d]
        inside = (at >= 0) & (at < size * lhs_dilation[d]) & (at % lhs_dilation[d] == 0)
        places *= int(inside.sum())
    images = lhs.shape[left[0]] // batch_group_count
    flops = FMA * images * rhs.shape[right[1]] * out[result[1]] * places
    return RooflineResult(unfused_flops=flops) + _traffic(ctx)


@register_roofline(gather.gather)
def _gather(
    ctx: RooflineRuleContext, x: RooflineShape, indices: RooflineShape, *, mode: Any, **params: Any
) -> RooflineResult:
    """Gathered elements are read and written. With mode "fill", indices are bounds-checked."""
    (out,) = map(RooflineShape.from_aval, ctx.avals_out)
    flops = 4 * indices.size + out.size if mode == "fill" else 0
    return RooflineResult(unfused_flops=flops, unfused_hbm_bytes=2 * out.bytes + indices.bytes)


def _scatter(
    ctx: RooflineRuleContext,
    x: RooflineShape,
    indices: RooflineShape,
    updates: RooflineShape,
    *,
    flops: int = 0,
    **params: Any,
) -> RooflineResult:
    return RooflineResult(
        unfused_flops=flops * updates.size, unfused_hbm_bytes=3 * updates.bytes + indices.bytes
    )


_rules |= {
    **dict.fromkeys(
        [cumulative.cumsum, cumulative.cumprod, cumulative.cummax, cumulative.cummin], _cumulative
    ),
    cumulative.cumlogsumexp: functools.partial(_cumulative, factor=2),
    **dict.fromkeys(
        [reduce_sum, reduce.reduce_max, reduce.reduce_min, reduce.reduce_prod, reduce.reduce_and,
         reduce.reduce_or, reduce.reduce_xor], _reduction,
    ),
    gather.scatter: _scatter,
    **dict.fromkeys(
        [gather.scatter_add, gather.scatter_sub, gather.scatter_mul, gather.scatter_min,
         gather.scatter_max], functools.partial(_scatter, flops=1),
    ),
}  # fmt: skip


# ------------------------------------------------------------------------------------ collectives


def _per_axis(names: Sequence[Any], sent: float, steps: float) -> RooflineResult:
    return RooflineResult(
        ici_bytes=dict.fromkeys(names, int(sent)), ici_latency=dict.fromkeys(names, int(steps))
    )


def _ring(
    ctx: RooflineRuleContext,
    *shapes: RooflineShape,
    names: Sequence[Any],
    sizes: Sequence[int],
    divides: bool,
    **params: Any,
) -> RooflineResult:
    """Rings along each axis, longest first; each ring multiplies a device's shard by its length.

    divides: whether a device starts with its share of its input, rather than with all of it.
    """
    count = math.prod(sizes)
    if count == 1:
        return _per_axis(names, 0, 0)
    part = RooflineShape.total_bytes(ctx.avals_in) / (count if divides else 1) // len(names)
    sent = 0.0
    for n in sorted(sizes, reverse=True):
        sent += part * (n - 1)
        part *= n
    return _per_axis(names, sent, max(sizes) * len(names))


_rules[collective.reduce_scatter] = functools.partial(_ring, divides=True)
_rules[collective.all_gather] = functools.partial(_ring, divides=False)


def _all_reduce(ctx: RooflineRuleContext, *shapes: RooflineShape, **params: Any) -> RooflineResult:
    """A reduce-scatter followed by an all-gather."""
    return _ring(ctx, *shapes, divides=True, **params) * 2


_rules.update(dict.fromkeys([collective.psum, collective.pmax, collective.pmin], _all_reduce))


@register_roofline(collective.all_to_all)
def _all_to_all(
    ctx: RooflineRuleContext,
    *shapes: RooflineShape,
    names: Sequence[Any],
    sizes: Sequence[int],
    **params: Any,
) -> RooflineResult:
    """Half of the data crosses the bisection of the mesh, both ways if an axis is a ring."""
    count = math.prod(sizes)
    if count == 1:
        return _per_axis(names, 0, 0)
    least = min(sizes)
    width = least ** (len(sizes) - 1) * (2 if least > 2 else 1)
    sent = RooflineShape.total_bytes(ctx.avals_in) * count / 2 / width
    return _per_axis(names, sent, sum([n / 2 for n in sizes]))


@register_roofline(collective.ppermute)
def _permutation(
    ctx: RooflineRuleContext,
    *shapes: RooflineShape,
    names: Sequence[Any],
    sizes: Sequence[int],
    perm: Sequence[tuple[int, int]],
    **params: Any,
) -> RooflineResult:
    """The load of the busiest link, with shortest-path routing, one axis after the other."""
    if math.prod(sizes) == 1:
        return _per_axis(names, 0, 0)
    links: dict[Any, int] = defaultdict(int)
    farthest = 0
    for source, target in perm:
        start = tuple(int(i) for i in np.unravel_index(source, sizes))
        end = np.unravel_index(target, sizes)
        steps = 0
        for axis, n in enumerate(sizes):
            forward, back = (int(end[axis]) - start[axis]) % n, (start[axis] - int(end[axis])) % n
            way = 1 if forward <= back else -1
            for step in range(min(forward, back)):
                ends = [
                    (*start[:axis], (start[axis] + way * k) % n, *start[axis + 1 :])
                    for k in (step, step + 1)
                ]
                links[tuple(sorted(ends))] += 1
            steps += min(forward, back)
        farthest = max(farthest, steps)
    return _per_axis(
        names, RooflineShape.total_bytes(ctx.avals_in) * max(links.values(), default=0), farthest
    )

"""Batching: ops on values that carry an additional batch dimension (`vmap`).

The mapped axis may have a name. A collective op over that name is handled by the interpreter of
that axis, which reduces, gathers or permutes over the batch dimension; other interpreters batch it
like any op. An op with a nested program that uses the name is batched even if no operand is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shardwise._src.base.caches import Table, cached
from shardwise._src.base.config import numpy_rank_promotion
from shardwise._src.base.context import CURRENT, Context, NamedAxis, current
from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import VARIADIC, Fused, form_of, is_plain
from shardwise._src.core.infer import type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program, held_in
from shardwise._src.core.program_tools import derived
from shardwise._src.core.remedies import gathered
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.messages.source import Site, user_site
from shardwise._src.ops.basis import broadcast_in_dim, move_axis
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.transforms.stage import (
    DETACHED,
    Stage,
    leaves_of,
    split_captures,
    stage,
    tree_of_several,
)
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

TYPES_REMEMBERED = 1024


@cached(TYPES_REMEMBERED)
def without_dim(aval: ArrayType, dim: int) -> ArrayType:
    """The type without one dimension, whatever its sharding."""
    shape, spec = aval.shape, aval.spec
    if spec is not None:
        spec = spec.update(partitions=[p for d, p in enumerate(spec) if d != dim])
    return aval.update(shape=shape[:dim] + shape[dim + 1 :], spec=spec)


def with_dim(
    aval: ArrayType, size: int, dim: int, batch_sharding: NamedSharding | None
) -> ArrayType:
    """The type with an added dimension. batch_sharding: its sharding, if the type has a mesh."""
    shape, spec = aval.shape, aval.spec
    if spec is not None:
        spec = spec.update(partitions=[*spec[:dim], axes_of(batch_sharding), *spec[dim:]])
    return aval.update(shape=(*shape[:dim], size, *shape[dim:]), spec=spec)


def axes_of(batch_sharding: NamedSharding | None) -> tuple[Any, ...]:
    return () if batch_sharding is None else batch_sharding.spec.dims(1)[0]


def batch_sharding_of(args: Sequence[Any], dims: Sequence[int | None]) -> NamedSharding | None:
    """How the batch dimension of arguments is sharded over explicit mesh axes."""
    found: NamedSharding | None = None
    for x, d in zip(args, dims, strict=True):
        if d is None:
            continue
        t = type_of(x)
        if t.mesh is None or t.spec is None or t.spec[d] is None:
            continue
        own = NamedSharding(t.mesh, PartitionSpec(t.spec[d]))
        if found not in (None, own):
            rows = [
                f"{type_of(x).str_short(True)} along {d}"
                for x, d in zip(args, dims, strict=True)
                if d is not None
            ]
            raise ShardingTypeError(
                "vmap: the mapped axes of the arguments are sharded over different mesh axes: "
                f"{', '.join(rows)}. Use {gathered('x', t, d)} on the last of them."
            )
        found = own
    return found


@dataclass(frozen=True, slots=True)
class Axis:
    """A mapped axis.

    name:   for collectives; None for an unnamed axis.
    spmd:   mesh axes that shard the batch dimension in sharding constraints.
    batch_sharding: how the batch dimension of arguments is sharded over explicit mesh axes.
    whole:  the axis of which this one is a part, and which is also in scope; or None.
    """

    size: int
    name: Any = None
    spmd: Any = None
    batch_sharding: NamedSharding | None = None
    whole: NamedAxis | None = None


def spmd_axes(interpreter: Interpreter | None) -> set[Any]:
    """The mesh axes that shard batch dimensions of this interpreter and of those around it."""
    found: set[Any] = set()
    while interpreter is not None and not interpreter.is_apart:
        over = interpreter.axis.spmd if isinstance(interpreter, Batch) else None
        found.update(over if isinstance(over, tuple | list) else () if over is None else (over,))
        interpreter = interpreter.parent
    return found


@derived
def axes_in(program: Program) -> dict[Any, int]:
    """The axes that collectives in a program use, and their sizes; only axes bound outside it."""
    found: dict[Any, int] = {}
    for eqn in program.eqns:
        op, inner = eqn.op, {}
        if op.named_axes is not None:
            inner = dict(zip(*[eqn.params[p] for p in op.named_axes], strict=True))
        for held in held_in(op, eqn.params):
            inner |= axes_in(held)
        bound = eqn.params[op.contains.binds] if op.contains.binds else ()
        found |= {name: size for name, size in inner.items() if name not in bound}
    return found


class BatchTracer(Tracer):
    """A value with a batch dimension at `dim`."""

    __slots__ = ("value", "dim", "_site")

    def __init__(self, interpreter: Batch, value: Any, dim: int, aval: ArrayType | None = None):
        self.interpreter = interpreter
        self.aval = aval or without_dim(type_of(value), dim)
        self.value = value
        self.dim = dim
        self._site = None if isinstance(value, Tracer) else user_site(4)

    def made_at(self) -> Site | None:
        return self.value.made_at() if isinstance(self.value, Tracer) else self._site


class Batch(Interpreter):
    """Applies each op's `batch` rule, with the parent as interpreter.

    tag: shared with interpreters that represent this one elsewhere (`MappedAxis`): these run
      user functions that an op contains, which may use this one's tracers from outside.
    depth: how many named axes are in scope outside this one.
    mapped: the axis, as rules see it.
    is_unsharded: whether the axis is not sharded, and not a part of another one.
    """

    __slots__ = ("axis", "tag", "depth", "mapped", "is_unsharded")

    def __init__(self, parent: Interpreter, axis: Axis, transform: str, function: str):
        super().__init__(parent, transform, function)
        self.axis = axis
        self.tag = object()
        self.depth = 0
        self.mapped = MappedAxis(self)
        self.is_unsharded = axis.spmd is None and axis.batch_sharding is None and axis.whole is None

    def parent_context(self) -> Context:
        """The context of the parent, in which the name of this axis is unbound."""
        here = current()
        if self.axis.name is None or here is self._seen:
            return super().parent_context()
        self._seen = here
        self._under_parent = here.replace(interpreter=self.parent, axes=here.axes[: self.depth])
        return self._under_parent

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        values, dims, active = [], [], False
        for a in args:
            if a.__class__ is BatchTracer and a.interpreter.tag is self.tag:
                values.append(a.value)
                dims.append(a.dim)
                active = True
            else:
                values.append(a)
                dims.append(None)
        if not active and not self._is_named_in(op, params):
            if op.stage is None or op.is_staged(params):
                return self.parent.process(op, args, params)
            staged, new = op.stage(op, self, args, params)
            if all(self.unwrap(a)[1] is None for a in staged) and not self._is_named_in(op, new):
                return self.parent.process(op, staged, new)
        if op.batch is None:
            raise op.missing("batch", self.transform)
        token = CURRENT.set(self.parent_context())
        try:
            out, dim = op.batch(op, self.mapped, values, dims, **params)
        finally:
            CURRENT.reset(token)
        if op.multiple:
            return [self.wrap(o, d) for o, d in zip(out, dim, strict=True)]
        return self.wrap(out, dim)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        """Runs a fused function: as one program if the parent is eager, else inline."""
        n = fused.arrays
        if self.is_unsharded and self.parent.eager and (len(args) >= n or n == VARIADIC):
            values, dims = [], []
            for a in args[:n]:
                if a.__class__ is BatchTracer and a.interpreter is self:
                    values.append(a.value)
                    dims.append(a.dim)
                else:
                    values.append(a)
                    dims.append(None)
            run = self._batched(fused, values, dims, args[n:], static)
            if run is not None:
                return run(self)
        return Interpreter.call(self, fused, args, static)

    def _batched(
        self,
        fused: Fused,
        values: Sequence[Any],
        dims: Sequence[int | None],
        rest: Sequence[Any],
        static: dict[str, Any],
    ) -> Callable[[Batch], Any] | None:
        """A call of a fused function as one program, cached for others like it. None if it cannot
        be one: the function itself will then raise its error, if any."""
        if all(d is None for d in dims):
            return None
        try:
            values, signatures = eval_trace().with_signatures(values)
            form = form_of(fused, rest, static) if rest or static else fused
            key = (form, current().key, *signatures, *dims)
            found = _calls.entries.get(key, _UNKNOWN)
        except Exception:  # an operand, or an unhashable parameter, that the function rejects
            return None
        if found is _UNKNOWN:
            if not all(map(is_plain, (*rest, *static.values()))):  # too many programs
                return None
            body = lambda *xs: fused.fun(*xs, *rest, **static)  # noqa: E731
            found = _calls.put(key, self._new_call(body, fused.name, values, dims))
        return None if found is None else partial(found, values)

    def _new_call(
        self, fun: Callable, name: str, values: Sequence[Any], dims: Sequence[int | None]
    ) -> BatchedCall | None:
        if any(a.aval.mesh is not None for a in values):
            return None
        if numpy_rank_promotion.value != "allow":  # a message depends on the caller
            return None
        token = CURRENT.set(self.parent_context())
        try:
            return BatchedCall(self, fun, name, values, dims)
        except Exception:
            return None
        finally:
            CURRENT.reset(token)

    def _is_named_in(self, op: Op, params: dict[str, Any]) -> bool:
        """Whether an op, or a program that it contains, is a collective over this axis."""
        name = self.axis.name
        if name is None:
            return False
        if op.named_axes is not None:
            return name in params[op.named_axes[0]]
        if op.contains.binds and name in params[op.contains.binds]:
            return False
        return any(name in axes_in(p) for p in held_in(op, params))

    def wrap(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        if x.__class__ is BatchTracer and x.interpreter.tag is self.tag:
            return x.value, x.dim
        return x, None


class MappedAxis:
    """The axis of a batch interpreter, as rules see it; makes interpreters for it elsewhere."""

    __slots__ = ("axis", "size", "_tag", "_names")

    def __init__(self, interpreter: Batch):
        self.axis = interpreter.axis
        self.size = interpreter.axis.size
        self._tag = interpreter.tag
        self._names = interpreter.transform, interpreter.function

    @property
    def batch_sharding(self) -> NamedSharding | None:
        return self.axis.batch_sharding

    @property
    def split_over(self) -> Any:
        """The mesh axes that shard the batch dimension; None if unspecified."""
        if self.axis.spmd is None and self.axis.batch_sharding is None:
            return None
        return self.axis.spmd or axes_of(self.axis.batch_sharding)

    def of(self, args: Sequence[Any], dims: Sequence[int | None]) -> Axis:
        """The axis, sharded like the batch dimension of these arguments."""
        return replace(self.axis, batch_sharding=batch_sharding_of(args, dims))

    def over_current(self) -> Batch:
        """An interpreter that represents the original one, over the current interpreter."""
        new = Batch(current().interpreter, self.axis, *self._names)
        new.tag, new.mapped = self._tag, self
        return new


def batch(
    fun: Callable,
    args: Sequence[Any],
    dims: Sequence[int | None],
    size: int,
    transform: str = "vmap",
    name: str = "f",
) -> tuple[list[Any], list[int | None]]:
    """Runs `fun(*args) -> list` over the batch dimensions; dims of None are unbatched."""
    axis = Axis(size, batch_sharding=batch_sharding_of(args, dims))
    interpreter = Batch(current().interpreter, axis, transform, name)
    return run_batched(interpreter, fun, args, dims)


class BatchedCall:
    """A fused function over a batch dimension, compiled for values like the given ones.

    run:   takes values; returns one array, or a list if there is a `tree`.
    dims:  of the results; None for results that are not batched.
    types: of the results, without the batch dimension.
    tree:  the pytree of the results; None for one array.
    """

    __slots__ = ("run", "dims", "types", "tree")

    def __init__(
        self,
        interpreter: Batch,
        fun: Callable,
        name: str,
        values: Sequence[Any],
        dims: Sequence[int | None],
    ):
        axis, parent = interpreter.axis, interpreter.parent
        names = interpreter.transform, interpreter.function
        self.dims: list[int | None] = []
        trees: list[Any] = []

        def batched(*args: Any) -> list[Any]:
            inner = Batch(current().interpreter, axis, *names)
            outs, found = run_batched(inner, leaves_of(fun, trees), args, dims)
            self.dims += found
            return outs

        program, _ = stage(batched, [x.aval for x in values], name=name, parent=parent)
        pairs = zip(program.outvars, self.dims, strict=True)
        self.types = [v.aval if d is None else without_dim(v.aval, d) for v, d in pairs]
        self.tree = tree_of_several(trees)
        self.run = eval_trace().runner(program, values, as_list=self.tree is not None)

    def __call__(self, values: Sequence[Any], interpreter: Batch) -> Any:
        outs = self.run(values)
        if self.tree is None:
            (dim,), (aval,) = self.dims, self.types
            return outs if dim is None else BatchTracer(interpreter, outs, dim, aval)
        for i, (dim, aval) in enumerate(zip(self.dims, self.types, strict=True)):
            if dim is not None:
                outs[i] = BatchTracer(interpreter, outs[i], dim, aval)
        return self.tree.unflatten(outs)


_UNKNOWN: Any = object()
CALLS = 8192
_calls: Table[BatchedCall | None] = Table(__name__, "batched calls", CALLS)
closed_by_fork(Batch, "call")


def run_batched(
    interpreter: Batch, fun: Callable, args: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], list[int | None]]:
    """Runs `fun(*args) -> list` under a batch interpreter; see `batch`."""
    axis, scope, named = interpreter.axis, current(), nullcontext()
    if axis.name is not None:
        interpreter.depth = len(scope.axes)
        new = [NamedAxis(axis.name, axis.size), *([] if axis.whole is None else [axis.whole])]
        named = scope.with_axes(interpreter.transform, *new).entered()
    with named, interpreter.entered():
        pairs = _run(interpreter, fun, args, dims)
    reject_leaks(interpreter)
    return [v for v, _ in pairs], [d for _, d in pairs]


def _run(
    interpreter: Batch, fun: Callable, args: Sequence[Any], dims: Sequence[int | None]
) -> list[tuple[Any, int | None]]:
    outs = fun(*[interpreter.wrap(a, d) for a, d in zip(args, dims, strict=True)])
    return [interpreter.unwrap(x) for x in outs]


def to_dim(
    value: Any,
    dim: int | None,
    wanted: int | None,
    size: int,
    batch_sharding: NamedSharding | None = None,
) -> Any:
    """Moves the batch dimension to `wanted`; if it is missing, broadcasts the value.

    batch_sharding: the sharding of the new dimension.
    """
    if wanted is None or dim == wanted:
        return value
    if dim is None:
        shape = type_of(value).shape
        kept = tuple(i for i in range(len(shape) + 1) if i != wanted)
        new = shape[:wanted] + (size,) + shape[wanted:]
        repeated = broadcast_in_dim(value, shape=new, dims=kept)
        if batch_sharding is None:
            return repeated
        t = type_of(value)
        if t.mesh is None:
            t = t.update(spec=PartitionSpec(), mesh=batch_sharding.mesh)
        return reshard_like(repeated, with_dim(t, size, wanted, batch_sharding))
    return move_axis(value, dim, wanted)


@derived
def batch_program(
    program: Program, axis: Axis, batched: tuple[bool, ...], force: tuple[bool, ...] | None = None
) -> tuple[Program, tuple[bool, ...]]:
    """A program over arguments whose batch dimension, where marked, is the first.

    force: results that must be batched even where they do not depend on a batched argument.
    Returns the program and which results are batched (at dimension 0).
    """
    stager = Stage(DETACHED, "vmap", program.name)
    size, batch_sharding = axis.size, axis.batch_sharding
    with stager.entered():
        args = [
            stager.new_input(with_dim(v.aval, size, 0, batch_sharding) if b else v.aval)
            for v, b in zip(program.invars, batched, strict=True)
        ]
        dims = [0 if b else None for b in batched]
        interpreter = Batch(stager, axis, "vmap", program.name)
        outs, out_dims = run_batched(interpreter, program, args, dims)
        marks = [d is not None for d in out_dims]
        if force is not None:
            marks = [m or f for m, f in zip(marks, force, strict=True)]
        moved = [
            reshard_like(to_dim(o, d, 0, size), with_dim(v.aval, size, 0, batch_sharding))
            if m
            else o
            for o, d, m, v in zip(outs, out_dims, marks, program.outvars, strict=True)
        ]
        new, captured = stager.finish(moved)
    new, _ = split_captures(new, captured)
    return new, tuple(marks)


def moved_into(program: Program, args: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """Arguments in the form a batched program takes: batch dimension first, with its sharding."""
    rows = zip(args, dims, program.in_types, strict=True)
    return [a if d is None else reshard_like(move_axis(a, d, 0), t) for a, d, t in rows]

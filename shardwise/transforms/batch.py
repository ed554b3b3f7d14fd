"""Batching: ops on values that carry one hidden dimension more (`vmap`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.context import CURRENT, current
from shardwise.base.errors import ShardingTypeError
from shardwise.core.infer import type_of
from shardwise.core.interpreter import Interpreter
from shardwise.core.leaks import refuse_leaks
from shardwise.core.op import Op
from shardwise.core.program import Program, derived
from shardwise.core.source import Site, user_site
from shardwise.ops.basis import broadcast_in_dim, move_axis
from shardwise.ops.sharding import settle
from shardwise.transforms.jvp import Ground, evaluate_flat
from shardwise.transforms.stage import Stage, split_captures
from shardwise.transforms.tracer import Tracer
from shardwise.types.array_type import ArrayType
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.sharding import NamedSharding


def without_dim(aval: ArrayType, dim: int) -> ArrayType:
    """The type without one dimension, however it is split."""
    shape, spec = aval.shape, aval.spec
    if spec is not None:
        spec = spec.update(partitions=[p for d, p in enumerate(spec) if d != dim])
    return aval.update(shape=shape[:dim] + shape[dim + 1 :], spec=spec)


def with_dim(aval: ArrayType, size: int, dim: int, hidden: NamedSharding | None) -> ArrayType:
    """The type with a dimension more. hidden: how that is split, where the type has a mesh."""
    shape, spec = aval.shape, aval.spec
    if spec is not None:
        spec = spec.update(partitions=[*spec[:dim], axes_of(hidden), *spec[dim:]])
    return aval.update(shape=(*shape[:dim], size, *shape[dim:]), spec=spec)


def axes_of(hidden: NamedSharding | None) -> tuple[Any, ...]:
    return () if hidden is None else hidden.spec.dims(1)[0]


def hidden_sharding(args: Sequence[Any], dims: Sequence[int | None]) -> NamedSharding | None:
    """How the hidden dimension of arguments is split over explicit mesh axes."""
    found: NamedSharding | None = None
    for x, d in zip(args, dims, strict=True):
        t = type_of(x)
        if d is None or t.mesh is None or t.spec is None or t.spec[d] is None:
            continue
        own = NamedSharding(t.mesh, PartitionSpec(t.spec[d]))
        if found not in (None, own):
            rows = [f"{type_of(x).str_short(True)} along {d}"
                    for x, d in zip(args, dims, strict=True) if d is not None]
            raise ShardingTypeError(
                f"vmap: the mapped axes of the arguments are split over different mesh axes: "
                f"{', '.join(rows)}. Use `reshard` on one of them."
            )
        found = own
    return found


class BatchTracer(Tracer):
    """A value with a hidden dimension at `dim`."""

    __slots__ = ("value", "dim", "_site")

    def __init__(self, interpreter: Batch, value: Any, dim: int):
        self.interpreter = interpreter
        self.aval = without_dim(type_of(value), dim)
        self.value = value
        self.dim = dim
        self._site = user_site(4)

    def made_at(self) -> Site | None:
        return self._site


class Batch(Interpreter):
    """Applies each op's `batch` rule, with the parent as interpreter.

    hidden: how the hidden dimension of the arguments is split over explicit mesh axes.
    tag: shared with interpreters that stand in for this one elsewhere (`MappedAxis`): there run
      user functions that an op holds, and these may use this one's tracers from outside.
    """

    __slots__ = ("axis_name", "size", "spmd_axis_name", "tag", "hidden")

    def __init__(
        self, parent: Interpreter, size: int, axis_name: Any, transform: str, function: str
    ):
        super().__init__(parent, transform, function)
        self.size = size
        self.axis_name = axis_name
        self.spmd_axis_name: Any = None
        self.hidden: NamedSharding | None = None
        self.tag = object()

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
        if not active:
            if op.stage is None or "program" in params:
                return self.parent.process(op, args, params)
            staged, new = op.stage(self, args, params)
            if all(self.unwrap(a)[1] is None for a in staged):
                return self.parent.process(op, staged, new)
        if op.batch is None:
            raise op.missing("batch", self.transform)
        if "sharding" in params and (self.spmd_axis_name is not None or self.hidden is not None):
            params = {**params, "batch_axes": self.spmd_axis_name or axes_of(self.hidden)}
        if op.family == "custom":
            params = {**params, "mapped": MappedAxis(self)}
        token = CURRENT.set(self.parent_context())
        try:
            out, dim = op.batch(self.size, values, dims, **params)
        finally:
            CURRENT.reset(token)
        if op.multiple:
            return [self.wrap(o, d) for o, d in zip(out, dim, strict=True)]
        return self.wrap(out, dim)

    def wrap(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def unwrap(self, x: Any) -> tuple[Any, int | None]:
        if x.__class__ is BatchTracer and x.interpreter.tag is self.tag:
            return x.value, x.dim
        return x, None


class MappedAxis:
    """What makes batch interpreters for one mapped axis, over whichever parent."""

    __slots__ = ("size", "hidden", "_fields")

    def __init__(self, interpreter: Batch):
        self.size = interpreter.size
        self.hidden = interpreter.hidden
        self._fields = {n: getattr(interpreter, n) for n in MAPPED_FIELDS}

    def over_current(self) -> Batch:
        """An interpreter that stands in for the first, over the one that is current."""
        fields = self._fields
        names = ("size", "axis_name", "transform", "function")
        new = Batch(current().interpreter, *[fields[n] for n in names])
        for name in ("spmd_axis_name", "tag", "hidden"):
            setattr(new, name, fields[name])
        return new


MAPPED_FIELDS = ("size", "axis_name", "transform", "function", "spmd_axis_name", "tag", "hidden")


def batch(
    fun: Callable, args: Sequence[Any], dims: Sequence[int | None], size: int,
    axis_name: Any = None, transform: str = "vmap", name: str = "f",
    parent: Interpreter | None = None, spmd_axis_name: Any = None,
) -> tuple[list[Any], list[int | None]]:
    """Runs `fun(*args) -> list` over the hidden dimensions; dims of None are unbatched."""
    interpreter = Batch(parent or current().interpreter, size, axis_name, transform, name)
    interpreter.spmd_axis_name = spmd_axis_name
    interpreter.hidden = hidden_sharding(args, dims)
    return run_batched(interpreter, fun, args, dims)


def run_batched(
    interpreter: Batch, fun: Callable, args: Sequence[Any], dims: Sequence[int | None]
) -> tuple[list[Any], list[int | None]]:
    """Runs `fun(*args) -> list` under a batch interpreter; see `batch`."""
    with interpreter.entered():
        pairs = _run(interpreter, fun, args, dims)
    refuse_leaks(interpreter)
    return [v for v, _ in pairs], [d for _, d in pairs]


def _run(
    interpreter: Batch, fun: Callable, args: Sequence[Any], dims: Sequence[int | None]
) -> list[tuple[Any, int | None]]:
    outs = fun(*[interpreter.wrap(a, d) for a, d in zip(args, dims, strict=True)])
    return [interpreter.unwrap(x) for x in outs]


def to_dim(
    value: Any, dim: int | None, wanted: int | None, size: int,
    hidden: NamedSharding | None = None,
) -> Any:
    """Moves the hidden dimension to `wanted`; where there is none yet, repeats the value.

    hidden: how to split the new dimension.
    """
    if wanted is None or dim == wanted:
        return value
    if dim is None:
        shape = type_of(value).shape
        kept = tuple(i for i in range(len(shape) + 1) if i != wanted)
        new = shape[:wanted] + (size,) + shape[wanted:]
        repeated = broadcast_in_dim(value, shape=new, dims=kept)
        if hidden is None:
            return repeated
        t = type_of(value)
        whole = t if t.mesh is not None else t.update(spec=PartitionSpec(), mesh=hidden.mesh)
        return settle(repeated, with_dim(whole, size, wanted, hidden))
    return move_axis(value, dim, wanted)


@derived
def batch_program(
    program: Program, size: int, batched: tuple[bool, ...], force: tuple[bool, ...] | None = None,
    hidden: NamedSharding | None = None,
) -> tuple[Program, tuple[bool, ...]]:
    """A program over arguments whose hidden dimension, where marked, is the first.

    force: results that must be batched even where they do not depend on a batched argument.
    hidden: how the hidden dimension is split, of all arguments and results with a mesh.
    Returns the program and which results are batched (at dimension 0).
    """
    stager = Stage(Ground, "vmap", program.name)
    with stager.entered():
        args = [
            stager.new_input(with_dim(v.aval, size, 0, hidden) if b else v.aval)
            for v, b in zip(program.arguments, batched, strict=True)
        ]
        dims = [0 if b else None for b in batched]
        run = functools.partial(evaluate_flat, program)
        outs, out_dims = batch(run, args, dims, size, parent=stager, name=program.name)
        marks = [d is not None for d in out_dims]
        if force is not None:
            marks = [m or f for m, f in zip(marks, force, strict=True)]
        moved = [
            settle(to_dim(o, d, 0, size), with_dim(v.aval, size, 0, hidden)) if m else o
            for o, d, m, v in zip(outs, out_dims, marks, program.outputs, strict=True)
        ]
        new, captured = stager.finish(moved)
    new, _ = split_captures(new, captured)
    return new, tuple(marks)


def moved_into(
    program: Program, args: Sequence[Any], dims: Sequence[int | None]
) -> list[Any]:
    """Arguments as a batched program takes them: hidden dimension first, split as it says."""
    rows = zip(args, dims, program.in_types, strict=True)
    return [a if d is None else settle(move_axis(a, d, 0), t) for a, d, t in rows]

"""`shard_map`: a function that each device runs on its shards of the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any, overload

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_to_arguments
from shardwise._src.arguments.signatures import called, check_function
from shardwise._src.arguments.values import as_input, checked_results
from shardwise._src.base.context import current
from shardwise._src.control.programs import Extension
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import consts_to_args
from shardwise._src.core.structure import shared
from shardwise._src.maps.shard_map_op import ShardMapParams
from shardwise._src.maps.shard_map_op import shard_map as shard_map_op
from shardwise._src.maps.shard_specs import check_spec, checked_out_specs, is_leaf, part_type
from shardwise._src.maps.shard_types import in_types, inside
from shardwise._src.messages.argument_names import argument_names, name_of, parameters_of
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import pcast
from shardwise._src.refs.passing import functional, lent
from shardwise._src.refs.refs import Ref, is_ref, values_of, write_back
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import program_of, stage
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.mesh import AbstractMesh, Mesh, within
from shardwise._src.types.partition_spec import AxisName, PartitionSpec
from shardwise._src.types.sharding import NamedSharding


class InferFromArgs:
    """Represents `in_specs` or `in_axes` inferred from the types of arguments."""

    def __repr__(self) -> str:
        return "Infer"


Infer = InferFromArgs()


@overload
def shard_map(
    f: Callable[P, T],
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Any = None,
    axis_names: Collection[AxisName] = frozenset(),
    check_vma: bool = True,
) -> Callable[P, T]: ...


@overload
def shard_map(
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Any = None,
    axis_names: Collection[AxisName] = frozenset(),
    check_vma: bool = True,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def shard_map(
    f: Callable[..., Any] | None = None,
    /,
    *,
    out_specs: Any,
    in_specs: Any = Infer,
    mesh: Any = None,
    axis_names: Collection[AxisName] = frozenset(),
    check_vma: bool = True,
) -> Any:
    """Maps `f` over the devices of a mesh: each runs it on its shards of the arguments.

    Inside, the axes of the mesh are names for collectives (`shardwise.lax.psum` and others), which
    are the only communication.

    Args:
      in_specs: how each argument is sharded: a PartitionSpec, or a prefix of the pytree of
        positional arguments. Along an axis that a spec does not name, all devices get the same
        shard. With `unreduced` and `reduced` axes the argument's type must have them, too, and all
        axes of the mesh must be Explicit and manual. None: a static argument, which `f` gets
        unchanged. By default, the types of arguments over Explicit axes. If all axes are Explicit
        and manual, an argument whose type differs from its spec is an error: `shardwise.reshard`
        reshards it.
      out_specs: how the results are assembled, likewise. Along an axis that a spec does not name,
        the results must be the same; along its `unreduced` and `reduced` axes they must be in this
        state (`shardwise.lax.pcast`).
      mesh: a Mesh or an AbstractMesh; by default the one in scope. A `kernels.CoreMesh` runs `f` on
        the cores of each device, over refs.
      axis_names: the axes of the mesh along which `f` is manual; by default all. Along the others
        it sees global values, which the partitioner shards.
      check_vma: whether types in `f` record along which axes a value varies, is unreduced or
        reduced, as in `f32[4]{V:x}`, to prove that results are in the state that `out_specs`
        require. Without it, the caller must ensure this.

    Returns:
      The mapped function.

    Raises:
      ValueError: if a dimension is not divisible by the size of the axes that shard it, an
        argument's sharding over Explicit axes differs from its spec, or a result may vary
        along an axis that its spec does not name, or is not unreduced or reduced as its spec
        requires.
      TypeError: if there are no in_specs, and types have no shardings.
    """
    if f is None:
        return functools.partial(
            shard_map,
            out_specs=out_specs,
            in_specs=in_specs,
            mesh=mesh,
            axis_names=axis_names,
            check_vma=check_vma,
        )
    check_function("shard_map", f)
    if hasattr(mesh, "shard_mapped"):  # the cores of a device
        return mesh.shard_mapped(f)
    what = f"shard_map of {name_of(f)}"

    @functools.wraps(f)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        reject_keywords(what, kwargs, "in_specs has specs")
        own = mesh_of(what, mesh, "Pass `mesh=`, or enter one")
        axes = _axes(what, own, axis_names)

        given: list[Any] | None = None
        if in_specs is not Infer:
            where = f"{what}: in_specs"
            given = broadcast_to_arguments(in_specs, args, where, parameters_of(f), is_leaf)

        def specs_of(values: Sequence[Any], names: Sequence[str]) -> list[Any]:
            if given is None:
                return inferred(what, "in_specs", values, own, axes)
            return [spec for spec in given if spec is not None]

        static = [spec is None for spec in given or ()]
        return on_parts(
            what, f, args, own, axes, specs_of, lambda program, tree: out_specs, check_vma, static
        )

    return mapped


def reject_keywords(what: str, kwargs: dict[str, Any], why: str) -> None:
    if kwargs:
        raise TypeError(
            f"{what} takes arguments by position, for which {why}; got {join(list(kwargs))} by "
            "keyword. Pass them by position, or bind them with functools.partial."
        )


def on_parts(
    what: str,
    f: Callable[..., Any],
    args: tuple[Any, ...],
    mesh: Mesh | AbstractMesh,
    axes: tuple[Any, ...],
    specs_of: Callable[[Sequence[Any], Sequence[str]], list[Any]],
    out_specs: Callable[[Program, Any], Any],
    tracked: bool,
    static: Sequence[bool] = (),
) -> Any:
    """The results of `f` on the shards of its arguments.

    specs_of:  takes values and their names, returns the spec of each.
    out_specs: takes the program and the pytree of the results, returns a prefix of that pytree.
    static:    marks leaves that `f` gets unchanged; `specs_of` does not get them.
    """
    place = NamedSharding(mesh, PartitionSpec())
    leaves, tree = flatten(args)
    dynamic = [i for i in range(len(leaves)) if not (static and static[i])]
    names = argument_names(args, {}, parameters_of(f))
    names = [names[i] for i in dynamic]
    values = [
        leaves[i] if is_ref(leaves[i]) else as_input(leaves[i], what, lambda k=k: names[k])
        for k, i in enumerate(dynamic)
    ]
    specs = specs_of(values, names)
    for x, name, spec in zip(values, names, specs, strict=True):
        if not is_ref(x):
            _check_explicit(what, name, type_of(x), place, spec, axes)
    out_trees: list[Any] = []

    def flat(*parts: Any) -> list[Any]:
        given = list(leaves)
        for i, part in zip(dynamic, parts, strict=True):
            given[i] = part
        outs, out_tree = flatten(called(what, f, tree.unflatten(given), {}))
        out_trees.append(out_tree)
        return checked_results(outs, out_tree, what)

    def put_together(program: Program) -> tuple[PartitionSpec, ...]:
        prefix = out_specs(program, out_trees[0])
        return checked_out_specs(what, prefix, out_trees[0], program, place, axes, tracked)

    results = over_parts(
        what, name_of(f), flat, values, names, specs, put_together, place, axes, tracked
    )
    return out_trees[0].unflatten(results)


def over_parts(
    what: str,
    name: str,
    flat: Callable[..., list[Any]],
    values: Sequence[Any],
    names: Sequence[str],
    specs: Sequence[PartitionSpec],
    put_together: Callable[[Program], Sequence[PartitionSpec]],
    place: NamedSharding,
    axes: tuple[Any, ...],
    tracked: bool,
) -> list[Any]:
    """The results of `flat`, a function of shards, on each device.

    values:       refs may be among them; `flat` receives refs of shards. Refs that it captures are
                  replicated, and must be the same on all devices at the end.
    names:        of the values, for messages; specs: their shardings.
    put_together: returns the specs of the results, called once the program is known.
    """
    at = [i for i, x in enumerate(values) if is_ref(x)]
    passed, closed, counts = [values[i] for i in at], [], []
    lending = lent(passed, what, lambda: [names[i] for i in at]) if at else nullcontext([])
    with lending as held:
        given = list(values)
        for i, value in zip(at, held, strict=True):
            given[i] = value
        types = [
            part_type(what, names[i], type_of(x), place, spec, axes, tracked)
            for i, (x, spec) in enumerate(zip(given, specs, strict=True))
        ]

        pure = functional(flat, what, at, [r.kind for r in passed])

        def with_refs(*parts: Any) -> list[Any]:
            outs, last = pure(*parts)
            counts.append(len(outs))
            return [*outs, *last]

        def inner_type(t: ArrayType) -> ArrayType:
            return part_type(what, "a ref from outside", t, place, PartitionSpec(), axes, tracked)

        read = _reader(given, specs, place, axes, tracked)
        with inside(place, axes, tracked):
            program, captured = stage(
                with_refs,
                types,
                transform="shard_map",
                name=name,
                names=names,
                refs=closed,
                ref_type=inner_type,
                read=read,
            )
            program, constants = consts_to_args(program)
            count, outputs = counts[0], program.outvars
            out_specs = [*put_together(program.replace(outvars=outputs[:count]))]
            program = _with_sums(program, out_specs)
            outputs = program.outvars
            written = [(names[i], specs[i]) for i in at]
            written += [(_outside(ref), PartitionSpec()) for ref in closed]
            for (where, spec), t in zip(written, program.out_types[count:], strict=True):
                if tracked:
                    _check_written(what, where, t, spec, axes)
                out_specs.append(spec)
            program = shared(program)
            if not outputs:
                if not program.effects:
                    return []
                program, out_specs = _with_result(program), [PartitionSpec()]
        given = [*constants, *captured, *given, *values_of(closed)]
        whole = [PartitionSpec()] * (len(constants) + len(captured))
        in_specs = (*whole, *specs, *[PartitionSpec()] * len(closed))
        params = ShardMapParams(program, place, in_specs, tuple(out_specs), axes, tracked)
        outs = shard_map_op(*_placed(given, params), **params._asdict())[: len(outputs)]
    write_back([*passed, *closed], outs[count:])
    return outs[:count]


def _with_sums(program: Program, specs: Sequence[PartitionSpec]) -> Program:
    """The program with results that vary along unreduced axes of their specs cast to sums."""
    new, outs = Extension(program.eqns), [*program.outvars]
    for i, spec in enumerate(specs):
        names = sorted(outs[i].aval.varying & spec.unreduced, key=str)
        if names:
            outs[i] = new.bind(pcast, outs[i], names=tuple(names), to="unreduced")
    return program.replace(outvars=outs, eqns=new.eqns) if outs != [*program.outvars] else program


def _reader(
    given: Sequence[Any],
    specs: Sequence[PartitionSpec],
    place: NamedSharding,
    axes: tuple[Any, ...],
    tracked: bool,
) -> Callable[[Any], Any] | None:
    """Returns a function that reads a value of an eager call, such as a condition of Python's `if`,
    by running the program so far; None if values cannot be read. Programs with effects are not run.
    """
    outer = current()
    if not (outer.interpreter.eager and tracked):
        return None

    def read(tracer: Any) -> Any:
        if tracer.aval.varying or tracer.aval.unreduced or tracer.interpreter.refs:
            return None
        program, captured = tracer.interpreter.finish([tracer])
        if program.effects:
            return None
        in_specs = (*[PartitionSpec()] * len(captured), *specs)
        params = ShardMapParams(program, place, in_specs, (PartitionSpec(),), axes, tracked)
        with outer.entered():
            (found,) = shard_map_op(*_placed([*captured, *given], params), **params._asdict())
        return found

    return read


def _outside(ref: Ref) -> str:
    return f"{ref.short} from outside"


def _check_written(
    what: str, name: str, t: ArrayType, spec: PartitionSpec, axes: tuple[Any, ...]
) -> None:
    """Raises if the values that the devices wrote to a ref may differ where they must not."""
    left = sorted(t.varying.intersection(axes) - {*spec.axes}, key=str)
    if left:
        raise ValueError(
            f"{what}: the value written to {name}, of type {t.str_short(True)}, may vary along "
            f"{', '.join(map(repr, left))}, but the ref has one value along these axes. Pass "
            "the ref as an argument with a spec that names them, or write a value that is the "
            f"same on all devices, such as `shardwise.lax.psum(x, {left[0]!r})`."
        )


def inferred(
    what: str,
    argument: str,
    values: Sequence[Any],
    mesh: Mesh | AbstractMesh,
    axes: tuple[Any, ...],
) -> list[PartitionSpec]:
    """The specs of values over Explicit axes that become manual, from their types.

    argument: the name of the argument that could specify them.
    """
    explicit = mesh.abstract_mesh.explicit_axes
    if values and (others := [a for a in axes if a not in explicit]):
        raise TypeError(
            f"{what}: {argument} is required. Types only specify how arguments are sharded over "
            f"Explicit axes, and {join(others)} of {mesh} "
            f"{'is' if len(others) == 1 else 'are'} not Explicit."
        )
    return [_spec_of(x.type if is_ref(x) else type_of(x), axes) for x in values]


def _spec_of(t: ArrayType, axes: Any) -> PartitionSpec:
    if t.spec is None or t.mesh is None:
        return PartitionSpec()
    rows = [tuple([a for a in names if a in axes]) for names in t.spec.dims(t.ndim)]
    return t.spec.update(partitions=rows)


def _check_explicit(
    what: str, name: str, t: ArrayType, place: NamedSharding, spec: PartitionSpec, axes: Any
) -> None:
    """Raises if an argument's type has a different sharding over Explicit axes."""
    mesh = place.mesh.abstract_mesh
    check_spec(what, "in_specs", name, t, place, spec, axes)
    if {*axes} != {*mesh.explicit_axes} or {*axes} != {*mesh.axis_names}:
        return
    held, sums = _spec_of(t, axes), (spec.unreduced, spec.reduced)
    if t.mesh is None and not any(sums):
        return
    if held.dims(t.ndim) != spec.dims(t.ndim) or (held.unreduced, held.reduced) != sums:
        raise ValueError(
            f"{what}: {name} is of type {t.str_short(True)}, which is not sharded as its spec "
            f"{spec} requires. Pass `shardwise.reshard({name}, {spec})`; or write {held} as its "
            "spec, or omit specs to use the arguments' own shardings."
        )


def _with_result(program: Program) -> Program:
    """The program with a result. XLA does not partition code that only has effects."""

    def fun(*args: Any) -> list[Any]:
        return [*program(*args), np.int32(0)]

    return program_of(fun, program.in_types, program.name, "shard_map")


def mesh_of(what: str, mesh: Any, how: str) -> Mesh | AbstractMesh:
    """The given mesh, or the one in scope. how: to pass one, for the error."""
    scope = current().mesh
    found = current().mesh_for_values if mesh is None else mesh
    if not isinstance(found, Mesh | AbstractMesh | None):
        raise TypeError(f"{what}: mesh must be a Mesh or an AbstractMesh; got {short_repr(found)}.")
    if found is None or found.empty:
        raise ValueError(f"{what}: there is no mesh. {how} with `shardwise.set_mesh`.")
    return found if scope is None else within(found, scope, what)


def _axes(what: str, mesh: Any, axis_names: Any) -> tuple[Any, ...]:
    asked = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    unknown = sorted(asked - {*mesh.axis_names}, key=str)
    if unknown:
        raise ValueError(
            f"{what}: axis_names has {', '.join(map(repr, unknown))}, which {mesh} does not have."
        )
    bound = mesh.abstract_mesh.manual_axes
    found = tuple([a for a in mesh.axis_names if (a in asked if asked else a not in bound)])
    if twice := [a for a in bound if a in asked or not found]:
        raise ValueError(
            f"{what}: {' and '.join(map(repr, twice))} is already manual, by an enclosing "
            "map. Name other axes of the mesh in axis_names."
        )
    return found


def _placed(given: Sequence[Any], own: ShardMapParams) -> list[Any]:
    """The operands transferred to where the op takes them."""
    place = own.place
    if current().interpreter.eager and isinstance(place.mesh, Mesh):
        pairs = zip(given, own.in_specs, strict=True)
        return [eval_trace().place(x, place.with_spec(spec)) for x, spec in pairs]
    types = in_types(own.program, place, own.in_specs, own.axes)
    return [reshard_like(x, t) for x, t in zip(given, types, strict=True)]

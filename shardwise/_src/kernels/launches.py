"""The op `kernel_call`: a program run for each point of a grid, over blocks of arrays.

    operands: dynamic sizes of the grid…, prefetched arrays…, inputs…
    body:     (indices…, dynamic sizes…, prefetched…, blocks of inputs…, blocks of results…,
              scratch…) → (blocks of results…, scratch…)
    maps:     one for each input and result: (indices…, prefetched…) → the indices of its block

Derivatives and maps are launches as long as they can be: tangents are further refs with the same
blocks, a mapped axis is another axis of the grid; for reverse mode see reverse_launches.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from shardwise._src.base.marks import given, merge, partition, spread
from shardwise._src.control.call import call, described_call, opaque_call, partial_eval_call
from shardwise._src.control.programs import Extension
from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_halves import PREFETCHED, SIMULATED, SIZES, obstacle
from shardwise._src.kernels.launch_record import (
    INT,
    Launch,
    derivatives_named,
    lowering_errors,
    no_derivative,
    result_types,
)
from shardwise._src.kernels.launch_work import launch_cost
from shardwise._src.kernels.on_cpu import NEAREST, loop_program, run_loop
from shardwise._src.kernels.on_gpu.triton_call import gpu_program
from shardwise._src.kernels.on_tpu.mosaic_call import tpu_program
from shardwise._src.kernels.reverse_launches import split, transposed, why_not_transposed
from shardwise._src.kernels.vectorized import in_form
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, zeros
from shardwise._src.runtime.platforms import Platform
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.types.symbolic import Symbolic

# -- forward mode --


@derived
def _jvp_body(
    body: Program, launch: Launch, moving: tuple[bool, ...]
) -> tuple[Program, tuple[bool, ...]]:
    """The body with a further ref for the tangent of each moving input, and of each result and
    scratch of floats. Returns which of the results have tangents."""
    fixed = len(launch.grid) + launch.dynamic + launch.prefetch
    ins, outs = len(launch.ins), len(launch.outs)
    rest = [is_inexact(v.aval.dtype) for v in body.invars[fixed + ins :]]
    both, marks = jvp_program(body, (*[False] * fixed, *moving, *rest))
    count, results = len(body.invars), len(body.outvars)
    ts = iter(both.invars[count:])
    in_ts = [next(ts) for m in moving if m]
    rest_ts = spread(list(ts), rest)
    new = Extension(both.eqns)
    found = spread(both.outvars[results:], marks)
    moved = []
    for v, t, has in zip(body.outvars, found, rest, strict=True):
        aval = v.aval.strong()
        moved.append((new.zeros(aval) if t is None else new.fit(t, aval)) if has else None)
    own = both.invars[:count]
    inputs = [
        *both.constvars,
        *own[: fixed + ins],
        *in_ts,
        *own[fixed + ins : fixed + ins + outs],
        *given(rest_ts[:outs]),
        *own[fixed + ins + outs :],
        *given(rest_ts[outs:]),
    ]
    outvars = [
        *both.outvars[:outs],
        *given(moved[:outs]),
        *both.outvars[outs:results],
        *given(moved[outs:]),
    ]
    return both.replace(inputs=inputs, outvars=outvars, eqns=new.eqns), tuple(rest)


def _jvp(
    op: Op, primals: Any, tangents: Any, *, body: Program, maps: tuple, launch: Launch
) -> tuple[list[Any], list[Any]]:
    _, prefetched, ts = launch.parts(tangents)
    if any(t is not None for t in prefetched):  # they have no blocks, which tangents would share
        types = tuple(map(type_of, primals))
        program = loop_program(body, types, maps, launch, _ends(launch))
        p = {"program": program, "title": launch.name, "why": PREFETCHED}
        return differentiated_loop.jvp(differentiated_loop, primals, tangents, **p)  # type: ignore[misc]
    aliased = dict(launch.aliases)
    values = launch.parts(primals)[2]
    ts = [
        zeros(type_of(x).strong())
        if t is None and i in aliased and is_inexact(type_of(x).dtype)
        else t
        for i, (x, t) in enumerate(zip(values, ts, strict=True))
    ]
    moving = tuple([t is not None for t in ts])
    both, marks = _jvp_body(body, launch, moving)
    ins, outs = len(launch.ins), len(launch.outs)
    is_out, is_scratch = marks[:outs], marks[outs:]
    doubled = [i for i, m in enumerate(moving) if m]
    moved_outs = [j for j, m in enumerate(is_out) if m]
    new = replace(
        launch,
        ins=(*launch.ins, *[launch.ins[i] for i in doubled]),
        outs=(*launch.outs, *[launch.outs[j] for j in moved_outs]),
        scratch=(
            *launch.scratch,
            *[s for s, m in zip(launch.scratch, is_scratch, strict=True) if m],
        ),
        aliases=(
            *launch.aliases,
            *[
                (ins + doubled.index(i), outs + moved_outs.index(j))
                for i, j in launch.aliases
                if i in doubled
            ],
        ),
        cost=launch.cost and launch.cost.times(2 if doubled else 1),
        primal=launch.primal or (body, maps, launch),
    )
    own, others = maps[:ins], maps[ins:]
    new_maps = (*own, *[own[i] for i in doubled], *others, *[others[j] for j in moved_outs])
    found = op(*primals, *given(ts), body=both, maps=new_maps, launch=new)
    return found[:outs], spread(found[outs:], is_out)


# -- maps --


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, body: Program, maps: tuple, launch: Launch
) -> tuple[list[Any], list[int]]:
    """Another axis of the grid, before the others; the blocks of mapped operands are those of one
    element along the new dimension. Mapped sizes and prefetched arrays need several launches."""
    sizes, prefetched, in_dims = launch.parts(dims)
    if any(d is not None for d in (*sizes, *prefetched)):
        return _one_by_one(op, args, dims, body=body, maps=maps, launch=launch)
    aliased = dict(launch.aliases)
    shared = [d is None and i in aliased for i, d in enumerate(in_dims)]
    first = len(args) - len(in_dims)
    given = [*args[:first], *map(partial(_repeated, mapped.size), args[first:], in_dims, shared)]
    grown = [d is not None or s for d, s in zip(in_dims, shared, strict=True)]
    grown += [True] * len(launch.outs)
    tiles = [
        _grown(t, mapped.size) if g else t
        for t, g in zip((*launch.ins, *launch.outs), grown, strict=True)
    ]
    new = replace(
        launch,
        grid=(mapped.size, *launch.grid),
        names=(None, *launch.names),
        parallel=(True, *launch.parallel),
        cost=launch.cost and launch.cost.times(mapped.size),
        primal=None,
        ins=tuple(tiles[: len(launch.ins)]),
        outs=tuple(tiles[len(launch.ins) :]),
    )
    found = op(
        *given,
        body=_with_index(body, returned=False),
        maps=tuple([_with_index(m, returned=g) for m, g in zip(maps, grown, strict=True)]),
        launch=new,
    )
    return found, [0] * len(found)


def _one_by_one(op: Op, args: Any, dims: Any, **p: Any) -> tuple[list[Any], list[int]]:
    """A launch for each element along the mapped dimension, in a loop."""
    marks = [d is not None for d in dims]
    shared, mapped = partition(args, marks)
    rows = [move_axis(x, d, 0) for x, d in zip(mapped, given(dims), strict=True)]
    _, found = scan(lambda _, row: (None, op(*merge(marks, row, shared), **p)), None, rows)
    return found, [0] * len(found)


def _repeated(size: int, x: Any, dim: int | None, shared: bool) -> Any:
    """An operand with its mapped dimension first; a result that begins with it needs one, too."""
    if shared:
        shape = type_of(x).shape
        return broadcast_in_dim(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))
    return x if dim is None else move_axis(x, dim, 0)


def _grown(tile: Tile, size: int) -> Tile:
    return replace(
        tile,
        type=tile.type.update(shape=(size, *tile.type.shape)),
        sizes=(1, *tile.sizes),
        kept=(False, *tile.kept),
        element=(False, *tile.element),
        padding=((0, 0), *tile.padding),
        ragged=tuple([d + 1 for d in tile.ragged]),
    )


@derived
def _with_index(program: Program, returned: bool) -> Program:
    """The program with another index first, which it ignores, or also returns first."""
    index = Var(INT)
    outs = [index, *program.outvars] if returned else program.outvars
    inputs = [*program.constvars, index, *program.invars]
    return program.replace(inputs=inputs, outvars=outs)


# -- programs --


def _loop(types: Sequence[ArrayType], p: dict[str, Any], fill: Any = None) -> Program:
    """What CPUs run, for operands of these types."""
    body, launch = in_form(p["body"], p["launch"], p["maps"])
    return loop_program(body, tuple(types), p["maps"], launch, fill)


def _ends(launch: Launch) -> Any:
    """What programs that are differentiated read beyond the ends of arrays: 0 could have infinite
    derivatives there, which are multiplied by 0."""
    return NEAREST if launch.simulation.is_compiled else None


def _expand(op: Op, types: Any, p: dict[str, Any], platform: Platform) -> Program:
    launch = p["launch"]
    if not launch.simulation.is_compiled:
        return _loop(types, p)
    if not platform.is_xla_cpu:
        _check_sizes(launch, types, platform)
    if (platform.triton_library or platform.has_mosaic) and 0 not in launch.grid:
        parts = p["body"], p["maps"], launch, types
        if platform.triton_library:
            return gpu_program(*parts)
        with lowering_errors(), derivatives_named(launch, platform):
            return tpu_program(*parts, platform)
    if not (platform.is_xla_cpu or platform.triton_library or platform.has_mosaic):
        raise NotImplementedError(
            f"kernel {p['launch'].name} cannot be compiled for '{platform}' yet: kernels run on "
            "CPUs, GPUs and TPUs. Use operands on such a device, or write the function without a "
            "kernel for other platforms: `lax.platform_dependent`."
        )
    return _loop(types, p)


def _check_sizes(launch: Launch, types: Sequence[ArrayType], platform: Platform) -> None:
    who = f"kernel {launch.name} cannot be compiled for '{platform}'"
    if any(tile.ragged for tile in (*launch.ins, *launch.outs)):
        raise NotImplementedError(
            f"{who}: a block is a BoundedSlice. Use blocks of one size, and mask what is beyond "
            "the end: `kernels.load(…, mask=…)`."
        )
    refs = *launch.parts(types)[1], *[t.ref_type for t in launch.tiles]
    sized = types if platform.triton_library else refs
    found = next((t for t in sized if any(isinstance(n, Symbolic) for n in t.shape)), None)
    if found is not None:
        raise NotImplementedError(
            f"{who} with symbolic sizes, which {found.str_short(True)} has. Export the program for "
            "each size, or for CPUs."
        )


# -- reverse mode --


@dataclass(frozen=True)
class Source:
    """The launch of a loop.

    unknown: the types of operands that the loop does not have.
    mapped:  how many mapped dimensions each of the others begins with.
    """

    body: Program
    maps: tuple[Program, ...]
    launch: Launch
    unknown: tuple[ArrayType | None, ...]
    mapped: tuple[int, ...]


def _batch_loop(op: Op, mapped: Any, args: Any, dims: Any, *, source: Any, **p: Any) -> Any:
    rows = zip(source.mapped, dims, strict=True)
    source = replace(source, mapped=tuple([n + (d is not None) for n, d in rows]))
    return call.batch(op, mapped, args, dims, source=source, **p)  # type: ignore[misc]


def _reject_on_hardware(op: Op, types: Any, p: dict[str, Any], platform: Platform) -> None:
    if not platform.is_xla_cpu and p["why"] != SIMULATED:
        raise no_derivative(p["title"], platform, p["why"])


def _transpose_loop(op: Op, cts: Any, *args: Any, title: str, why: str, **p: Any) -> Any:
    if why == SIZES:
        raise ValueError(
            f"kernel {title} has a grid with a traced size, so that it has no reverse-mode "
            "derivative (grad, vjp, jacrev): how many programs run is not known, so residuals "
            "cannot be stored for the backward pass. Make the sizes of the grid Python integers; "
            "use forward mode (`jvp`, `jacfwd`); or define a rule for the function that launches "
            "it by `custom_vjp`."
        )
    return call.transpose(op, cts, *args, title=title, why=why, **p)  # type: ignore[misc]


# A launch as a loop, if its derivative is not a launch. `why` this is so; `title`: of the kernel.
# Of such a loop, `kernel_loop` is the part that reverse mode runs first; `checked` checks `source`.
kernel_loop = described_call("kernel_loop", batch=_batch_loop, expand=_reject_on_hardware)
differentiated_loop = opaque_call(
    "differentiated_loop",
    jvp=call.jvp,
    batch=call.batch,
    partial_eval=partial_eval_call,
    transpose=_transpose_loop,
    enter=call.enter,
    expand=_reject_on_hardware,
)


def _split(op: Op, interpreter: Any, args: Any, params: dict[str, Any]) -> list[Any]:
    launch = params["launch"]
    unknown = [*map(interpreter.is_unknown, args)]
    why = obstacle(params["body"], launch, unknown)
    if why is None:
        return split(op, kernel_call, interpreter, args, params)
    types = [type_of(a) for a in args]
    missing = tuple([t if u else None for u, t in zip(unknown, types, strict=True)])
    source = Source(**params, unknown=missing, mapped=(0,) * missing.count(None))
    p = {"title": launch.name, "why": why, "program": _loop(types, params, _ends(launch))}
    return partial_eval_call(
        differentiated_loop, interpreter, args, p, known=kernel_loop, source=source
    )


def _transpose(op: Op, cts: Any, *args: Any, **p: Any) -> list[Any]:
    launch, linear = p["launch"], [*map(is_linear, args)]
    why = obstacle(p["body"], launch, linear) or why_not_transposed(cts, linear, **p)
    if why is None:
        return transposed(kernel_call, cts, args, p)
    types = [a.aval if is_linear(a) else type_of(a) for a in args]
    program = _loop(types, p, _ends(launch))
    loop = differentiated_loop
    return loop.transpose(loop, cts, *args, program=program, title=launch.name, why=why)  # type: ignore[misc]


def _enter(
    op: Op,
    inside: Any,
    state: list[Any],
    args: list[Any],
    *,
    body: Program,
    maps: tuple,
    launch: Launch,
) -> Any:
    """The state is more scratch memory."""
    new = inside.program(body, len(body.invars), len(body.outvars))
    return run_loop(new, maps, launch, launch.simulation.fill, False, args, state)


def _eval(op: Op, run: Any, args: list[Any], **p: Any) -> Any:
    return run(_loop([type_of(a) for a in args], p), args)


kernel_call = Op(
    "kernel_call",
    type_rule=result_types,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    enter=_enter,
    expand=_expand,
    cost=launch_cost,
    multiple=True,
    contains=Programs(("body", "maps"), eval=_eval),
    is_expensive=True,
)

# A launch that is kept if its results are not used.
effectful_kernel_call = replace(
    kernel_call, name="effectful_kernel_call", effects=frozenset({"kernels with side effects"})
)
LAUNCHES = kernel_call, effectful_kernel_call


def op_of(launch: Launch) -> Op:
    return effectful_kernel_call if launch.params.is_retained else kernel_call

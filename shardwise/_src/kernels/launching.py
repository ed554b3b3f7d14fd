"""`call`: launches a kernel."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise._src.base.caches import make_room, register
from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.kernels.blocks import tile_of
from shardwise._src.kernels.checking.memory_interpreter import check_memory
from shardwise._src.kernels.launch_arguments import (
    alias_pairs,
    blocks_of,
    grid_of,
    named_paths,
    out_type,
    parallel_marks,
    parameters_of,
    paths_of,
    value_of_argument,
)
from shardwise._src.kernels.launch_checks import are_checked
from shardwise._src.kernels.launch_checks import check as checked_results
from shardwise._src.kernels.launch_record import INT, CompilerParams, CostEstimate, Launch
from shardwise._src.kernels.launch_staging import staged_programs
from shardwise._src.kernels.launches import op_of
from shardwise._src.kernels.simulation import PLAIN, Simulation
from shardwise._src.kernels.spaces import VMEM, SemaphoreType, as_scratch
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.values.convert import cast

SIGNATURES = 256  # of arguments, for which one launch is staged
_launches: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _clear() -> None:
    for known in [*_launches.values()]:
        known.clear()


register(__name__, "launches", lambda: sum(map(len, [*_launches.values()])), _clear)


def call(
    body: Callable[..., None],
    out: Any,
    *,
    grid: Any = (),
    in_specs: Any = None,
    out_specs: Any = None,
    scratch: Any = (),
    prefetch: int = 0,
    parallel: Sequence[Any] = (),
    aliases: Mapping[int, int] | None = None,
    name: str | None = None,
    check: bool | str = False,
    params: CompilerParams | None = None,
    cost: CostEstimate | None = None,
    simulation: Simulation | None = None,
) -> Callable[..., Any]:
    """A function that runs a kernel for each point of a grid, over blocks of arrays.

        def add(x, y, out):                          # refs of f32[8,128]
            out[...] = x[...] + y[...]

        rows = Block((8, 128), lambda i: (i, 0))
        f = call(add, ShapeDtypeStruct((64, 128), "float32"),
                 grid=(8,), in_specs=[rows, rows], out_specs=rows)
        f(x, y)

    Args:
      body: the kernel: takes refs of prefetched arrays, of blocks of the arguments, of blocks of
        the results, and of scratch memory; returns None.
      out: the types of the results: a pytree of objects with a shape and a dtype, of which other
        attributes are not used.
      grid: the sizes of the grid: integers, or traced int32 scalars; or pairs of a name and a size.
        The last axis is the fastest.
      in_specs: a pytree of `Block`s, a prefix of the arguments after the prefetched ones. None:
        each program sees the whole arrays.
      out_specs: a pytree of `Block`s, a prefix of `out`.
      scratch: a pytree of scratch memory, such as `VMEM((8, 128), "float32")`, which keeps its
        values from one program to the next. A dict passes refs by name.
      prefetch: how many of the first arguments are known before blocks are read, so that the
        `index` functions of blocks get refs of them too.
      parallel: the axes of the grid (numbers or names) whose programs may run in any order.
      aliases: pairs of an argument, counted after the prefetched ones, and a result (leaves of the
        pytrees) that starts with its values and uses its memory.
      name: of the kernel, for messages and reports.
      check: True: checks each launch: that blocks are inside of their arrays, that each block of a
        result is written, by programs that do not conflict, and that the results depend neither on
        memory that was not written nor on the order of parallel programs. "memory": interprets the
        kernel, which also finds accesses outside of refs, races, copies that are not waited for,
        semaphores that are not 0 at the end, and deadlocks. See `checked` for kernels in functions.
      params: for the compilers of GPUs and TPUs, such as `CompilerParams(num_warps=8)`.
      cost: what the kernel costs, for reports; None: as its program says.
      simulation: what CPUs do where the kernel's behavior is not specified, for tests: see
        `Simulation`.

    Returns:
      A function of the arguments, which returns arrays like `out`. The body is traced once for each
      set of argument types: what it reads from outside must not change, as under `jit`.

    Raises:
      KernelError: at the call, if a check finds a mistake.
      TypeError, ValueError: at the call, if blocks do not fit the arrays, a pytree is not a prefix,
        or the kernel returns something or writes to an argument.
    """
    if not callable(body):
        raise TypeError(f"kernels.call: the body is a function; got {short_repr(body)}.")
    title = name or name_of(body)
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
        raise ValueError(
            f"kernel {title}: prefetch is a number of arguments; got {short_repr(prefetch)}."
        )
    if check not in (False, True, "memory"):
        raise ValueError(
            f"kernel {title}: check is True, False or 'memory'; got {short_repr(check)}."
        )
    if not isinstance(simulation, Simulation | None):
        raise TypeError(
            f"kernel {title}: simulation is a `Simulation`, or None; got {short_repr(simulation)}."
        )
    if params is not None and params.dimension_semantics is not None:
        raise ValueError(
            f"kernel {title}: dimension_semantics is for `pallas_call`. List the axes whose "
            "programs may run in any order: `parallel=`."
        )
    sizes, names = grid_of(title, grid)
    out_leaves, out_tree = flatten(out)
    outs = [out_type(title, x) for x in out_leaves]
    out_paths = paths_of("out", out)
    out_blocks = blocks_of(title, "out_specs", out_specs, out_tree, out_paths)
    scratch_leaves, scratch_tree = flatten(scratch)
    memory = [as_scratch(f"kernel {title}", s) for s in scratch_leaves]
    if params is not None and params.collective_id is not None:
        memory.append(SemaphoreType.BARRIER())  # of `get_barrier_semaphore`
    parameters = parameters_of(body)
    dynamic = [n for n in sizes if not isinstance(n, int)]

    def ready(values: Sequence[Any], rest: Any, tree: Any) -> BoundOp:
        prefetched, inputs = values[:prefetch], values[prefetch:]
        paths = [f"argument {path}" for path in named_paths(parameters[prefetch:], rest)]
        blocks = blocks_of(title, "in_specs", in_specs, tree, paths)
        rows = zip(paths, blocks, map(type_of, inputs), strict=True)
        ins = [tile_of(f"kernel {title}", p, b, t, VMEM) for p, b, t in rows]
        out_rows = zip(out_paths, out_blocks, outs, strict=True)
        results = [tile_of(f"kernel {title}", p, b, t, VMEM) for p, b, t in out_rows]
        launch = Launch(
            name=title,
            grid=tuple([n if isinstance(n, int) else None for n in sizes]),
            names=names,
            parallel=parallel_marks(title, parallel, names),
            prefetch=prefetch,
            ins=tuple(ins),
            outs=tuple(results),
            scratch=tuple(memory),
            aliases=alias_pairs(title, aliases, ins, results),
            params=params or CompilerParams(),
            cost=cost,
            simulation=simulation or PLAIN,
            labels=(
                *[f"argument {path}" for path in named_paths(parameters, tuple(prefetched))],
                *paths,
                *out_paths,
                *_scratch_names(memory, scratch, parameters),
            ),
        )
        types = tuple(map(type_of, prefetched))
        programs = staged_programs(
            body,
            launch,
            types,
            (tree, out_tree, scratch_tree),
            (*blocks, *out_blocks),
            (*paths, *out_paths),
        )
        static = {"body": programs[0], "maps": programs[1], "launch": launch}
        return BoundOp(op_of(launch), static)

    known: dict[tuple[Any, ...], BoundOp] = {}  # by context and types

    @functools.wraps(body)
    @hides_frames
    def launched(*args: Any) -> Any:
        if len(args) < prefetch:
            raise TypeError(
                f"kernel {title}: {prefetch} arguments are prefetched; got {len(args)} arguments."
            )
        first, rest = args[:prefetch], args[prefetch:]
        leaves, tree = flatten(rest)
        values = [value_of_argument(title, x) for x in (*first, *leaves)]
        key = (current().key, tree, *map(type_of, values))
        found = known.get(key)
        if found is None:
            found = ready(values, rest, tree)
            make_room(known, SIGNATURES)
            known[key] = found
        operands = *[cast(n, INT.dtype) for n in dynamic], *values
        is_checked = check and not are_checked.value
        results = _checked(check, found, operands) if is_checked else found(*operands)
        return out_tree.unflatten(results)

    _launches[launched] = known
    return launched


def _scratch_names(memory: Sequence[Any], scratch: Any, parameters: Sequence[str]) -> list[str]:
    """The names of scratch memory: keys, or those of the kernel's last parameters."""
    leaves = leaf_paths(scratch)
    if isinstance(scratch, dict):
        names = [path.strip("[]'\"") for path in leaves]
    else:
        count = len(scratch) if isinstance(scratch, tuple | list) else 1
        known = len(leaves) == count and len(parameters) >= len(leaves)
        names = parameters[len(parameters) - len(leaves) :] if known else []
        names = names or [f"scratch{path}" for path in leaves]
    return [*names, *["the barrier"] * (len(memory) - len(names))]


def _checked(level: Any, bound: BoundOp, operands: Sequence[Any]) -> list[Any]:
    body, maps, launch = bound.params.values()
    if any(isinstance(x, Tracer) for x in operands):
        raise ValueError(
            f"kernel {launch.name}: check={level!r} runs the kernel step by step or several times, "
            "so that it cannot be traced. Check it outside of `jit` and other transforms, or with "
            "the function around it: `kernels.checked(f)`."
        )
    if level == "memory":
        return check_memory(body, maps, launch, [operands])[0]
    return checked_results(body, maps, launch, operands)

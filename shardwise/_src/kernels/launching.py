"""`call`: launches a kernel."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import make_room, register
from shardwise._src.base.context import current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.kernels.blocks import Block, Tile, tile_of
from shardwise._src.kernels.checking.memory_interpreter import check_memory
from shardwise._src.kernels.launch_checks import are_checked
from shardwise._src.kernels.launch_checks import check as checked_results
from shardwise._src.kernels.launch_record import INT, CompilerParams, CostEstimate, Launch
from shardwise._src.kernels.launch_staging import staged_programs
from shardwise._src.kernels.launches import op_of
from shardwise._src.kernels.simulation import Simulation, chosen
from shardwise._src.kernels.spaces import VMEM, SemaphoreType, as_scratch
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.random.core_generator import TAG
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import ExtendedDType, canonicalize, is_integer
from shardwise._src.values.convert import cast, strip_weak_type

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
    who = f"kernel {title}"
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 0:
        raise ValueError(f"{who}: prefetch is a number of arguments; got {short_repr(prefetch)}.")
    if check not in (False, True, "memory"):
        raise ValueError(f"{who}: check is True, False or 'memory'; got {short_repr(check)}.")
    if not isinstance(simulation, Simulation | None):
        raise TypeError(
            f"{who}: simulation is a `Simulation`, or None; got {short_repr(simulation)}."
        )
    if params is not None and params.dimension_semantics is not None:
        raise ValueError(
            f"{who}: dimension_semantics is for `pallas_call`. List the axes whose "
            "programs may run in any order: `parallel=`."
        )
    sizes, names = grid_of(who, grid)
    out_leaves, out_tree = flatten(out)
    outs = [_out_type(who, x) for x in out_leaves]
    scratch_leaves, scratch_tree = flatten(scratch)
    memory = [as_scratch(who, s) for s in scratch_leaves]
    parameters = _parameters_of(body)
    out_names = [f"out{path}" for path in leaf_paths(out)]
    own_names = [*out_names, *_scratch_names(scratch, parameters)]
    if params is not None and params.has_barrier:
        memory.insert(0, SemaphoreType.BARRIER())
        own_names.insert(len(outs), "the barrier")
    dynamic = [n for n in sizes if not isinstance(n, int)]

    def bound(args: Sequence[Any], types: tuple[Any, ...], tree: Any) -> BoundOp:
        """The op for arguments of these types."""
        prefetched, types = types[:prefetch], types[prefetch:]
        labels = *_argument_names(parameters, args, prefetch), *own_names
        blocks = _blocks_of(who, "in_specs", in_specs, tree)
        blocks += _blocks_of(who, "out_specs", out_specs, out_tree)
        rows = zip(labels[prefetch:], blocks, (*types, *outs), strict=False)
        tiles = tuple([tile_of(who, *row, VMEM) for row in rows])
        ins, results = tiles[: len(types)], tiles[len(types) :]
        launch = Launch(
            name=title,
            grid=tuple([n if isinstance(n, int) else None for n in sizes]),
            names=names,
            parallel=_parallel_marks(who, parallel, names),
            prefetch=prefetch,
            ins=ins,
            outs=results,
            scratch=tuple(memory),
            aliases=_alias_pairs(who, aliases, ins, results),
            params=params or CompilerParams(),
            cost=cost,
            simulation=chosen(simulation),
            labels=labels,
        )
        trees = tree, out_tree, scratch_tree
        program, maps, launch = staged_programs(body, launch, prefetched, trees, blocks)
        return BoundOp(op_of(launch), {"body": program, "maps": maps, "launch": launch})

    known: dict[tuple[Any, ...], BoundOp] = {}  # by context and types

    @functools.wraps(body)
    @hides_frames
    def launched(*args: Any) -> Any:
        if len(args) < prefetch:
            raise TypeError(
                f"{who}: {prefetch} arguments are prefetched; got {len(args)} arguments."
            )
        leaves, tree = flatten(args[prefetch:])
        values = [_value_of_argument(who, x) for x in (*args[:prefetch], *leaves)]
        types = tuple(map(type_of, values))
        key = current().key, tree, types
        found = known.get(key)
        if found is None:
            found = bound(args, types, tree)
            make_room(known, SIGNATURES)
            known[key] = found
        operands = *[cast(n, INT.dtype) for n in dynamic], *values
        is_checked = check and not are_checked.value
        results = _checked(check, found, operands) if is_checked else found(*operands)
        return out_tree.unflatten(results)

    _launches[launched] = known
    return launched


def _scratch_names(scratch: Any, parameters: Sequence[str]) -> Sequence[str]:
    """The names of scratch memory: keys, or those of the kernel's last parameters."""
    leaves = leaf_paths(scratch)
    if isinstance(scratch, dict):
        return [path.strip("[]'\"") for path in leaves]
    count = len(scratch) if isinstance(scratch, tuple | list) else 1
    if len(leaves) == count and len(parameters) >= len(leaves):
        return parameters[len(parameters) - len(leaves) :]
    return [f"scratch{path}" for path in leaves]


def _checked(level: Any, op: BoundOp, operands: Sequence[Any]) -> list[Any]:
    body, maps, launch = op.params.values()
    if any(isinstance(x, Tracer) for x in operands):
        raise ValueError(
            f"kernel {launch.name}: check={level!r} runs the kernel step by step or several times, "
            "so that it cannot be traced. Check it outside of `jit` and other transforms, or with "
            "the function around it: `kernels.checked(f)`."
        )
    if level == "memory":
        return check_memory(body, maps, launch, [operands])[0]
    return checked_results(body, maps, launch, operands)


# -- arguments --


def grid_of(who: str, grid: Any) -> tuple[list[Any], tuple[Any, ...]]:
    entries = grid if isinstance(grid, tuple | list) else (grid,)
    sizes, names = [], []
    for entry in entries:
        name = None
        if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            name, entry = entry
        if isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if entry < 0:
                raise ValueError(f"{who}: the grid has a negative size: {short_repr(grid)}.")
            sizes.append(int(entry))
        else:
            sizes.append(_traced_size(who, entry))
        if name is not None and name in names:
            raise ValueError(f"{who}: two axes of the grid have the name {name!r}.")
        names.append(name)
    return sizes, tuple(names)


def _traced_size(who: str, entry: Any) -> Any:
    try:
        x = as_arraylike(entry)
        if not (type_of(x).shape or not is_integer(type_of(x).dtype)):
            return x
    except TypeError:
        pass
    raise TypeError(
        f"{who}: the sizes of a grid are integers, or traced scalars; got {short_repr(entry)}."
    )


def _out_type(who: str, x: Any) -> ArrayType:
    try:
        return array_type(tuple(x.shape), canonicalize(x.dtype))
    except AttributeError:
        raise TypeError(
            f"{who}: out has objects with a shape and a dtype, such as ShapeDtypeStruct; "
            f"got {short_repr(x)}."
        ) from None


def _value_of_argument(who: str, x: Any) -> Any:
    try:
        x = as_arraylike(x)
    except TypeError as error:
        raise TypeError(f"{who}: {error}") from None
    value = x if is_array(x) else eval_trace().new_array(x)
    t = type_of(value)
    if isinstance(t.dtype, ExtendedDType):
        remedy = "and (on CPUs) make the key in the kernel: `random.wrap_key_data(ref[...])`."
        if t.dtype.name == f"key<{TAG}>":
            remedy = "in SMEM, and seed the generator with them: `prng_seed(w[0, 0], w[0, 1])`."
        raise TypeError(
            f"{who}: an argument has the type {t.str_short(True)}, of PRNG keys, "
            f"which kernels cannot load. Pass the bits, `random.key_data(key)`, {remedy}"
        )
    return strip_weak_type(value) if t.weak_type else value


def _parameters_of(body: Callable[..., Any]) -> list[str]:
    """The names of a kernel's positional parameters, as far as they are known."""
    try:
        found = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _argument_names(names: Sequence[str], args: Sequence[Any], prefetch: int) -> list[str]:
    """The path of each leaf, which begins with the name of the kernel's parameter. Prefetched
    arguments are one leaf each."""
    found = []
    for i, argument in enumerate(args):
        name = names[i] if i < len(names) else f"[{i}]"
        paths = [""] if i < prefetch else leaf_paths(argument)
        found += [f"argument {name}{path}" for path in paths]
    return found


def _blocks_of(who: str, what: str, specs: Any, tree: Any) -> list[Block]:
    """A block for each leaf, from a prefix."""
    specs = tuple(specs) if isinstance(specs, list) else specs

    def blocks(spec: Any, part: Any) -> list[Block]:
        if spec is None or isinstance(spec, Block):
            return [spec or Block()] * len(flatten(part)[0])
        children, below = [flatten(x, lambda y, x=x: y is not x)[0] for x in (spec, part)]
        if len(children) != len(below) or (children and children[0] is spec):
            raise ValueError(
                f"{who}: {what} must be a prefix of the pytree of {tree.num_leaves} arrays, "
                f"with a Block at each leaf; got {short_repr(specs)}."
            )
        return [block for row in zip(children, below, strict=True) for block in blocks(*row)]

    return blocks(specs, tree.unflatten(range(tree.num_leaves)))


def _parallel_marks(who: str, axes: Any, names: Sequence[Any]) -> tuple[bool, ...]:
    if not isinstance(axes, Iterable):
        raise TypeError(
            f"{who}: parallel is a list of axes of the grid, by number or name, such as "
            f"(0, 1); got {short_repr(axes)}."
        )
    marks = [False] * len(names)
    for axis in axes:
        at = names.index(axis) if axis in names and axis is not None else axis
        if not isinstance(at, int) or not 0 <= at < len(names):
            raise ValueError(
                f"{who}: parallel has axis {short_repr(axis)}, which the grid of "
                f"{len(names)} axes does not have."
            )
        marks[at] = True
    return tuple(marks)


def _alias_pairs(
    who: str, aliases: Mapping[int, int] | None, ins: Sequence[Tile], outs: Sequence[Tile]
) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    if not isinstance(aliases, Mapping | None):
        raise TypeError(
            f"{who}: aliases is a dict from numbers of arguments to numbers of results, "
            f"such as {{0: 0}}; got {short_repr(aliases)}."
        )
    for i, j in (aliases or {}).items():
        if not all(isinstance(x, int | np.integer) and not isinstance(x, bool) for x in (i, j)):
            raise TypeError(
                f"{who}: aliases has {short_repr(i)}: {short_repr(j)}; expected the number "
                "of an argument, counted after the prefetched ones, and that of a result."
            )
        if not (0 <= i < len(ins) and 0 <= j < len(outs)):
            raise ValueError(
                f"{who}: aliases has {i}: {j}; there are {len(ins)} arguments and "
                f"{len(outs)} results."
            )
        a, b = ins[i].type, outs[j].type
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"{who}: argument {i}, {a.str_short(True)}, and result {j}, "
                f"{b.str_short(True)}, cannot share memory: they must have one shape and dtype."
            )
        if j in [out for _, out in found]:
            raise ValueError(f"{who}: result {j} is aliased with two arguments.")
        found.append((i, j))
    return tuple(found)

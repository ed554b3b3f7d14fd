"""`call`: launches a kernel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.core.program import Program
from shardwise._src.kernels.blocks import Block, Tile, tile_of
from shardwise._src.kernels.launch_checks import check as checked_results
from shardwise._src.kernels.launch_record import INT, Launch
from shardwise._src.kernels.launches import kernel_call
from shardwise._src.kernels.program_frames import FRAME, Frame
from shardwise._src.kernels.spaces import SMEM, VMEM, Scratch, Space
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.refs.refs import Ref, value_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import stage
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize, is_integer
from shardwise._src.values.convert import cast


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
    check: bool = False,
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
      check: whether to check each launch: that blocks are inside of their arrays, that each block
        of a result is written, by programs that do not conflict, and that the results depend
        neither on memory that was not written nor on the order of parallel programs.

    Returns:
      A function of the arguments, which returns arrays like `out`.

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
    sizes, names = _grid(title, grid)
    out_leaves, out_tree = flatten(out)
    outs = [_out_type(title, x) for x in out_leaves]
    out_paths = _paths("out", out)
    out_blocks = _blocks(title, "out_specs", out_specs, out_tree, out_paths)
    scratch_leaves, scratch_tree = flatten(scratch)
    for s in scratch_leaves:
        if not isinstance(s, Scratch):
            raise TypeError(
                f"kernel {title}: scratch memory is made by a memory space, such as "
                f"VMEM((8, 128), 'float32'); got {short_repr(s)}."
            )

    parameters = _parameters(body)

    @functools.wraps(body)
    @hides_frames
    def launched(*args: Any) -> Any:
        if len(args) < prefetch:
            raise TypeError(
                f"kernel {title}: {prefetch} arguments are prefetched; got {len(args)} arguments."
            )
        first, rest = args[:prefetch], args[prefetch:]
        leaves, tree = flatten(rest)
        values = [_value(title, x) for x in (*first, *leaves)]
        prefetched, inputs = values[:prefetch], values[prefetch:]
        paths = [f"argument {path}" for path in _named_paths(parameters[prefetch:], rest)]
        blocks = _blocks(title, "in_specs", in_specs, tree, paths)
        rows = zip(paths, blocks, map(type_of, inputs), strict=True)
        ins = [tile_of(f"kernel {title}", p, b, t, VMEM) for p, b, t in rows]
        out_rows = zip(out_paths, out_blocks, outs, strict=True)
        results = [tile_of(f"kernel {title}", p, b, t, VMEM) for p, b, t in out_rows]
        launch = Launch(
            name=title,
            grid=tuple([n if isinstance(n, int) else None for n in sizes]),
            names=names,
            parallel=_parallel(title, parallel, names),
            prefetch=prefetch,
            ins=tuple(ins),
            outs=tuple(results),
            scratch=tuple(scratch_leaves),
            aliases=_aliases(title, aliases, ins, results),
        )
        dynamic = [cast(n, INT.dtype) for n in sizes if not isinstance(n, int)]
        types = tuple(map(type_of, prefetched))
        trees = tree, out_tree, scratch_tree
        program = _staged_body(title, body, launch, types, trees)
        maps = tuple(
            [
                _staged_index(title, what, b, tile, len(sizes), types)
                for what, b, tile in zip(
                    (*paths, *out_paths), (*blocks, *out_blocks), (*ins, *results), strict=True
                )
            ]
        )
        operands = *dynamic, *prefetched, *inputs
        if check:
            found = _checked(program, maps, launch, operands, (*paths, *out_paths))
        else:
            found = kernel_call(*operands, body=program, maps=maps, launch=launch)
        return out_tree.unflatten(found)

    return launched


def _checked(
    body: Program, maps: Any, launch: Launch, operands: Sequence[Any], names: Sequence[str]
) -> list[Any]:
    if any(isinstance(x, Tracer) for x in operands):
        raise ValueError(
            f"kernel {launch.name}: check=True runs the kernel several times and compares the "
            "results, so that it cannot be traced. Check it outside of `jit` and other transforms."
        )
    return checked_results(body, maps, launch, operands, names)


# -- arguments --


def _grid(who: str, grid: Any) -> tuple[list[Any], tuple[Any, ...]]:
    entries = grid if isinstance(grid, tuple | list) else (grid,)
    sizes, names = [], []
    for entry in entries:
        name = None
        if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            name, entry = entry
        if isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if entry < 0:
                raise ValueError(f"kernel {who}: the grid has a negative size: {short_repr(grid)}.")
            sizes.append(int(entry))
        else:
            sizes.append(_traced_size(who, entry))
        if name is not None and name in names:
            raise ValueError(f"kernel {who}: two axes of the grid have the name {name!r}.")
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
        f"kernel {who}: the sizes of a grid are integers, or traced scalars; got "
        f"{short_repr(entry)}."
    )


def _out_type(who: str, x: Any) -> ArrayType:
    try:
        return array_type(tuple(x.shape), canonicalize(x.dtype))
    except AttributeError:
        raise TypeError(
            f"kernel {who}: out has objects with a shape and a dtype, such as ShapeDtypeStruct; "
            f"got {short_repr(x)}."
        ) from None


def _value(who: str, x: Any) -> Any:
    try:
        x = as_arraylike(x)
    except TypeError as error:
        raise TypeError(f"kernel {who}: {error}") from None
    value = x if is_array(x) else eval_trace().new_array(x)
    t = type_of(value)
    return cast(value, t.dtype, False) if t.weak_type else value


def _parameters(body: Callable[..., Any]) -> list[str]:
    """The names of a kernel's positional parameters, as far as they are known."""
    try:
        found = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _named_paths(names: Sequence[str], arguments: tuple[Any, ...]) -> list[str]:
    """The path of each leaf, which begins with the name of the kernel's parameter."""
    found = []
    for i, argument in enumerate(arguments):
        name = names[i] if i < len(names) else f"[{i}]"
        found += [f"{name}{path}" for path in leaf_paths(argument)]
    return found


def _paths(root: str, tree: Any) -> list[str]:
    return [f"{root}{p}" for p in leaf_paths(tree)]


def _blocks(who: str, what: str, specs: Any, tree: Any, paths: Sequence[str]) -> list[Block]:
    """A block for each leaf, from a prefix."""
    if specs is None:
        return [Block()] * len(paths)
    if isinstance(specs, Block):
        return [specs] * len(paths)
    if isinstance(specs, list):
        specs = tuple(specs)
    whole = tree.unflatten(range(len(paths)))
    found: list[Block] = []

    def walk(spec: Any, part: Any) -> None:
        if spec is None or isinstance(spec, Block):
            found.extend([spec or Block()] * len(flatten(part)[0]))
            return
        children = flatten(spec, lambda x: x is not spec)
        below = flatten(part, lambda x: x is not part)
        if len(children[0]) != len(below[0]) or not children[0]:
            raise ValueError(
                f"kernel {who}: {what} must be a prefix of the pytree of {len(paths)} arrays, "
                f"with a Block at each leaf; got {short_repr(specs)}."
            )
        for a, b in zip(children[0], below[0], strict=True):
            walk(a, b)

    walk(specs, whole)
    return found


def _parallel(who: str, axes: Any, names: Sequence[Any]) -> tuple[bool, ...]:
    marks = [False] * len(names)
    for axis in axes:
        at = names.index(axis) if axis in names and axis is not None else axis
        if not isinstance(at, int) or not 0 <= at < len(names):
            raise ValueError(
                f"kernel {who}: parallel has axis {short_repr(axis)}, which the grid of "
                f"{len(names)} axes does not have."
            )
        marks[at] = True
    return tuple(marks)


def _aliases(
    who: str, aliases: Mapping[int, int] | None, ins: Sequence[Tile], outs: Sequence[Tile]
) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for i, j in (aliases or {}).items():
        if not (0 <= i < len(ins) and 0 <= j < len(outs)):
            raise ValueError(
                f"kernel {who}: aliases has {i}: {j}; there are {len(ins)} arguments and "
                f"{len(outs)} results."
            )
        a, b = ins[i].type, outs[j].type
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"kernel {who}: argument {i}, {a.str_short(True)}, and result {j}, "
                f"{b.str_short(True)}, cannot share memory: they must have one shape and dtype."
            )
        if j in [out for _, out in found]:
            raise ValueError(f"kernel {who}: result {j} is aliased with two arguments.")
        found.append((i, j))
    return tuple(found)


# -- staging --


def _staged_body(
    title: str,
    body: Callable[..., None],
    launch: Launch,
    prefetched: Sequence[ArrayType],
    trees: tuple[Any, Any, Any],
) -> Program:
    tree, out_tree, scratch_tree = trees
    axes = len(launch.grid)
    types = [
        *[INT] * (axes + launch.dynamic),
        *prefetched,
        *[t.ref_type for t in launch.ins],
        *[t.ref_type for t in launch.outs],
        *[s.type for s in launch.scratch],
    ]

    def flat(*values: Any) -> list[Any]:
        rest = iter(values)

        def take(count: int) -> list[Any]:
            return [next(rest) for _ in range(count)]

        def refs(spaces: Sequence[Space]) -> list[Ref]:
            return [
                Ref(value, space) for value, space in zip(take(len(spaces)), spaces, strict=True)
            ]

        ids, sizes = take(axes), iter(take(launch.dynamic))
        grid = [next(sizes) if n is None else n for n in launch.grid]
        first = refs([SMEM.readonly] * launch.prefetch)
        ins = refs([t.space.readonly for t in launch.ins])
        outs = refs([t.space for t in launch.outs])
        scratch = refs([s.space for s in launch.scratch])
        token = FRAME.set(Frame(title, ids, grid, launch.names))
        try:
            more = scratch_tree.unflatten(scratch)
            named = more if isinstance(more, dict) else {}
            listed = () if named else more if isinstance(more, tuple | list) else (more,)
            result = body(
                *first, *tree.unflatten(ins), *_listed(out_tree.unflatten(outs)), *listed, **named
            )
        finally:
            FRAME.reset(token)
        if result is not None:
            raise TypeError(
                f"kernel {title} returned {short_repr(result)}. A kernel writes its results to "
                "refs, and returns None."
            )
        return [value_of(r) for r in (*outs, *scratch)]

    program, captured = stage(flat, types, transform="kernels.call", name=title)
    _reject_captured(title, program, captured)
    return program


def _listed(out: Any) -> Sequence[Any]:
    """The results as arguments: a tuple or list is several."""
    return out if isinstance(out, tuple | list) else (out,)


def _reject_captured(title: str, program: Program, captured: Sequence[Any]) -> None:
    found = [*captured, *[x for x in program.consts if np.ndim(x)]]
    if found:
        types = ", ".join(type_of(x).str_short(True) for x in found)
        raise ValueError(
            f"kernel {title} uses arrays from outside: {types}. Pass them as arguments, with "
            "blocks of their own."
        )


def _staged_index(
    title: str, what: str, block: Block, tile: Tile, axes: int, prefetched: Sequence[ArrayType]
) -> Program:
    rank = len(tile.sizes)

    def flat(*values: Any) -> list[Any]:
        if block.index is None:
            return [np.int32(0)] * rank
        refs = [Ref(x, SMEM.readonly) for x in values[axes:]]
        found = block.index(*values[:axes], *refs)
        found = found if isinstance(found, tuple | list) else (found,)
        if len(found) != rank:
            raise ValueError(
                f"kernel {title}: the index of the block of {what} has {len(found)} entries; "
                f"expected {rank}, one for each dimension of {tile.type.str_short(True)}."
            )
        entries = [as_arraylike(x) for x in found]
        for x in entries:
            t = type_of(x)
            if t.shape or not is_integer(t.dtype):
                raise TypeError(
                    f"kernel {title}: the index of the block of {what} has an entry of type "
                    f"{t.str_short(True)}; expected integers."
                )
        return [cast(x, INT.dtype, False) for x in entries]

    program, captured = stage(
        flat, [INT] * axes + list(prefetched), transform="kernels.call", name="index"
    )
    if captured or any(np.ndim(x) for x in program.consts):
        raise ValueError(
            f"kernel {title}: the index of the block of {what} uses arrays from outside. Pass "
            "them as the first arguments, and their number as `prefetch`."
        )
    return program

"""`Compiled`, the last stage of a jitted function: it runs on arguments of exactly its types."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.float0_partition import apart
from shardwise._src.arguments.shape_dtype_struct import shape_of
from shardwise._src.arrays.array import Array
from shardwise._src.base.caches import make_room
from shardwise._src.base.context import CURRENT
from shardwise._src.jit.costs import with_stated_costs
from shardwise._src.jit.staging import SCALARS, is_flat, kinds_of
from shardwise._src.lowering.layouts_and_memory import place_in
from shardwise._src.messages.tree_paths import tree_difference, tree_text
from shardwise._src.running.eager import EAGER
from shardwise._src.running.executable import Executable
from shardwise._src.running.nan_checks import watched, watching
from shardwise._src.runtime.forks import closed_by_fork
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.pytree import flatten, flatten_quickly, refund
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.layout import Format, Layout

CALLS = 256  # signatures of arguments whose checks are remembered, for each program


class OfTraced:
    """The arguments and results of the later stages, delegated to `stages.Traced`."""

    __slots__ = ()
    traced: Any

    in_tree = property(lambda self: self.traced.in_tree)
    out_tree = property(lambda self: self.traced.out_tree)
    in_avals = property(lambda self: self.traced.in_avals)
    args_info = property(lambda self: self.traced.args_info)
    donate_argnums = property(lambda self: self.traced.donated)

    @property
    def out_info(self) -> Any:
        """The types of the results, in their pytree."""
        return self.traced.out_info


def check_tree(what: str, wanted: Any, given: Any) -> None:
    """Raises TypeError, with the differences, unless the pytrees of (args, kwargs) are equal."""
    if wanted == given:
        return
    rows = zip(("args", "kwargs"), wanted.children(), given.children(), strict=True)
    found = [tree_difference("the program", a, "the call", b, r) for r, a, b in rows if a != b]
    raise TypeError(
        f"{what} takes arguments with the pytree structure {tree_text(wanted)}; got "
        f"{tree_text(given)}: {'; '.join(found)}."
    )


def _lines(rows: Sequence[str], hint: str) -> str:
    """One problem as a sentence, several as a list; then how to fix it."""
    if len(rows) == 1:
        return f"{rows[0]}. {hint}"
    return "\n  ".join([f"{len(rows)} arguments do not match:", *rows]) + f"\n{hint}"


def _same_place(x: Array, target: Any) -> bool:
    here = x.sharding
    return here is target or here.is_equivalent_to(target, x.ndim)


def _format(layout: Any, sharding: Any, t: ArrayType) -> Format:
    return Format(layout or Layout(range(t.ndim)), sharding)


def _putting(
    run: Callable[[Sequence[Any]], Any], places: Sequence[int]
) -> Callable[[Sequence[Any]], Any]:
    """`run`, with the values at these places as arrays."""

    def run_with_arrays(leaves: Sequence[Any]) -> Any:
        given = list(leaves)
        for i in places:
            given[i] = EAGER.array(given[i])
        return run(given)

    return run_with_arrays


@dataclasses.dataclass(frozen=True, repr=False, eq=False, slots=True)
class Compiled(OfTraced):
    """A compiled program. Callable with arguments of exactly the types it was compiled for.

    A call checks them; `runner` does not, and is for callers that look up programs by types.

    _calls: runners of calls that passed the checks, by key of the context and kinds of arguments
      (`kinds_of`); also by pytree, unless all arguments are single arrays (`_is_flat`).
    _arrays_only: whether all of these calls were of arrays.
    """

    traced: Any
    executable: Executable
    _calls: dict[tuple, Callable[[Sequence[Any]], Any]] = dataclasses.field(default_factory=dict)
    _is_flat: bool = dataclasses.field(init=False)
    _arrays_only: bool = dataclasses.field(init=False, default=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_is_flat", is_flat(self.traced.in_tree))

    def runner(self) -> Callable[[Sequence[Any]], Any]:
        """The function that runs it on all arguments, as arrays of exactly its signatures."""
        run, kept = self.executable.runner(), self.traced.kept
        if len(kept) == len(self.traced.sigs):
            return run
        return lambda args: run([args[i] for i in kept])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ctx, given = CURRENT.get(), args
        try:
            if self._is_flat and not kwargs:
                kinds = [a._sig for a in args] if self._arrays_only else kinds_of(args)
                run = self._calls[ctx.key, *kinds]
            else:
                given, tree = flatten_quickly((args, kwargs))
                kinds = [a._sig for a in given] if self._arrays_only else kinds_of(given)
                run = self._calls[ctx.key, tree, *kinds]
        except Exception as error:  # not known yet, or not an array
            refund((args, kwargs), error)
        else:
            return run(given)
        self.executable.check_allowed()
        return self.traced.through(self._run, args, kwargs)

    def _run(self, args: tuple, kwargs: dict) -> Any:
        leaves, tree = apart(*flatten((args, kwargs)))
        check_tree(self._what, self.in_tree, tree)
        arrays = [self._array(x, i) for i, x in enumerate(leaves)]
        self._check_types(arrays)
        exe, used = self.executable, self.traced.pick(arrays)
        self._check_places(used)
        rows = zip(used, exe.in_shardings, exe.in_layouts, strict=True)
        placed = [self._placed(*row) for row in rows]
        moved = [x is not y for x, y in zip(used, placed, strict=True)]
        if not self.traced.layers and (run := self._short(leaves, moved)) is not None:
            trees = () if self._is_flat else (tree,)
            make_room(self._calls, CALLS)
            self._calls[CURRENT.get().key, *trees, *kinds_of(leaves)] = run
            return run(leaves)
        run = self.executable
        if watching():
            run = watched(run.program, run, eager=False)
        return self.out_tree.unflatten(run(placed))

    def _short(
        self, leaves: Sequence[Any], moved: Sequence[bool]
    ) -> Callable[[Sequence[Any]], Any] | None:
        """The function that runs calls like this one, which passed the checks, without them. None
        if it would have to move arrays, or if there are values whose kinds do not say enough.

        moved: for each argument of the executable, whether the call has moved it.
        """
        run, places = self.runner(), {i: at for at, i in enumerate(self.traced.kept)}
        itself = {i for i, _ in self.executable.moves}  # that it moves or puts on devices itself
        put: list[int] = []
        for i, x in enumerate(leaves):
            at = places.get(i)
            if x.__class__ is Array:
                if at is not None and moved[at]:
                    return None
            elif not (x.__class__ is np.ndarray or isinstance(x, SCALARS)):
                return None
            elif at is not None and at not in itself:
                if moved[at]:
                    return None
                put.append(i)
        if not all([x.__class__ is Array for x in leaves]):
            object.__setattr__(self, "_arrays_only", False)
        return _putting(run, put) if put else run

    @property
    def _what(self) -> str:
        return f"compiled {self.traced.program.name}"

    def _array(self, x: Any, i: int) -> Array:
        if x.__class__ is Array:
            return x
        if isinstance(x, Tracer):
            raise TypeError(
                f"{self._what}: {self.traced.names[i]} is a traced value, but a compiled program "
                "runs on arrays only and cannot be transformed. Call the jitted function instead."
            )
        try:
            return EAGER.array(x)
        except TypeError as error:
            raise TypeError(f"{self._what}: {self.traced.names[i]}: {error}") from None

    def _check_types(self, arrays: list[Array]) -> None:
        rows = [
            f"{name} must be of type {t.str_short(True)}; got {a.aval.str_short(True)}"
            for name, a, t in zip(
                self.traced.names, arrays, self.traced.program.in_types, strict=True
            )
            if (a.shape, a.dtype) != (t.shape, t.dtype)
        ]
        if rows:
            raise TypeError(
                f"{self._what}: "
                + _lines(
                    rows,
                    "A compiled program runs on arguments of exactly its types: convert "
                    "them, or call the jitted function, which compiles for others.",
                )
            )

    def _check_places(self, used: Sequence[Array]) -> None:
        """Raises if a committed argument is not where the program requires it."""
        exe = self.executable
        rows = [
            f"{name} of type {x.aval.str_short(True)} is on {x.sharding}, but the program was "
            f"compiled for {target}"
            for name, x, target in zip(exe.names, used, exe.in_shardings, strict=True)
            if x.committed and target is not None and not _same_place(x, target)
        ]
        if rows:
            hint = "Use `device_put` to bring it there."
            raise ValueError(f"{self._what}: {_lines(rows, hint)}")

    def _placed(self, x: Array, target: Any, layout: Any) -> Array:
        place = place_in(layout, x._sig, target)
        return x if place is None else self.executable.moved([x], ((0, place),))[0]

    call = __call__

    @property
    def out_info(self) -> Any:
        """The types and formats of the results, in their pytree."""
        sigs = self.executable.out_sigs
        return self.out_tree.unflatten([shape_of(sig) for sig in sigs])

    def runtime_executable(self) -> Any:
        """The runtime's own object."""
        return self.executable.module.raw

    def compiler_ir(self) -> list[Any]:
        """The runtime's optimized modules; `as_text` has them as text."""
        return self.runtime_executable().hlo_modules()

    @property
    def input_shardings(self) -> Any:
        """Shardings of the arguments, as (positional, named); None for unused ones."""
        return self.in_tree.unflatten(self.traced.spread(self.executable.in_shardings))

    @property
    def output_shardings(self) -> Any:
        return self.out_tree.unflatten([s.sharding for s in self.executable.out_sigs])

    @property
    def input_formats(self) -> Any:
        """Formats of the arguments, like `input_shardings`: for use with `device_put`."""
        exe = self.executable
        rows = zip(exe.in_layouts, exe.in_shardings, exe.program.in_types, strict=True)
        return self.in_tree.unflatten(self.traced.spread([_format(*row) for row in rows]))

    @property
    def output_formats(self) -> Any:
        sigs = self.executable.out_sigs
        return self.out_tree.unflatten([_format(s.layout, s.sharding, s.type) for s in sigs])

    def as_text(self) -> str:
        """The compiled module, in HLO."""
        return self.executable.module.hlo_text()

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate: flops, bytes accessed and so on, per device."""
        module = self.executable.module
        platform = platform_of(module.devices[0])
        return with_stated_costs(module.cost(), self.executable.program, platform)

    def memory_analysis(self) -> Any:
        """Sizes in bytes per device: arguments, results, temporaries, aliased."""
        return self.executable.module.memory()

    def serialize(self) -> bytes:
        """The machine code in the runtime's own format, without types and shardings.

        `shardwise.experimental.serialize_executable` stores and loads the whole program.
        """
        return self.executable.module.serialize()


closed_by_fork(Compiled, "__call__")

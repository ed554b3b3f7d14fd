"""Executables: a program compiled for signatures, ready to run on arrays of exactly those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, NoReturn, TypeAlias

from shardwise._src.arrays.array import Array, DeletedBuffer, new_array, wrap
from shardwise._src.arrays.out_of_memory import is_exhausted
from shardwise._src.arrays.signature import Signature
from shardwise._src.base.caches import cached
from shardwise._src.base.config import debug_key_reuse, no_execution
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.running.key_reuse import has_keys, key_checked
from shardwise._src.running.nan_checks import watched, watching
from shardwise._src.running.program_out_of_memory import program_exhausted
from shardwise._src.runtime import buffers
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.runtime.compiler.callback_targets import CallbackError
from shardwise._src.runtime.compiler.modules import CompiledModule
from shardwise._src.runtime.processes import explained
from shardwise._src.runtime.target_machines import is_compile_only, is_elsewhere, not_attached
from shardwise._src.transfers.between_processes import handle
from shardwise._src.transfers.transfer import SCALARS, into, move, moved_scalar
from shardwise._src.transfers.transfer_guards import disallowed, is_disallowed
from shardwise._src.types.layout import Format

_Puts: TypeAlias = Sequence[Callable[[Any], Any] | None] | None


@cached(256)
def _donated(name: str) -> DeletedBuffer:
    """The state of arguments donated to a program of this name."""
    return DeletedBuffer(
        f"was donated to {name}",
        f"Use what {name} returned; to keep the array as well, pass a copy of it, `x.copy()`, or "
        "leave it out of `donate_argnums` and `donate_argnames`.",
    )


class Executable(NamedTuple):
    """A loaded module with everything a call needs, precomputed.

    program:  the compiled program; text: its module in StableHLO.
    names:    names of the arguments, for messages.
    in_shardings, in_layouts: of each argument, as the module takes it.
    moves:    (position, target sharding) of arguments to transfer before each call.
    hidden:   raw buffers of the constants, the first arguments.
    donated:  positions of the arguments whose memory the program reuses.
    unfit:    positions of donated arguments that no result could use.
    out_sigs: signatures of the results; `handlers` make each of them from a raw buffer.
    out_tree: of the results; None if the result is the only array.
    eager:    whether it is an eager op or fused function.
    """

    module: CompiledModule
    program: Program
    text: str
    names: Sequence[str]
    in_shardings: Sequence[Any]
    in_layouts: Sequence[Any]
    moves: tuple[tuple[int, Any], ...]
    hidden: list[Any]
    donated: tuple[int, ...]
    unfit: tuple[int, ...]
    out_sigs: Sequence[Signature]
    handlers: Sequence[Any]
    out_tree: Any
    eager: bool

    def __call__(self, args: Sequence[Any]) -> list[Array]:
        """Runs the program; returns a list of all results."""
        given = args
        if self.moves:
            args = self.moved(args, self.moves)
        inputs = [a._impl for a in args]
        if self.hidden:
            inputs = self.hidden + inputs
        if self.donated:
            shared = buffers.shared(inputs)
            self._check_donated(inputs, shared)
            self._release_views((given, args) if self.moves else (args,), bool(shared))
        try:
            raws = self.module.launch(inputs, self.handlers)
        except Exception as error:
            self.explain(args, error)
        if self.donated:
            self._consume(given, args)
        return [wrap(raw, sig) for raw, sig in zip(raws, self.out_sigs, strict=True)]

    def runner(self) -> Callable[[Sequence[Any]], Any]:
        """The function that runs it on arrays of exactly its signatures, and returns the pytree.

        Caches store this function, so a hit costs one call.
        """
        self.check_allowed()
        if is_elsewhere(self.module.devices):
            return self._without_shards
        run = self._runner()
        if debug_key_reuse.value and has_keys(self.program):
            run = key_checked(self.program, run, self.eager)
        return watched(self.program, run, self.eager) if watching() else run

    def _without_shards(self, args: Sequence[Any]) -> Any:
        """The results in a process that has none of the devices: nothing runs here."""
        results = list(map(handle, self.out_sigs))
        self._consume(args)
        return results[0] if self.out_tree is None else self.out_tree.unflatten(results)

    def check_allowed(self) -> None:
        """Raises if its devices are only described, or if the flag `no_execution` is on, which is
        part of all cache keys."""
        if no_execution.value:
            raise RuntimeError(
                f"{self.program.name} would run, but the flag no_execution is on. "
                "`eval_shape`, `jit(f).trace` and `jit(f).lower` run nothing."
            )
        if is_compile_only(self.module.devices):
            raise not_attached(self.program.name.lstrip("_"), self.module.devices[0])

    def _runner(self) -> Callable[[Sequence[Any]], Any]:
        """A short function if nothing else has to be done than to run the program."""
        tree, moves = self.out_tree, self.moves
        puts = self._puts() if moves else None
        if puts is not None or (self.donated and not moves):
            if tree is None and not self.donated:
                return self._short_runner(puts)
            if tree is None and not moves and not self.hidden and len(self.program.invars) == 1:
                return self._in_place_runner()
            return self._general_runner(puts)
        if self.donated:
            return self._whole
        run = self._short_runner() if tree is None else self._tree_runner()
        moved = self._moved_and_cached
        return (lambda args: run(moved(args, moves))) if moves else run

    def _whole(self, args: Sequence[Any]) -> Any:
        """The pytree of the results, with all checks of donated memory."""
        outs = self(args)
        return outs[0] if self.out_tree is None else self.out_tree.unflatten(outs)

    def _puts(self) -> _Puts:
        """For each argument to be moved, the function that returns its raw buffer there.

        None if moves may do more than to put values on devices of this process.
        """
        targets = dict(self.moves)
        plain = [to.__class__ is not Format and to.is_fully_addressable for to in targets.values()]
        if not all(plain) or not targets.keys().isdisjoint(self.donated):
            return None
        types = self.program.in_types
        return [into(t, targets[i]) if i in targets else None for i, t in enumerate(types)]

    def _short_runner(self, puts: _Puts = None) -> Callable[[Sequence[Any]], Array]:
        launch = self.module.launcher(self.handlers)
        (sig,), new = self.out_sigs, new_array
        hidden = self.hidden
        one = len(self.program.invars) == 1 and not hidden and not puts  # avoids a loop
        moving = [] if puts is None else [(i, put) for i, put in enumerate(puts) if put]
        put_one = moving[0][1] if moving and len(self.program.invars) == 1 else None

        def run(args: Sequence[Any]) -> Array:
            inputs: list[Any]
            try:
                if one:
                    inputs = [args[0]._impl]
                elif put_one is not None:
                    inputs = [put_one(args[0])]
                elif moving:
                    inputs = [a._impl if a.__class__ is Array else None for a in args]
                    for i, put in moving:
                        inputs[i] = put(args[i])
                else:
                    inputs = [a._impl for a in args]
                if hidden:
                    inputs = hidden + inputs
                raws = launch(inputs)
            except Exception as error:
                self.explain(self._moved_again(args) if moving else args, error)
            array = new()
            array._impl = raws[0]
            array._sig = sig
            array._host = None
            return array

        return run

    def _in_place_runner(self) -> Callable[[Sequence[Any]], Array]:
        """For one argument, which is donated, and one result."""
        launch, gone = self.module.launcher(self.handlers), _donated(self.program.name)
        (sig,), mark = self.out_sigs, buffers.MARK

        def run(args: Sequence[Any]) -> Array:
            (given,) = args
            raw = given._impl
            if hasattr(raw, mark):  # its memory may be shared, or have views
                return self(args)[0]
            try:
                raws = launch([raw])
            except Exception as error:
                self.explain(args, error)
            given._impl, given._host = gone, None
            return wrap(raws[0], sig)

        return run

    def _tree_runner(self) -> Callable[[Sequence[Any]], Any]:
        launch, hidden = self.module.launcher(self.handlers), self.hidden
        sigs, new, unflatten = self.out_sigs, new_array, self.out_tree.unflatten

        def run(args: Sequence[Any]) -> Any:
            try:
                inputs = [a._impl for a in args]
                if hidden:
                    inputs = hidden + inputs
                raws = launch(inputs)
            except Exception as error:
                self.explain(args, error)
            for i, sig in enumerate(sigs):  # in place: saves a list
                array = new()
                array._impl = raws[i]
                array._sig = sig
                array._host = None
                raws[i] = array
            return unflatten(raws)

        return run

    def _general_runner(self, puts: _Puts) -> Callable[[Sequence[Any]], Any]:
        """For programs that reuse donated memory, or take values of the host for a pytree.

        puts: see `_puts`.
        """
        launch, hidden = self.module.launcher(self.handlers), self.hidden
        sigs, new, tree = self.out_sigs, new_array, self.out_tree
        donated, gone, marks = self.donated, _donated(self.program.name), repeat(buffers.MARK)
        several = len(self.program.invars) + len(hidden) > 1

        def run(args: Sequence[Any]) -> Any:
            try:
                if puts is None:
                    inputs = [a._impl for a in args]
                else:
                    pairs = zip(args, puts, strict=True)
                    inputs = [a._impl if put is None else put(a) for a, put in pairs]
                if hidden:
                    inputs = hidden + inputs
                shared = donated and (
                    any(map(hasattr, inputs, marks))
                    or (several and len({*map(id, inputs)}) < len(inputs))
                )
                raws = [] if shared else launch(inputs)
            except Exception as error:
                self.explain(args if puts is None else self._moved_again(args), error)
            if shared:
                return self._whole(args)
            for i in donated:
                array = args[i]
                array._impl = gone
                array._host = None
            for i, sig in enumerate(sigs):
                array = new()
                array._impl = raws[i]
                array._sig = sig
                array._host = None
                raws[i] = array
            return raws[0] if tree is None else tree.unflatten(raws)

        return run

    def moved(self, args: Sequence[Any], moves: Sequence[tuple[int, Any]]) -> list[Array]:
        """The arguments, with some transferred to other shardings."""
        out = list(args)
        for position, target in moves:
            try:
                out[position] = move(out[position], target)
            except RuntimeFailure as error:
                raise self._not_moved(position, out[position], target, error) from None
        return out

    def _moved_again(self, args: Sequence[Any]) -> list[Array]:
        """The moved arguments of a launch that failed. Raises the error of a move that fails."""
        try:
            return self.moved(args, self.moves)
        except Exception as error:
            raise error from None

    def _moved_and_cached(self, args: Sequence[Any], moves: Sequence[tuple[int, Any]]) -> list[Any]:
        """`moved` without donated arguments: equal scalars may then be one array."""
        out = list(args)
        for position, target in moves:
            x = out[position]
            is_scalar = x.__class__ in SCALARS
            try:
                out[position] = moved_scalar(x, target) if is_scalar else move(x, target)
            except RuntimeFailure as error:
                raise self._not_moved(position, x, target, error) from None
        return out

    def _not_moved(self, position: int, x: Any, target: Any, error: Exception) -> Exception:
        """The error for an argument that could not be transferred for the program."""
        if not is_disallowed(error):
            return error
        name = f"{self.name_of(position)} of {self.program.name}"
        source = x.sharding if x.__class__ is Array else None
        return disallowed(error, type_of(x), source, target, name)

    def _consume(self, *calls: Sequence[Any]) -> None:
        """Marks the donated arrays as gone, both the originals and their transferred copies."""
        for array in (args[position] for args in calls for position in self.donated):
            self._mark_donated(array)

    def _mark_donated(self, array: Any) -> None:
        if array.__class__ is Array and array._impl.__class__ is not DeletedBuffer:
            gone = _donated(self.program.name)
            raw, array._impl, array._host = array._impl, gone, None
            buffers.delete(raw, gone)

    def _release_views(self, calls: Sequence[Sequence[Any]], shared: bool) -> None:
        """Releases views of the donated memory. shared: whether any arrays share memory."""
        arrays = [args[i] for args in calls for i in self.donated if args[i].__class__ is Array]
        for array in arrays:
            array._host = None
        given = [a for args in calls for a in args if a.__class__ is Array]
        if not shared or not any(a.is_deleted() for a in given):  # otherwise the launch will fail
            raws = [array._impl for array in arrays] if shared else ()
            buffers.drop_views(raws, _donated(self.program.name))

    def _check_donated(self, inputs: Sequence[Any], shared: Sequence[Any]) -> None:
        """Raises if donated memory is passed twice: XLA's own checks may crash."""
        if buffers.are_apart(inputs, shared):
            return
        if any(b.__class__ is DeletedBuffer for b in inputs):
            return  # the launch will fail with the reason
        first: dict[int, int] = {}
        extra = len(self.hidden)
        pairs = [(id(m), k - extra) for k, b in enumerate(inputs) for m in buffers.memories(b)]
        for memory, i in pairs:
            other = first.setdefault(memory, i)
            if other == i or not {i, other} & set(self.donated):
                continue
            is_one = inputs[i + extra] is inputs[other + extra]
            same = "the same array" if is_one else "in the same memory"
            donated = self.name_of(i if i in self.donated else other)
            raise RuntimeError(
                f"{self.program.name}: {self.name_of(other)} and {self.name_of(i)} are {same}, but "
                f"{donated} is donated: its memory will be reused. Pass a copy as one of them, or "
                "do not donate it."
            )

    def name_of(self, position: int) -> str:
        """An argument's name, for messages; if negative, the name of a constant."""
        if position < 0:
            return "an array that it closes over"
        return self.names[position] if position < len(self.names) else f"argument {position}"

    def unused_donations(self) -> list[int]:
        """The donated arguments whose memory no result uses."""
        if not (self.donated or self.unfit):
            return []
        used = self.module.aliased_parameters()
        taken = [i for i in self.donated if i + len(self.hidden) not in used]
        return sorted([*self.unfit, *taken])

    def explain(self, args: Sequence[Array], error: Exception) -> NoReturn:
        """Raises the cause of a failed launch: an array that is gone, or the error itself."""
        if not (self.donated and _has_run(error)):
            self._check_alive(args)
        for i in self.donated:
            if args[i].is_deleted():
                self._mark_donated(args[i])
        if is_exhausted(error):
            sigs, devices = [a._sig for a in args], self.module.devices
            raise program_exhausted(self.program, sigs, self.names, devices, error, "run") from None
        clearer = explained(error)
        if clearer is error:
            raise error
        raise clearer from None

    def _check_alive(self, args: Sequence[Array]) -> None:
        """Raises if an array that the program takes is gone."""
        for a in args:
            if a.is_deleted():
                raise a._gone() from None
        if any(raw.is_deleted() for raw in self.hidden):
            raise RuntimeError(
                f"{self.program.name}: an array that it closes over has been deleted or donated. "
                "Pass the array as an argument."
            ) from None


def _has_run(error: Exception) -> bool:
    """Whether a launch failed after it had taken its arguments, and the memory of donated ones."""
    if isinstance(error, CallbackError):
        return True
    return isinstance(error, RuntimeFailure) and "deleted or donated" not in str(error)

"""Executables: a program compiled for signatures, ready to run on arrays of exactly those."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from shardwise._src.arrays.array import Array, Gone, wrap
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.context import current
from shardwise._src.compiling.compiled import compiled_for
from shardwise._src.core.ordering import ORDERED, sequenced
from shardwise._src.core.program import Program
from shardwise._src.effects.callback import host_functions
from shardwise._src.lowering.module import hoisted_constants, module_and_results
from shardwise._src.lowering.storage import (
    Storage,
    bare,
    order_in,
    order_of,
    place_in,
    result_kinds,
    settled,
    stated_kind,
    storage_of,
)
from shardwise._src.moving.transfer import move
from shardwise._src.ops.inspect import INSPECT
from shardwise._src.running.inspection import report_shardings
from shardwise._src.running.places import (
    check_committed,
    choose_devices,
    concrete_mesh,
    constraint_shardings,
    is_abstract,
    meshes_of,
    order_of_held,
    over_devices,
    place_of,
    result_shardings,
    target_of,
    wanted_by_type,
)
from shardwise._src.running.watch import watched, watching
from shardwise._src.runtime import backend
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.sharding import NamedSharding


class Executable:
    """One compiled program with everything a call needs, worked out beforehand.

    run:     runs it on a sequence of arrays of exactly its signatures; gives the result in its
             tree. Caches hold this function, so that a hit costs one call.
    moves:   (position, target sharding) of arguments to bring elsewhere before each call.
    hidden:  raw buffers of the constants, the first arguments.
    donated: positions of the arguments whose memory the program takes.
    """

    __slots__ = (
        "compiled", "run", "handlers", "out_sigs", "in_shardings", "moves", "hidden", "donated",
        "text", "program", "out_tree", "names", "in_layouts",
        "unfit",
    )

    def __call__(self, args: Sequence[Any]) -> list[Array]:
        """Runs the program; gives a list of all results."""
        given = args
        if self.moves:
            args = self.moved(args, self.moves)
        buffers = [a._impl for a in args]
        if self.hidden:
            buffers = self.hidden + buffers
        if self.donated:
            self._check_donated(buffers)
        try:
            raws = self.compiled.launch(buffers, self.handlers)
        except Exception as error:
            self.explain(args, error)
        if self.donated:
            self._consume(given, args)
        return [wrap(raw, sig) for raw, sig in zip(raws, self.out_sigs, strict=True)]

    def runner(self) -> Callable[[Sequence[Any]], Any]:
        """The function for `run`: a short one where a call needs nothing special."""
        tree = self.out_tree
        compiled = self.compiled
        special = self.moves or self.hidden or self.donated or compiled.window or compiled.calls
        if not special:
            return self._short_runner() if tree is None else self._tree_runner()
        if tree is None:
            return lambda args: self(args)[0]
        return lambda args: tree.unflatten(self(args))

    def _short_runner(self) -> Callable[[Sequence[Any]], Array]:
        execute, handlers = self.compiled.raw.execute_sharded, self.handlers
        (sig,), new, kind = self.out_sigs, object.__new__, Array
        one = len(self.program.arguments) == 1  # without a loop then

        def run(args: Sequence[Any]) -> Array:
            try:
                buffers = [args[0]._impl] if one else [a._impl for a in args]
                raws = execute(buffers).consume_with_handlers(handlers)
            except Exception as error:
                self.explain(args, error)
            array = new(kind)
            array._impl = raws[0]
            array._sig = sig
            array._host = None
            return array

        return run

    def _tree_runner(self) -> Callable[[Sequence[Any]], Any]:
        execute, handlers = self.compiled.raw.execute_sharded, self.handlers
        sigs, new, kind = self.out_sigs, object.__new__, Array
        unflatten = self.out_tree.unflatten

        def run(args: Sequence[Any]) -> Any:
            try:
                raws = execute([a._impl for a in args]).consume_with_handlers(handlers)
            except Exception as error:
                self.explain(args, error)
            for i, sig in enumerate(sigs):  # in place: one list less on the way
                array = new(kind)
                array._impl = raws[i]
                array._sig = sig
                array._host = None
                raws[i] = array
            return unflatten(raws)

        return run

    @staticmethod
    def moved(args: Sequence[Any], moves: Sequence[tuple[int, Any]]) -> list[Array]:
        """The arguments, with some brought to other shardings."""
        out = list(args)
        for position, target in moves:
            out[position] = move(out[position], target)
        return out

    def _consume(self, *calls: Sequence[Any]) -> None:
        """Marks the donated arrays as gone, as they were given and as they were moved."""
        gone = Gone(f"was donated to {self.program.name}")
        for array in (args[position] for args in calls for position in self.donated):
            if array.__class__ is Array and array._impl.__class__ is not Gone:
                raw, array._impl, array._host = array._impl, gone, None
                backend.delete(raw, gone.why)

    def _check_donated(self, buffers: Sequence[Any]) -> None:
        """Raises where donated memory comes in twice: XLA's checks of that may crash."""
        if backend.are_apart(buffers):
            return
        first: dict[int, int] = {}
        extra = len(self.hidden)
        pairs = [(id(m), k - extra) for k, b in enumerate(buffers) for m in backend.memories(b)]
        for memory, i in pairs:
            other = first.setdefault(memory, i)
            if other == i or not {i, other} & set(self.donated):
                continue
            is_one = buffers[i + extra] is buffers[other + extra]
            same = "the same array" if is_one else "on one memory"
            donated = self.name_of(i if i in self.donated else other)
            raise ValueError(
                f"{self.program.name}: {self.name_of(other)} and {self.name_of(i)} are {same}, but "
                f"{donated} is donated: its memory is to be reused. Pass a copy as one of them, or "
                "do not donate it."
            )

    def name_of(self, position: int) -> str:
        """An argument's name, for messages; that of a constant if negative."""
        if position < 0:
            return "an array that it closes over"
        return self.names[position] if position < len(self.names) else f"argument {position}"

    def unused_donations(self) -> list[int]:
        """The donated arguments whose memory no result takes."""
        if not (self.donated or self.unfit):
            return []
        used = self.compiled.aliased_parameters()
        taken = [i for i in self.donated if i + len(self.hidden) not in used]
        return sorted([*self.unfit, *taken])

    def explain(self, args: Sequence[Array], error: Exception) -> NoReturn:
        """Raises what a failed launch was about: an array that is gone, or the error itself."""
        for a in args:
            a._live()
        if any(raw.is_deleted() for raw in self.hidden):
            raise RuntimeError(
                f"{self.program.name}: an array that it closes over has been deleted or donated. "
                "Pass the array as an argument."
            ) from None
        raise error


class Lowering:
    """A program lowered for signatures: the module's text and the plan of its calls."""

    __slots__ = (
        "program", "sigs", "text", "devices", "committed", "meshes", "constants", "held", "targets",
        "outs", "donated", "names", "in_orders", "out_orders", "asked", "kinds",
        "unfit",
    )

    def compile(
        self, *, out_tree: Any = None, quick: bool = False, overrides: tuple = ()
    ) -> Executable:
        """The executable. Without a tree its result is the one array that the program gives."""
        free = tuple(s is None for s in self.outs)
        exe = Executable()
        exe.program, exe.text, exe.names = self.program, self.text, self.names
        eager, quick = quick, quick or _is_single(self.program)
        if "stablehlo.scatter" in self.text:  # it has to be in a fusion
            quick = False
        small = quick and _is_small(self.program)
        called = tuple(host_functions(self.program))
        rest = called, ORDERED in self.program.effects
        exe.compiled = compiled_for(self.text, self.devices, free, quick, small, overrides, *rest)
        exe.in_shardings = self.targets
        orders, skipped = self.in_orders, len(self.constants)
        exe.in_layouts = orders
        if any(orders):
            exe.in_layouts = settled(orders, exe.compiled.parameter_layouts()[skipped:])
        rows = zip(exe.in_layouts, self.sigs, self.targets, strict=True)
        places = [place_in(*row) for row in rows]
        exe.moves = tuple((i, place) for i, place in enumerate(places) if place is not None)
        pairs = zip(self.constants, self.held, strict=True)
        exe.hidden = [move(c, place)._live() for c, place in pairs]
        exe.donated, exe.unfit = self.donated, self.unfit
        asked = self.program.out_types, self.outs
        shardings = result_shardings(exe.compiled, *asked, self.devices, self.meshes)
        pairs = zip(shardings, self.kinds, strict=True)
        shardings = [s if kind is None else s.with_memory_kind(kind) for s, kind in pairs]
        orders = self.out_orders
        if any(orders):
            orders = settled(orders, exe.compiled.output_layouts())
        rows = zip(self.program.out_types, shardings, orders, strict=True)
        exe.out_sigs = [signature(t, s, self.committed, order) for t, s, order in rows]
        exe.handlers = [s.handler for s in exe.out_sigs]
        exe.out_tree = out_tree
        exe.run = exe.runner()
        if watching():
            exe.run = watched(self.program, exe.run, eager)
        if INSPECT in self.program.effects:
            report_shardings(self.program, self._compiled_with)
        return exe

    def located(self) -> str:
        """The text with the lines of the user's program that it comes from."""
        given = self.program, self.devices, self.constants, *self.asked
        return module_and_results(*given, located=True)[0]

    def _compiled_with(self, wider: Program) -> Executable:
        """A program with more results, compiled as this one is."""
        outs = [*self.outs, *[None] * (len(wider.outputs) - len(self.outs))]
        tree = flatten([0] * len(outs))[1]
        given = {"in_shardings": self.targets, "out_shardings": outs}
        return build(wider, self.sigs, out_tree=tree, **given)


def lower(
    program: Program,
    sigs: Sequence[Signature],
    *,
    names: Sequence[str] = (),
    in_shardings: Sequence[Any] | None = None,
    out_shardings: Sequence[Any] | None = None,
    donated: Sequence[int] = (),
) -> Lowering:
    """Lowers a program for arguments of the given signatures.

    names:         of the arguments, for messages.
    in_shardings:  per argument, the sharding or format that it must have; None where it stays as
                   it is.
    out_shardings: per result; None where the partitioner chooses.
    donated:       positions of arguments whose memory the program may take.
    """
    unfit = _unfit(program, donated)
    donated = () if watching() else tuple([i for i in donated if i not in unfit])
    formats = list(in_shardings) if in_shardings is not None else [None] * len(sigs)
    given = list(out_shardings) if out_shardings is not None else [None] * len(program.outputs)
    wanted, outs = [bare(f) for f in formats], [bare(f) for f in given]
    if ORDERED in program.effects:
        program = sequenced(program)
    new = Lowering()
    new.program, new.sigs, new.donated, new.names = program, sigs, donated, names
    new.unfit = unfit
    check_committed(program, sigs, names, formats)
    new.constants = hoisted_constants(program)
    held = [c._sig for c in new.constants if c.__class__ is Array]
    new.devices, new.committed = choose_devices(program, sigs, names, wanted, outs, held)
    shardings = [s.sharding for s in (*sigs, *held)]
    named = [*wanted, *shardings, *outs, *constraint_shardings(program)]
    new.meshes = meshes_of([getattr(s, "mesh", None) for s in named], new.devices)
    for sharding in filter(is_abstract, named):
        concrete_mesh(sharding.mesh, new.meshes)  # raises where there is none
    mesh = new.meshes[0]
    pairs = zip(outs, program.out_types, strict=True)
    new.outs = [over_devices(wanted_by_type(s, t), t, new.devices, new.meshes) for s, t in pairs]
    new.targets = [target_of(s, w, new.devices, mesh) for s, w in zip(sigs, wanted, strict=True)]
    new.held = [place_of(c, new.devices, mesh) for c in new.constants]
    storage = _storage(new, formats, given)
    several, places = len(new.devices) > 1, new.held + new.targets
    new.asked = (
        places if several else [None] * len(places),
        new.outs if several else [None] * len(outs),
        tuple([i in donated for i in range(len(sigs))]),
        storage,
    )
    new.text, chosen = _text_for(new, *new.asked)
    new.outs = chosen if several else new.outs
    return new


def _storage(plan: Lowering, formats: Sequence[Any], given: Sequence[Any]) -> Storage:
    """How all lies in memory, by what is asked for arguments (`formats`) and results (`given`)."""
    rows = zip(formats, plan.sigs, plan.targets, strict=True)
    plan.in_orders = [order_in(*row) for row in rows]
    rows = zip(given, plan.program.out_types, strict=True)
    plan.out_orders = [order_of(*row) for row in rows]
    rows = zip(given, plan.outs, result_kinds(plan.program), strict=True)
    plan.kinds = [kind if bare(f) is None else stated_kind(s) for f, s, kind in rows]
    rows = zip(plan.constants, plan.held, strict=True)
    orders = [order_of_held(*row) for row in rows] + plan.in_orders
    return storage_of(plan.held + plan.targets, orders, plan.kinds, plan.out_orders)


def _text_for(
    plan: Lowering, places: Sequence[Any], outs: Sequence[Any], donated: tuple[bool, ...],
    storage: Storage,
) -> tuple[str, list[Any]]:
    """The module's text and the results' shardings; made once for all meshes of equal shape."""

    def make() -> tuple[str, list[Any]]:
        return module_and_results(
            plan.program, plan.devices, plan.constants, places, outs, donated, storage
        )

    def over(chosen: Sequence[Any]) -> list[Any]:
        pairs = zip(chosen, plan.program.out_types, strict=True)
        return [over_devices(s, t, plan.devices, plan.meshes) for s, t in pairs]

    forms = [_form(s, plan.devices) for s in (*places, *outs)]
    if False in forms or not all(map(is_abstract, constraint_shardings(plan.program))):
        text, chosen = make()
        return text, over(chosen)
    platform, count = plan.devices[0].platform, len(plan.devices)
    key = (module_and_results, current().trace_key, platform, count, *forms, donated, storage)
    kept = plan.program.derived
    if key not in kept:
        text, chosen = make()
        found = [_form(s, plan.devices) for s in chosen]
        if False in found:
            return text, over(chosen)
        kept[key] = text, found
    text, found = kept[key]
    return text, over(found)


def _form(sharding: Any, devices: tuple) -> Any:
    """A sharding as all meshes of its shape have it; False where it is tied to its devices."""
    if sharding is None or is_abstract(sharding):
        return sharding
    if not isinstance(sharding, NamedSharding) or sharding.devices != devices:
        return False
    return NamedSharding(sharding.mesh.abstract_mesh, sharding.spec, sharding.memory_kind)


def _unfit(program: Program, donated: Sequence[int]) -> tuple[int, ...]:
    """The donated arguments that no result is like in shape and dtype: they are left alone."""
    free = Counter((t.shape, t.dtype) for t in program.out_types)
    found = []
    for i in donated:
        t = program.in_types[i]
        free[t.shape, t.dtype] -= 1
        if free[t.shape, t.dtype] < 0:
            found.append(i)
    return tuple(found)


def build(
    program: Program, sigs: Sequence[Signature], *, out_tree: Any = None, quick: bool = False,
    **plan: Any,
) -> Executable:
    """Lowers and compiles; `plan` as for `lower`, the rest as for `Lowering.compile`."""
    return lower(program, sigs, **plan).compile(out_tree=out_tree, quick=quick)


def _is_single(program: Program) -> bool:
    """Whether a program is one op, the least that XLA can be given."""
    equations = program.equations
    return len(equations) == 1 and not equations[0].op.programs


SMALL = 2048  # elements; an unoptimised kernel loses at most a few ns on each


def _is_small(program: Program) -> bool:
    """Whether a program does little work: few elements, and a fixed amount of work for each."""
    if any(v.aval.size > SMALL for v in program.inputs):
        return False
    return all(
        eqn.op.family in ("", "elementwise", "reduction") and eqn.op.name not in _LONG
        and not eqn.op.programs and all(v.aval.size <= SMALL for v in eqn.outputs)
        for eqn in program.equations
    )


_LONG = ("sort", "top_k")  # more work for each element, the more there are

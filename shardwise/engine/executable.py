"""Executables: a program compiled for signatures, ready to run on arrays of exactly those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np

from shardwise.base.context import current
from shardwise.core.program import Program
from shardwise.engine.array import Array, Gone, wrap
from shardwise.engine.compiled import compiled_for
from shardwise.engine.inspection import report_shardings
from shardwise.engine.module import hoisted_constants, module_and_results
from shardwise.engine.signature import Signature, signature
from shardwise.engine.storage import (
    Storage,
    bare,
    order_in,
    order_of,
    place_in,
    settled,
    storage_of,
)
from shardwise.engine.transfer import aligned, default_single, move
from shardwise.ops.inspect import INSPECT
from shardwise.runtime import placement
from shardwise.runtime.backend import memories
from shardwise.runtime.pytree import flatten
from shardwise.types.frozen import listed
from shardwise.types.layout import AutoLayout
from shardwise.types.mesh import AbstractMesh, Mesh
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.sharding import (
    GSPMDSharding,
    NamedSharding,
    SingleDeviceSharding,
    spec_from_tiles,
)
from shardwise.types.tiling import Tiling


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
        if not (self.moves or self.hidden or self.donated or self.compiled.window):
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
        for array in (args[position] for args in calls for position in self.donated):
            if array.__class__ is Array and array._impl.__class__ is not Gone:
                why = f"was donated to {self.program.name}"
                array._end(why, why)

    def _check_donated(self, buffers: Sequence[Any]) -> None:
        """Raises where donated memory comes in twice: XLA's checks of that may crash."""
        places = [[id(m) for m in memories(b)] for b in buffers]
        if len(set(chain.from_iterable(places))) == sum(map(len, places)):
            return
        first: dict[int, int] = {}
        extra = len(self.hidden)
        for j, i in ((j, k - extra) for k, place in enumerate(places) for j in place):
            other = first.setdefault(j, i)
            if other == i or not {i, other} & set(self.donated):
                continue
            same = "the same array" if buffers[i + extra] is buffers[other + extra] else "on one memory"
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
        if not self.donated:
            return []
        used = self.compiled.aliased_parameters()
        return [i for i in self.donated if i + len(self.hidden) not in used]

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
        "outs", "donated", "names", "in_orders", "out_orders",
    )

    def compile(
        self, *, out_tree: Any = None, quick: bool = False, overrides: tuple = ()
    ) -> Executable:
        """The executable. Without a tree its result is the one array that the program gives."""
        free = tuple(s is None for s in self.outs)
        exe = Executable()
        exe.program, exe.text, exe.names = self.program, self.text, self.names
        quick = quick or _is_single(self.program)
        if "stablehlo.scatter" in self.text:  # it has to be in a fusion
            quick = False
        small = quick and _is_small(self.program)
        exe.compiled = compiled_for(self.text, self.devices, free, quick, small, overrides)
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
        exe.donated = self.donated
        shardings = _result_shardings(exe, self.outs, self.devices, self.meshes)
        orders = self.out_orders
        if any(orders):
            orders = settled(orders, exe.compiled.output_layouts())
        rows = zip(self.program.out_types, shardings, orders, strict=True)
        exe.out_sigs = [signature(t, s, self.committed, order) for t, s, order in rows]
        exe.handlers = [s.handler for s in exe.out_sigs]
        exe.out_tree = out_tree
        exe.run = exe.runner()
        if INSPECT in self.program.effects:
            report_shardings(self.program, self._compiled_with)
        return exe

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
    formats = list(in_shardings) if in_shardings is not None else [None] * len(sigs)
    given = list(out_shardings) if out_shardings is not None else [None] * len(program.outputs)
    wanted, outs = [bare(f) for f in formats], [bare(f) for f in given]
    new = Lowering()
    new.program, new.sigs, new.donated, new.names = program, sigs, tuple(donated), names
    _check_committed(program, sigs, names, formats)
    new.constants = hoisted_constants(program)
    held = [c._sig for c in new.constants if c.__class__ is Array]
    new.devices, new.committed = choose_devices(program, sigs, names, wanted, outs, held)
    shardings = [s.sharding for s in (*sigs, *held)]
    named = [*wanted, *shardings, *outs, *constraint_shardings(program)]
    new.meshes = _meshes_of([getattr(s, "mesh", None) for s in named], new.devices)
    for sharding in filter(_is_abstract, named):
        concrete_mesh(sharding.mesh, new.meshes)  # raises where there is none
    mesh = new.meshes[0]
    pairs = zip(outs, program.out_types, strict=True)
    new.outs = [_concrete(_wanted(s, t), t, new.devices, new.meshes) for s, t in pairs]
    new.targets = [_target(s, w, new.devices, mesh) for s, w in zip(sigs, wanted, strict=True)]
    several = len(new.devices) > 1
    new.held = [_place_of(c, new.devices, mesh) for c in new.constants]
    places = new.held + new.targets
    rows = zip(formats, sigs, new.targets, strict=True)
    new.in_orders = [order_in(*row) for row in rows]
    new.out_orders = [order_of(*row) for row in zip(given, program.out_types, strict=True)]
    orders = [_order_of_held(*row) for row in zip(new.constants, new.held, strict=True)]
    storage = storage_of(places, orders + new.in_orders, new.outs, new.out_orders)
    new.text, chosen = _text_for(
        new,
        places if several else [None] * len(places),
        new.outs if several else [None] * len(outs),
        tuple([i in donated for i in range(len(sigs))]),
        storage,
    )
    new.outs = chosen if several else new.outs
    return new


def _text_for(
    plan: Lowering, places: Sequence[Any], outs: Sequence[Any], donated: tuple[bool, ...],
    storage: Storage,
) -> tuple[str, list[Any]]:
    """The module's text and the results' shardings; made once for all meshes of equal shape."""

    def make() -> tuple[str, list[Any]]:
        return module_and_results(
            plan.program, plan.devices, plan.constants, places, outs, donated, storage
        )

    forms = [_form(s, plan.devices) for s in (*places, *outs)]
    if False in forms or not all(map(_is_abstract, constraint_shardings(plan.program))):
        return make()
    platform, count = plan.devices[0].platform, len(plan.devices)
    key = (module_and_results, current().trace_key, platform, count, *forms, donated, storage)
    kept = plan.program.derived
    if key not in kept:
        text, chosen = make()
        found = [_form(s, plan.devices) for s in chosen]
        if False in found:
            return text, chosen
        kept[key] = text, found
    text, found = kept[key]
    return text, [_concrete(s, None, plan.devices, plan.meshes) for s in found]


def _form(sharding: Any, devices: tuple) -> Any:
    """A sharding as all meshes of its shape have it; False where it is tied to its devices."""
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding) or sharding.devices != devices:
        return False
    return NamedSharding(sharding.mesh.abstract_mesh, sharding.spec, sharding.memory_kind)


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


def _check_committed(
    program: Program, sigs: Sequence[Signature], names: Sequence[str], wanted: Sequence[Any]
) -> None:
    """Raises where an argument was placed otherwise than `in_shardings` asks for."""
    for i, (sig, asked) in enumerate(zip(sigs, wanted, strict=True)):
        want = bare(asked)
        if asked is None or not sig.committed or asked is sig.sharding:
            continue
        order = order_in(asked, sig, sig.sharding)
        if order is not sig.layout and not isinstance(order, AutoLayout):
            name = names[i] if i < len(names) else f"argument {i}"
            raise ValueError(
                f"{program.name}: {name} of type {sig.type.str_short(True)} is in the "
                f"{_layout_text(sig.layout)}, but in_shardings asks for the {_layout_text(order)}. "
                f"Use `device_put` with a Format to change it, or None in in_shardings to take it "
                "as it is."
            )
        if want is None or want is sig.sharding:
            continue
        if sig.sharding.device_set != want.device_set or not _alike(sig, want):
            name = names[i] if i < len(names) else f"argument {i}"
            raise ValueError(
                f"{program.name}: {name} of type {sig.type.str_short(True)} is on {sig.sharding}, "
                f"but in_shardings asks for {want}. Use `device_put` to move it, or None in "
                "in_shardings to take it as it is."
            )


def _layout_text(layout: Any) -> str:
    return "default layout" if layout is None else f"layout {layout}"


def _alike(sig: Signature, sharding: Any) -> bool:
    """Whether a sharding puts the same data on each device as the signature's does."""
    ndim = sig.physical.ndim
    return aligned(sharding, sig.devices, ndim).is_equivalent_to(sig.sharding, ndim)


def _wanted(asked: Any, t: Any) -> Any:
    """What a result's sharding is to be: as asked, or what its type says (Explicit axes)."""
    if asked is not None or t.mesh is None or not t.mesh.are_all_axes_explicit:
        return asked
    return t.sharding


def _concrete(sharding: Any, t: Any, devices: tuple, meshes: Sequence[Any]) -> Any:
    """A result's sharding, over the program's devices."""
    if sharding is None:
        return None
    if _is_abstract(sharding):
        mesh = concrete_mesh(sharding.mesh, meshes)
        return NamedSharding(mesh, sharding.spec, sharding.memory_kind)
    return sharding if set(sharding.devices) != set(devices) else aligned(sharding, devices, t.ndim)


def concrete_mesh(abstract: AbstractMesh, meshes: Sequence[Any]) -> Mesh:
    """The mesh among those of a program that an abstract one stands for."""
    alike = [m for m in meshes if m is not None and m.shape_tuple == abstract.shape_tuple]
    if not alike:
        met = [str(m) for m in meshes if m is not None]
        shown = listed(met) if met else "no mesh"
        raise ValueError(
            f"a sharding over {abstract} was asked for, but the program runs on {shown}. Pass an "
            "argument that lives on a mesh of this shape, or enter one with `set_mesh`."
        )
    exact = [m for m in alike if m.abstract_mesh is abstract]
    return exact[0] if exact else alike[0].update(axis_types=abstract.axis_types)


def _place_of(constant: Any, devices: tuple, mesh: Any) -> Any:
    """Where a constant goes: it stays, where it is on the program's devices."""
    if constant.__class__ is Array and constant._sig.devices == devices:
        return constant._sig.sharding
    return _replicated(devices, mesh)


def _order_of_held(constant: Any, place: Any) -> Any:
    """The layout of a constant at its place."""
    return order_in(None, constant._sig, place) if constant.__class__ is Array else None


def _target(sig: Signature, wanted: Any, devices: tuple, mesh: Any) -> Any:
    if wanted is not None:
        return aligned(wanted, devices, sig.physical.ndim)
    if sig.devices == devices:
        return sig.sharding
    if len(devices) > 1 and set(sig.devices) == set(devices):  # a mesh in another order
        return aligned(sig.sharding, devices, sig.physical.ndim)
    return _replicated(devices, mesh)


def _replicated(devices: tuple, mesh: Any) -> Any:
    if mesh is None:
        return SingleDeviceSharding(devices[0])
    return NamedSharding(mesh, PartitionSpec())


def choose_devices(
    program: Program, sigs: Sequence[Signature], names: Sequence[str], wanted: Sequence[Any],
    outs: Sequence[Any], held: Sequence[Signature] = (),
) -> tuple[tuple, bool]:
    """The devices that a program runs on, and whether its results are committed to them."""
    found: tuple | None = None
    by = ""
    given = [*zip(sigs, wanted, strict=True), *((sig, None) for sig in held)]
    for i, (sig, want) in enumerate(given):
        here = want.devices if want is not None else sig.devices if sig.committed else None
        if here is None:
            continue
        name = "a closed-over array" if i >= len(sigs) else f"argument {i}"
        name = names[i] if i < len(names) else name
        shown = f"{name} of type {sig.type.str_short(True)}"
        if found is None:
            found, by = here, shown
        elif here != found and set(here) != set(found):
            raise ValueError(_mismatch(program, by, found, shown, here))
    asked = [s for s in [*outs, *constraint_shardings(program)] if s is not None]
    for sharding in asked:
        if _is_abstract(sharding):
            continue
        if found is None:
            found, by = sharding.devices, f"a value within ({sharding})"
        elif set(sharding.devices) != set(found):
            raise ValueError(_elsewhere(program, by, found, sharding))
    scope = current().mesh
    if found is None and isinstance(scope, Mesh) and any(map(_is_abstract, asked)):
        found = scope.flat_devices
    if found is not None:
        return found, True
    for sig in sigs:
        if sig.sharding is not None:
            return sig.devices, False
    return (default_single(),), False


def _is_abstract(sharding: Any) -> bool:
    return isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)


def _mismatch(program: Program, one: str, ones: tuple, other: str, others: tuple) -> str:
    return (
        f"{program.name} got arguments on different devices: {one} is on {_shown(ones)}, {other} "
        f"on {_shown(others)}. Move one of them with `device_put(x, sharding)`."
    )


def _elsewhere(program: Program, by: str, devices: tuple, sharding: Any) -> str:
    return (
        f"{program.name} runs on one set of devices: {by} is on {_shown(devices)}, but a result or "
        f"a value within is to be on {_shown(sharding.devices)} ({sharding}). Use `device_put` "
        "outside of it."
    )


def _shown(devices: tuple) -> str:
    ids = [d.id for d in devices]
    if len(ids) == 1:
        return f"device {ids[0]}"
    return f"devices {ids}" if len(ids) <= 16 else f"{len(ids)} devices from {ids[0]} to {ids[-1]}"


def constraint_shardings(program: Program) -> list[Any]:
    """The shardings that the program's constraints name, those of held programs included."""
    found = []
    for eqn in program.equations:
        if "sharding" in eqn.params and eqn.params["sharding"] is not None:
            found.append(eqn.params["sharding"])
        for held in eqn.programs():
            found += constraint_shardings(held)
    return found


def _result_shardings(
    exe: Executable, asked: Sequence[Any], devices: tuple, meshes: Sequence[Any]
) -> list[Any]:
    if len(devices) == 1 or not asked:
        mesh = meshes[0]  # of one device, if arguments are over one
        whole = _replicated(devices, mesh)
        return [a if a is not None else whole for a in asked]
    actual = exe.compiled.output_shardings() or [None] * len(asked)
    return [
        a if a is not None else _read_back(s, meshes, devices)
        for a, s in zip(asked, actual, strict=True)
    ]


def _meshes_of(meshes: Sequence[Any], devices: tuple) -> list[Any]:
    """The meshes that a program meets, the leading one first; None where there need be none."""
    met = [m for m in (*meshes, current().mesh) if isinstance(m, Mesh)]
    found = dict.fromkeys(m for m in met if m.flat_devices == devices)
    if found:
        return list(found)
    return [Mesh(np.array(devices, object), ("devices",)) if len(devices) > 1 else None]


def _read_back(compiled: Any, meshes: Sequence[Mesh], devices: tuple) -> Any:
    """The sharding that the partitioner chose for a result, as a spec over the first mesh
    that has one for it."""
    tiles = placement.describe(compiled)
    if tiles is None:
        return NamedSharding(meshes[0], PartitionSpec())
    dims, order, replicate_last = tiles
    for mesh in meshes:
        spec = spec_from_tiles(mesh, dims, order, replicate_last)
        if spec is not None:
            return NamedSharding(mesh, spec)
    return gspmd_from_tiles(devices, dims, order, replicate_last)


def gspmd_from_tiles(devices: tuple, dims: tuple, order: tuple, replicate_last: bool) -> Any:
    tiles = dims[:-1] if replicate_last else dims
    tiling = Tiling(tiles, (len(devices),), (0,), replicate_last, assignment=order)
    return GSPMDSharding(devices, tiling)

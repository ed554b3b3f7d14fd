"""Plans: all decisions about a program before compilation, and the text of its module.

For example:

    plan = plan_module(program, signatures)    # devices, shardings, layouts, donation; text
    executable = plan.load()                   # compiled, or from the cache, and ready to run
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.arrays.out_of_memory import is_exhausted
from shardwise._src.arrays.signature import Signature, padded_type, signature
from shardwise._src.base.context import current
from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.compiling.module_cache import loaded_for
from shardwise._src.control.expand import expanded, is_expandable
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.effects.callback import calls_of
from shardwise._src.effects.ordering import ORDERED, sequenced
from shardwise._src.lowering.layouts_and_memory import Storage, chosen_layouts, place_in, storage_of
from shardwise._src.lowering.module import Labels, Located, hoisted_constants, module_and_results
from shardwise._src.messages.called import by_name
from shardwise._src.ops.sink import INSPECT
from shardwise._src.running.executable import Executable
from shardwise._src.running.nan_checks import watching
from shardwise._src.running.program_out_of_memory import (
    check_excess,
    kernel_failed,
    program_exhausted,
)
from shardwise._src.running.program_placement import (
    Places,
    check_committed,
    constraint_shardings,
    is_abstract,
    order_of_held,
    over_devices,
    places_for,
    result_shardings,
)
from shardwise._src.running.sharding_inspection import report_shardings
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler.modules import CompiledModule
from shardwise._src.runtime.compiler.mosaic import failure_in
from shardwise._src.runtime.platforms import Platform, platform_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.runtime.target_machines import Target, is_compile_only, is_elsewhere, target_of
from shardwise._src.transfers.transfer import move
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.types.symbolic import Symbolic


class ModulePlan(NamedTuple):
    """A program with all decisions made before compilation, and its module's text.

    program:   the program to compile: with ordered effects in sequence.
    sigs:      signatures of the arguments of calls; names: their names, for messages.
    constants: the hidden arguments, before the others.
    donated:   positions of the arguments whose memory the program reuses; unfit: of those that no
               result could use.
    places:    the placement of everything; of the results as far as known.
    target:    a machine for whose devices it is compiled instead of those it is placed on.
    flags:     that the text was made with: other texts of the same module need them.
    """

    program: Program
    sigs: Sequence[Signature]
    names: Sequence[str]
    constants: list[Any]
    donated: tuple[int, ...]
    unfit: tuple[int, ...]
    places: Places
    text: str
    target: Target | None
    flags: dict[str, Any]

    @property
    def platform(self) -> Platform:
        """The platform that the module is for."""
        return platform_for(self.places, self.target)

    @property
    def devices(self) -> tuple:
        """The devices that the module is compiled for."""
        if self.target is None:
            return self.places.devices
        ranks = {d.id: i for i, d in enumerate(sorted(self.places.devices, key=lambda d: d.id))}
        return tuple([self.target.devices[ranks[d.id]] for d in self.places.devices])

    def load(
        self, *, out_tree: Any = None, quick: bool = False, overrides: tuple = ()
    ) -> Executable:
        """The executable. Without a tree, its result is the only array that the program returns.

        quick: for eager ops and fused functions, which are small and many.
        """
        places, module = self.places, self.compiled(overrides, quick)
        layouts = places.in_layouts
        if any(layouts):
            layouts = chosen_layouts(layouts, module.parameter_layouts()[len(self.constants) :])
        rows = zip(layouts, self.sigs, places.arguments, strict=True)
        targets = [place_in(*row) for row in rows]
        pairs = zip(self.constants, places.constants, strict=True)
        out_sigs = self._result_signatures(module)
        executable = Executable(
            module=module,
            program=self.program,
            text=self.text,
            names=self.names,
            in_shardings=places.arguments,
            in_layouts=layouts,
            moves=tuple((i, place) for i, place in enumerate(targets) if place is not None),
            hidden=self.constants
            if is_compile_only(self.devices) or is_elsewhere(self.devices)
            else [move(c, place)._live() for c, place in pairs],
            donated=self.donated,
            unfit=self.unfit,
            out_sigs=out_sigs,
            handlers=[s.handler for s in out_sigs],
            out_tree=out_tree,
            eager=quick,
        )
        if INSPECT in self.program.effects:
            report_shardings(self.program, self._executable_of)
        return executable

    def compiled(self, overrides: tuple, quick: bool = False) -> CompiledModule:
        """The compiled module, with XLA's options."""
        program, places = self.program, self.places
        _check_sizes(program)
        free = tuple(s is None for s in places.results)
        quick = (quick or _is_single(program)) and not any(
            eqn.op.needs_fusion for eqn in walk(program)
        )
        small = quick and _is_small(program)
        called = calls_of(program)
        rest = called, ORDERED in program.effects, self._check, _asks(program)
        try:
            return loaded_for(self.text, self.devices, free, quick, small, overrides, *rest)
        except backend.RuntimeFailure as error:
            if (failure := failure_in(str(error))) is not None:
                raise kernel_failed(failure) from None
            if not is_exhausted(error):
                raise
            raise program_exhausted(
                program, self.sigs, self.names, self.devices, error, "compiled"
            ) from None

    def _result_signatures(self, module: CompiledModule) -> list[Signature]:
        """The signatures of the results, from the compiler's report."""
        types, places = self.program.out_types, self.places
        layouts = places.out_layouts
        shardings = result_shardings(module, self.sigs, types, places)
        pairs = zip(shardings, places.out_kinds, strict=True)
        shardings = [s if kind is None else s.with_memory_kind(kind) for s, kind in pairs]
        if any(layouts):
            layouts = chosen_layouts(layouts, module.output_layouts())
        rows = zip(types, shardings, layouts, strict=True)
        return [signature(t, s, places.committed, layout) for t, s, layout in rows]

    def _check(self, module: CompiledModule) -> None:
        """Rejects a module whose result shapes differ from the types in the program."""
        if module.result_shapes is None:
            return
        types = self.program.out_types
        shardings = result_shardings(module, self.sigs, types, self.places)
        for i, (t, s) in enumerate(zip(types, shardings, strict=True)):
            held = padded_type(t, s)
            tiles = s.tiling(held.ndim).dims
            wanted = tuple([n // m for n, m in zip(held.shape, tiles, strict=True)])
            if t.size and module.result_shapes[i] != wanted:  # empty results are not split
                raise backend.RuntimeFailure(
                    f"XLA compiled {self.program.name} wrongly: on each device its result {i} of "
                    f"type {t.str_short(True)} under {s} is of shape {module.result_shapes[i]} "
                    f"instead of {wanted}. Nothing was run. This is a bug of the partitioner of "
                    f"jaxlib {backend.JAXLIB_VERSION}: other shardings of the arguments and "
                    "results may avoid it. `jit(f).lower(...).as_text()` shows the program."
                )

    def labeled(self, labels: Labels) -> str:
        """The text with names of results, and optionally of arguments, and source locations."""
        return self._written(labels)

    def numbered(self) -> tuple[str, list[Any]]:
        """The text with lines labeled by equation, and the equations: see
        `lowering.emitter.NUMBERED`."""
        equations: list[Any] = []
        return self._written(equations), equations

    def _written(self, located: Located) -> str:
        places, constants = self.places, self.constants
        requests = _requests(places, constants, self._reuses())
        with current().replace(flags=self.flags).entered():
            return module_and_results(
                self.program,
                places.devices,
                constants,
                *requests,
                located=located,
                mesh=places.meshes[0],
                platform=self.platform,
            )[0]

    def _reuses(self) -> list[bool]:
        """For each argument, whether the program reuses its memory."""
        return [i in self.donated for i in range(len(self.sigs))]

    def _executable_of(self, wider: Program) -> Executable:
        """A program with more results, compiled with the same shardings."""
        results = self.places.results
        outs = [*results, *[None] * (len(wider.outvars) - len(results))]
        tree = flatten([0] * len(outs))[1]
        given = {"in_shardings": self.places.arguments, "out_shardings": outs}
        return build(wider, self.sigs, out_tree=tree, **given)


def build(
    program: Program,
    sigs: Sequence[Signature],
    *,
    out_tree: Any = None,
    quick: bool = False,
    **plan: Any,
) -> Executable:
    """Plans and loads; `plan` as for `plan_module`, the rest as for `ModulePlan.load`."""
    return plan_module(program, sigs, **plan).load(out_tree=out_tree, quick=quick)


def plan_module(
    program: Program,
    sigs: Sequence[Signature],
    *,
    names: Sequence[str] = (),
    in_shardings: Sequence[Any] | None = None,
    out_shardings: Sequence[Any] | None = None,
    donated: Sequence[int] = (),
    target: Target | None = None,
) -> ModulePlan:
    """The plan of a program for arguments of the given signatures.

    names:         names of the arguments, for messages.
    in_shardings:  per argument, the required sharding or format; None to leave it unchanged.
    out_shardings: per result; None to let the partitioner choose.
    donated:       positions of arguments whose memory the program may reuse.
    target:        a machine that it is compiled for, instead of the devices that the arguments
                   are on, which keep their order.
    """
    unfit = _unfit(program, donated)
    donated = () if watching() else tuple([i for i in donated if i not in unfit])
    ins = list(in_shardings) if in_shardings is not None else [None] * len(sigs)
    outs = list(out_shardings) if out_shardings is not None else [None] * len(program.outvars)
    check_committed(program, sigs, names, ins)
    where = sigs, names, ins, outs
    if is_expandable(program):
        found = places_for(program, *where, hoisted_constants(program))
        program = expanded(program, platform_for(found, target))
        check_excess(program, target or target_of(found.devices[0]))
    if ORDERED in program.effects:
        program = sequenced(program)
    constants = hoisted_constants(program)
    places = places_for(program, *where, constants)
    flags = dict(current().flags)
    plan = ModulePlan(program, sigs, names, constants, donated, unfit, places, "", target, flags)
    text, chosen = _text_for(plan)
    if len(places.devices) > 1:
        places = places._replace(results=chosen)
    return plan._replace(places=places, text=text)


def platform_for(places: Places, target: Target | None) -> Platform:
    """The platform of a program.

    Raises ValueError if the target has too few devices.
    """
    if target is None:
        return platform_of(places.devices[0])
    if target.devices and len(places.devices) > len(target.devices):
        raise ValueError(
            f"the program runs on {len(places.devices)} devices, and {target.name!r} has "
            f"{len(target.devices)}. Choose a larger machine, or a smaller mesh."
        )
    return target.platform


def _unfit(program: Program, donated: Sequence[int]) -> tuple[int, ...]:
    """The donated arguments that match no result in shape and dtype: they are left alone."""
    if not donated:
        return ()
    free = Counter((t.shape, t.dtype) for t in program.out_types)
    found = []
    for i in donated:
        t = program.in_types[i]
        free[t.shape, t.dtype] -= 1
        if free[t.shape, t.dtype] < 0:
            found.append(i)
    return tuple(found)


def _requests(
    places: Places, constants: Sequence[Any], donated: Sequence[bool]
) -> tuple[Sequence[Any], Sequence[Any], tuple[bool, ...], Storage]:
    """The requests in a module's text: see `lowering.module.module_and_results`."""
    ins, outs = places.constants + places.arguments, places.results
    held = [order_of_held(c, s) for c, s in zip(constants, places.constants, strict=True)]
    storage = storage_of(ins, held + places.in_layouts, places.out_kinds, places.out_layouts)
    if len(places.devices) == 1:
        ins, outs = [None] * len(ins), [None] * len(outs)
    return ins, outs, tuple(donated), storage


def _text_for(plan: ModulePlan) -> tuple[str, list[Any]]:
    """The module's text and the result shardings; shared by all meshes of equal shape."""
    program, constants, places = plan.program, plan.constants, plan.places
    devices = places.devices
    ins, outs, *rest = requests = _requests(places, constants, plan._reuses())

    def make() -> tuple[str, list[Any]]:
        return module_and_results(
            program, devices, constants, *requests, mesh=places.meshes[0], platform=plan.platform
        )

    def over(chosen: Sequence[Any]) -> list[Any]:
        pairs = zip(chosen, program.out_types, strict=True)
        return [over_devices(s, t, devices, places.meshes) for s, t in pairs]

    forms = [_form(s, devices) for s in (*ins, *outs)]
    tied = _asks(program) or not all(map(is_abstract, constraint_shardings(program)))
    if tied or False in forms:
        text, chosen = make()
        return text, over(chosen)
    platform, count = plan.platform, len(devices)
    key = (module_and_results, current().trace_key, platform, count, *forms, *rest)
    kept = program.derived
    if key not in kept:
        text, chosen = make()
        found = [_form(s, devices) for s in chosen]
        if False in found:
            return text, over(chosen)
        kept[key] = text, found
    text, found = kept[key]
    return text, over(found)


def _form(sharding: Any, devices: tuple) -> Any:
    """A sharding in mesh-independent form; False if it is tied to its devices."""
    if sharding is None or is_abstract(sharding):
        return sharding
    if not isinstance(sharding, NamedSharding) or sharding.devices != devices:
        return False
    return NamedSharding(sharding.mesh.abstract_mesh, sharding.spec, sharding.memory_kind)


@derived
def _asks(program: Program) -> bool:
    """Whether the compiler calls user functions for it."""
    return any(eqn.op.has_partitioner_callback for eqn in walk(program))


def _is_single(program: Program) -> bool:
    """Whether a program is a single op, the smallest program for XLA."""
    equations = program.eqns
    return len(equations) == 1 and not equations[0].op.programs


def _check_sizes(program: Program) -> None:
    """Raises if a program has symbolic sizes: only exported programs do."""
    made = (v.aval for eqn in walk(program) for v in eqn.outvars)
    for t in itertools.chain(program.in_types, made):
        if isinstance(t, ArrayType) and isinstance(t.size, Symbolic):
            raise InconclusiveDimensionOperation(
                by_name(
                    f"the type {t.str_short(True)} has a symbolic dimension, which has a size in "
                    "exported functions only: call `shardwise.export.export(jit(f))`."
                )
            )


SMALL = 2048  # elements; an unoptimized kernel costs at most a few ns for each


def _is_small(program: Program) -> bool:
    """Whether a program does little work: few elements, and constant work for each."""
    if any(v.aval.size > SMALL for v in program.inputs):
        return False
    return all(
        not (eqn.op.is_expensive or eqn.op.programs or eqn.op.shardings)
        and all(v.aval.size <= SMALL for v in eqn.outvars)
        for eqn in program.eqns
    )

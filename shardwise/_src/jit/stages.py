"""The stages of a jitted function: traced, lowered, compiled. Each prints as text.

They are:

    Traced    a program with the information of the call and of `jit` about arguments and results
    Lowered   the same with a `ModulePlan`: all shardings, and the module in StableHLO
    Compiled  the same with an `Executable`: the loaded module, with everything a call needs
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from shardwise._src.arguments.float0_partition import apart
from shardwise._src.arguments.shape_dtype_struct import shapes_of
from shardwise._src.arrays.signature import Signature
from shardwise._src.base.context import current
from shardwise._src.base.monitoring import LOWER, took
from shardwise._src.core.program import Program, eval_jaxpr
from shardwise._src.core.program_tools import derived, used
from shardwise._src.jit.compilations import compilations
from shardwise._src.jit.compiled import Compiled, OfTraced, check_tree
from shardwise._src.jit.costs import with_stated_costs
from shardwise._src.jit.described_devices import (
    described,
    described_mesh,
    mesh_on,
    on_real,
    signature_on,
)
from shardwise._src.jit.options import compiler_overrides
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.lowering.module import Labels
from shardwise._src.messages.formatting import join
from shardwise._src.messages.tree_paths import paths_in
from shardwise._src.running.plan import ModulePlan, plan_module
from shardwise._src.running.program_placement import is_abstract
from shardwise._src.runtime.compiler.modules import estimated_cost, hlo_computation
from shardwise._src.runtime.compiler.shardy import as_mhlo, parsed
from shardwise._src.runtime.platforms import Platform, find, platform_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.runtime.target_machines import Target
from shardwise._src.transfers.transfer import default_place
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.devices import is_described
from shardwise._src.types.mesh import AbstractMesh


def used_arguments(program: Program) -> tuple[int, ...]:
    """The positions of the arguments that are used.

    An argument that determines the mesh of the results' types counts as used.
    """
    needed = used(program)
    placed = [v for v in program.invars if v.aval.mesh is not None]
    if placed and needed.isdisjoint(placed):
        needed.add(placed[0])
    return tuple([i for i, v in enumerate(program.invars) if v in needed])


@derived
def without_others(program: Program, kept: tuple[int, ...]) -> Program:
    """The program as a function of some of its arguments: the others are not used."""
    inputs = [*program.constvars, *[program.invars[i] for i in kept]]
    return program.replace(inputs=inputs)


CompilerOptions: TypeAlias = dict[str, str | bool]


@runtime_checkable
class Wrapped(Protocol):
    """A function that can be staged: the result of `jit`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def trace(self, *args: Any, **kwargs: Any) -> Traced: ...

    def lower(self, *args: Any, **kwargs: Any) -> Lowered: ...


@dataclasses.dataclass(frozen=True)
class ArgInfo:
    """An argument of a program: its type, and whether it is donated."""

    aval: ArrayType
    donated: bool

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)


@dataclasses.dataclass(frozen=True, repr=False, eq=False, slots=True)
class Traced:
    """A staged call: the program and everything that lowering needs. `lower` plans its module.

    sigs, names: of each argument, in flat order like everything below.
    in_tree:  of the arguments, as (positional, named); out_tree: of the results.
    in_shardings, out_shardings: the requested ones, for each; None where unspecified.
    donated:  positions of arguments whose memory the program may reuse.
    overrides: XLA options, as (name, value) pairs.
    kept:     positions of the arguments that the compiled program takes.
    layers:   what calls do to pass the values of refs, `layer(run, args, kwargs)`, innermost first;
      `in_tree` and `out_tree` contain these values (jit/ref_arguments.py).
    """

    program: Program
    sigs: Sequence[Signature]
    names: Sequence[str]
    in_tree: Any
    out_tree: Any
    in_shardings: Sequence[Any] | None
    out_shardings: Sequence[Any] | None
    donated: tuple[int, ...]
    overrides: tuple[tuple[str, Any], ...]
    kept: tuple[int, ...]
    layers: tuple[Callable[..., Any], ...] = ()

    @property
    def jaxpr(self) -> Program:
        return self.program

    @property
    def fun_name(self) -> str:
        return self.program.name

    @property
    def in_avals(self) -> Any:
        """The types of the arguments, as (positional, named)."""
        return self.in_tree.unflatten(self.program.in_types)

    @property
    def out_avals(self) -> Any:
        """The types of the results, in their pytree."""
        return self.out_tree.unflatten(self.program.out_types)

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` for each argument, as (positional, named)."""
        pairs = enumerate(self.program.in_types)
        return self.in_tree.unflatten([ArgInfo(t, i in self.donated) for i, t in pairs])

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The donated arguments, in flat order."""
        return self.donated

    @property
    def out_info(self) -> Any:
        """The types of the results, in their pytree."""
        return shapes_of(self.program, self.out_tree)

    @property
    def effects(self) -> frozenset[Any]:
        """The side effects of the program."""
        return self.program.effects

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the program again, under the transforms in effect at the call."""
        return self.through(partial(self._run, self.program.consts), args, kwargs)

    def through(self, run: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """The result of a call, by `run(args, kwargs)` on values in place of refs."""
        for layer in self.layers:
            run = partial(layer, run)
        return run(args, kwargs)

    def closure_convert(self) -> tuple[list[Any], Callable[..., Any]]:
        """The captured values of the function, and a function that takes them explicitly.

        The second returns for `(consts, *args, **kwargs)` the results of the program with these
        values, of the same types, instead of the captured ones.
        """

        def fun(consts: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            return self.through(partial(self._run, consts), args, kwargs)

        return list(self.program.consts), fun

    def _run(self, consts: Sequence[Any], args: tuple, kwargs: dict) -> Any:
        leaves, tree = apart(*flatten((args, kwargs)))
        check_tree(f"traced {self.program.name}", self.in_tree, tree)
        return self.out_tree.unflatten(eval_jaxpr(self.program, consts, *leaves))

    def as_text(self) -> str:
        return str(self.program)

    __repr__ = as_text

    def lower(self, *, lowering_platforms: Sequence[str] | None = None) -> Lowered:
        """The program in StableHLO, for the devices of its arguments.

        lowering_platforms: another platform, one, to read its program, which cannot be compiled:
          for that, see `shardwise.targets`. By default that of the `AbstractDevice` of
          `use_abstract_mesh`, if it has one. Required if no argument has devices, but some are over
          an `AbstractMesh`, or one is in scope; `Lowered.compile` then needs them.

        Raises:
          ValueError: if `lowering_platforms` is missing, or names an unknown platform, or several.
        """
        here = current()
        if lowering_platforms is None:
            meant = getattr(here.mesh, "abstract_device", None)
            lowering_platforms = None if meant is None else (meant.platform,)
        if lowering_platforms is None and any([is_described(s.devices) for s in self.sigs]):
            raise ValueError(
                f"{self.program.name} is lowered for an AbstractMesh, without devices. Pass "
                'lowering_platforms, such as ("tpu",), or put arguments on the devices of a mesh.'
            )
        begin = time.perf_counter()
        if lowering_platforms is not None and isinstance(here.mesh, AbstractMesh):
            here = here.replace(mesh=described_mesh(here.mesh), on_mesh=True)
        with here.entered():
            plan = self._planned(self._target(lowering_platforms or ()))
        took(LOWER, time.perf_counter() - begin, self.program.name)
        return Lowered(self, plan)

    def _target(self, lowering_platforms: Sequence[str]) -> Target | None:
        """Another platform than that of the devices, if requested."""
        here = platform_of(self._likely_device())
        elsewhere = any([p not in here.names for p in lowering_platforms])
        return self._platform_alone(lowering_platforms, here) if elsewhere else None

    def _likely_device(self) -> Any:
        """A device of the platform that the program runs on."""
        asked = [*(self.in_shardings or ()), *(self.out_shardings or ())]
        found = [bare(s) for s in asked] + [s.sharding for s in self.sigs if s.committed]
        devices = [s.devices for s in found if s is not None and not is_abstract(s)]
        return devices[0][0] if devices else default_place().devices[0]

    def _platform_alone(self, asked: Sequence[str], here: Platform) -> Target:
        """The platform that is asked for, as a machine without devices."""
        found = find(asked[0]) if len(asked) == 1 else None
        if found is None:
            raise ValueError(
                f"{self.program.name} is lowered for the devices of its arguments, of platform "
                f"{here.device_name!r}, or for one other platform; lowering_platforms requests "
                f"{join(asked)}. `shardwise.export` makes a program for several."
            )
        return Target(found.name, None, False, None, found, (), "")

    def lowered_for(self, target: Target | None) -> Lowered:
        """The program for another machine, in place of the devices of its arguments."""
        return Lowered(self, self._planned(target))

    def _planned(self, target: Target | None = None) -> ModulePlan:
        kept, ins, outs = self.kept, self.in_shardings, self.out_shardings
        if any([is_described(s.devices) for s in self.sigs]):
            ins = ins and [described(s) for s in ins]
            outs = outs and [described(s) for s in outs]
        program = self.program
        if len(kept) < len(self.sigs):
            program = without_others(program, kept)
        return plan_module(
            program,
            self.pick(self.sigs),
            names=self.pick(self.names),
            in_shardings=None if ins is None else self.pick(ins),
            out_shardings=outs,
            donated=[kept.index(i) for i in self.donated if i in kept],
            target=target,
        )

    def pick(self, of_arguments: Sequence[Any]) -> Sequence[Any]:
        """From one item per argument, selects those of the compiled program's arguments."""
        if len(self.kept) == len(of_arguments):
            return of_arguments
        return [of_arguments[i] for i in self.kept]

    def spread(self, of_kept: Sequence[Any]) -> list[Any]:
        """The reverse of `pick`: None for arguments that are not used."""
        found = dict(zip(self.kept, of_kept, strict=True))
        return [found.get(i) for i in range(len(self.sigs))]


@dataclasses.dataclass(frozen=True, repr=False, eq=False, slots=True)
class Lowered(OfTraced):
    """A program in StableHLO. `compile` makes an executable of the plan."""

    traced: Traced
    plan: ModulePlan

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The module.

        Args:
          dialect: "stablehlo", which is compiled, or a translation: "hlo", or the former "mhlo".
          debug_info: whether it contains the user's source lines and names of arguments.
        """
        if dialect not in (None, "stablehlo", "hlo", "mhlo"):
            raise ValueError(
                f"as_text: unknown dialect {dialect!r}; expected 'stablehlo', 'hlo' or 'mhlo'."
            )
        if dialect == "hlo" and not debug_info:
            return hlo_computation(self.plan.text).as_hlo_text()
        text = self._labeled(debug_info)
        if dialect == "mhlo":
            return str(as_mhlo(text))
        if dialect != "hlo":
            return text
        return hlo_computation(text).as_hlo_module().to_string()

    def compiler_ir(self, dialect: str | None = None) -> Any:
        """The runtime's own object: an MLIR module or, for "hlo", an XLA computation."""
        if dialect == "mhlo":
            return as_mhlo(self._labeled(False))
        if dialect == "hlo":
            return hlo_computation(self.plan.text)
        return parsed(self.as_text(dialect, debug_info=True))

    def _labeled(self, lines: bool) -> str:
        """The text with names of results; lines: also with source lines and names of arguments."""
        traced = self.traced
        names = [traced.names[i] for i in traced.kept] if lines else []
        return self.plan.labeled(Labels(names, paths_in("result", traced.out_tree), lines))

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate for the entire program, before it is partitioned and optimized."""
        found = estimated_cost(self.plan.places.devices[0].client, self.plan.text)
        return with_stated_costs(found, self.traced.program, self.plan.platform)

    def compile(
        self,
        compiler_options: dict[str, Any] | None = None,
        *,
        device_assignment: Sequence[Any] | None = None,
    ) -> Compiled:
        """The program for its devices; `compiler_options` take precedence over those of `jit`.

        device_assignment: the devices that it is lowered for, if given. If it is lowered for an
          `AbstractMesh`, the devices in its place.

        Raises:
          ValueError: for other devices, which the module's shardings do not name.
          RuntimeError: if it is lowered for an `AbstractMesh`, and no devices are given.
        """
        traced, here = self.traced, self.plan.places.devices
        if is_described(here):
            return self._on(device_assignment).compile(compiler_options)
        if (target := self.plan.target) is not None and not target.devices:
            raise ValueError(
                f"compile: {traced.program.name} is lowered for the platform {target.name!r}, "
                "without devices. To compile it, lower it with arguments on devices of a machine: "
                "`shardwise.targets.devices`."
            )
        if device_assignment is not None and tuple(device_assignment) != here:
            raise ValueError(
                f"compile: {traced.program.name} is lowered for devices {[d.id for d in here]}; "
                f"device_assignment requests {[d.id for d in device_assignment]}. Lower it with "
                "arguments, or shardings of `ShapeDtypeStruct`, on these."
            )
        more = compiler_overrides(traced.program.name, compiler_options)
        overrides = tuple(sorted(dict((*traced.overrides, *more)).items()))
        tree = traced.out_tree
        one_array = tree.num_nodes == 1 and tree.num_leaves == 1
        executable = self.plan.load(out_tree=None if one_array else tree, overrides=overrides)
        compilations.tell(self)
        return Compiled(traced, executable)

    def _on(self, devices: Sequence[Any] | None) -> Lowered:
        """The same for real devices in place of described ones."""
        traced, places = self.traced, self.plan.places
        if devices is None:
            raise RuntimeError(
                f"compile: {traced.program.name} is lowered for an AbstractMesh, without devices. "
                "Pass device_assignment, the devices in its place."
            )
        if len(devices) != len(places.devices):
            raise ValueError(
                f"compile: {traced.program.name} is lowered for {len(places.devices)} devices; "
                f"device_assignment has {len(devices)}."
            )
        ins, outs = traced.in_shardings, traced.out_shardings
        there = dataclasses.replace(
            traced,
            sigs=[signature_on(s, devices) for s in traced.sigs],
            in_shardings=ins and [on_real(described(s), devices) for s in ins],
            out_shardings=outs and [on_real(described(s), devices) for s in outs],
        )
        mesh = mesh_on(places.meshes[0], devices)
        with current().replace(mesh=mesh, on_mesh=True).entered():
            return there.lowered_for(None)

"""Searches for argument shardings that make a program fast: `suggest`.

Arguments with the same role share a sharding: those with the same last name in their path and the
same type, such as a weight in each of several layers, and its moments in an optimizer state. First,
each group is tried alone along each axis. Then a beam search goes through the groups, the most
beneficial first: it tries each group's most promising specs, and keeps the choices with the lowest
estimated time. Finally, each group of the best choice is tried once more. Nothing is executed: each
trial is a compilation. Large groups are tried first; groups not reached within half of the time
budget stay replicated.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.base.context import current
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.explain.abstract_devices import lowered_there
from shardwise._src.explain.machines import Machine, chosen, machine_of
from shardwise._src.explain.program_report import TIMEOUT, estimate_of, report_of
from shardwise._src.explain.report import Report
from shardwise._src.jit.described_devices import described_mesh
from shardwise._src.jit.jit import jit
from shardwise._src.jit.stages import Lowered, Wrapped
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.messages.tree_paths import path_text
from shardwise._src.runtime.pytree import flatten_with_path
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

# Kernels do not need to be good: only decisions of the partitioner and scheduler are read.
_QUICK = (("xla_backend_optimization_level", 0), ("xla_llvm_disable_expensive_passes", True))
_LIKELY = 3  # specs of a group that are tried again in combination with other groups
_BEAM = 3  # number of choices in the beam
_FULL = 0.9  # usable fraction of a machine's memory


@public("shardwise.explain")
@dataclass(frozen=True)
class Group:
    """Arguments that share a sharding: their paths, and their common type."""

    paths: tuple[str, ...]
    type: str

    def __str__(self) -> str:
        first, *others = self.paths
        more = f" and {len(others)} similar" if others else ""
        return f"{first}{more}: {self.type}"


@public("shardwise.explain")
@dataclass(frozen=True)
class Suggestion:
    """Shardings of the arguments, and a report of the program under them.

    shardings: a pytree of `NamedSharding`s for the arguments, as `(args, kwargs)`.
    specs:     by group.
    """

    shardings: Any
    specs: dict[Group, PartitionSpec]
    report: Report

    def __str__(self) -> str:
        seconds, memory = self.report.seconds, self.report.memory
        rows = [f"  {spec!r:24} {group}" for group, spec in self.specs.items() if len(spec)]
        whole = sum([not len(spec) for spec in self.specs.values()])
        excess = memory.peak - self.report.machine.memory_bytes
        more = f", {in_bytes(excess)} MORE THAN A DEVICE HAS," if excess > 0 else ""
        return "\n".join([
            f"{seconds.total:.3g} s, mostly {seconds.dominant}; {in_bytes(memory.peak)}{more} and "
            f"{in_bytes(self.report.bytes())} communicated per device",
            *rows, *[f"  P() for {whole} other group{'s' * (whole > 1)}"] * (whole > 0),
        ])  # fmt: skip


@public("shardwise.explain")
class Suggestions(list[Suggestion]):
    """Sorted, best first. tried: number of programs compiled; seconds: duration of the search."""

    def __init__(self, found: Sequence[Suggestion], tried: int, seconds: float):
        super().__init__(found)
        self.tried, self.seconds = tried, seconds

    def __str__(self) -> str:
        rows = [f"{i + 1}. {one}" for i, one in enumerate(self)]
        return "\n".join([*rows, f"({self.tried} programs compiled in {self.seconds:.0f} s)"])


def suggest(
    f: Callable[..., Any],
    args: Sequence[Any],
    mesh: Mesh | AbstractMesh,
    *,
    kwargs: dict[str, Any] | None = None,
    machine: str | Machine | None = None,
    keep: int = 3,
    budget: float = 300.0,
) -> Suggestions:
    """Shardings of the arguments of `f` over a mesh that make it fast, according to estimates.

    Args:
      f: a function, as in `explain`, without argument shardings of its own.
      args, kwargs: arrays, or `ShapeDtypeStruct`s; their shardings are ignored.
      mesh: with Auto axes only; it may be abstract.
      machine: for the estimates, as in `explain`.
      keep: number of suggestions to return, each with its report.
      budget: seconds; the search then ends with the results so far.

    Returns:
      The best few, all different. Suggestions that need more memory than the machine has are last.

    Raises:
      TypeError: the arguments are not a sequence, or the mesh is not a mesh; ValueError: the mesh
        has axes that are not Auto, or `keep` is not positive.
    """
    if not isinstance(args, list | tuple):
        raise TypeError(
            f"suggest takes the arguments as a tuple, `suggest(f, (x,), mesh)`; got "
            f"{type(args).__name__}."
        )
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise TypeError(f"suggest takes a Mesh or an AbstractMesh; got {type(mesh).__name__}.")
    if not mesh.are_all_axes_auto:
        default = "Axes of `AbstractMesh` and `make_mesh` are Explicit by default: create the"
        types = ", ".join(["AxisType.Auto"] * len(mesh.axis_names))
        raise ValueError(
            f"suggest needs a mesh whose axes are all Auto; got {mesh}. "
            f"{default if mesh.explicit_axes else 'Create the'} mesh with "
            f"axis_types=({types}{',' * (len(mesh.axis_names) == 1)}), where AxisType is "
            "`shardwise.sharding.AxisType`."
        )
    if keep < 1:
        raise ValueError(f"suggest: keep must be at least 1; got {keep!r}.")
    with current().replace(on_mesh=False).entered():  # arguments are over `mesh` instead
        search = _Search(f, (tuple(args), dict(kwargs or {})), mesh, machine, budget)
        return search.best(keep)


Choice = tuple[PartitionSpec, ...]  # for each group


class _Search:
    def __init__(
        self,
        f: Callable[..., Any],
        given: Any,
        mesh: Mesh | AbstractMesh,
        machine: Any,
        budget: float,
    ):
        self.f = f if isinstance(f, Wrapped) else jit(f)
        self.mesh = mesh if isinstance(mesh, Mesh) else described_mesh(mesh)
        self.named = mesh  # as named in results
        leaves, self.tree = flatten_with_path(given)
        self.types = [type_of(leaf) for _, leaf in leaves]
        halves = ("args", "kwargs")
        self.paths = [halves[_plain(path[0])] + path_text(path[1:]) for path, _ in leaves]
        self.groups = self._grouped([path for path, _ in leaves])
        asked = chosen(machine)
        self.target, self.options = asked.target, () if asked.target else _QUICK
        self.missing = asked.missing
        self.machine = asked.machine or machine_of(None, self.mesh.flat_devices[0])
        self.costs: dict[Choice, tuple[float, int]] = {}
        self.begin, self.end = time.monotonic(), time.monotonic() + budget

    def _grouped(self, paths: Sequence[Any]) -> list[list[int]]:
        found: dict[Any, list[int]] = {}
        for i, (path, t) in enumerate(zip(paths, self.types, strict=True)):
            names = [str(key) for key in path if isinstance(_plain(key), str)]
            found.setdefault((names[-1] if names else i, t.shape, t.dtype), []).append(i)
        return list(found.values())

    def best(self, keep: int) -> Suggestions:
        whole: Choice = (PartitionSpec(),) * len(self.groups)
        self._cost(whole)
        for _ in self._descend(whole):
            if time.monotonic() > self.end:
                break
        ranked = sorted(self.costs, key=self.costs.__getitem__)
        found = [self._suggestion(choice) for choice in ranked[:keep]]
        return Suggestions(found, len(self.costs), time.monotonic() - self.begin)

    def _descend(self, choice: Choice) -> Iterator[None]:
        """Runs the trials; yields before each one."""
        alone = [self._variants([choice], g, self._specs(g)) for g in range(len(self.groups))]
        half = (self.begin + self.end) / 2
        for g in sorted(range(len(self.groups)), key=self._bytes, reverse=True):
            if time.monotonic() > half:  # the other groups stay replicated
                alone[g] = [choice]
            for other in alone[g]:
                yield
                self._cost(other)
        gains = [min(map(self._cost, tries)) for tries in alone]
        likely = [
            self._with_pairs(g, [t[g] for t in sorted(tries, key=self._cost)[:_LIKELY]])
            for g, tries in enumerate(alone)
        ]
        order = sorted(range(len(gains)), key=gains.__getitem__)
        beam = [choice]
        for g in order:
            tries = self._variants(beam, g, likely[g])
            for other in tries:
                yield
                self._cost(other)
            beam = sorted(dict.fromkeys(tries), key=self._cost)[:_BEAM]
        choice = beam[0]
        for g in order:
            for other in self._variants([choice], g, likely[g]):
                yield
                choice = min(choice, other, key=self._cost)

    @staticmethod
    def _variants(choices: list[Choice], g: int, specs: list[PartitionSpec]) -> list[Choice]:
        """These choices with each of the specs for group `g`."""
        return [(*c[:g], spec, *c[g + 1 :]) for c in choices for spec in specs]

    def _bytes(self, g: int) -> int:
        t = self.types[self.groups[g][0]]
        return t.size * t.dtype.itemsize * len(self.groups[g])

    def _specs(self, g: int) -> list[PartitionSpec]:
        """Replicated, and sharded by each axis along each dimension that it divides."""
        shape = self.types[self.groups[g][0]].shape
        places = itertools.product(self.mesh.shape, range(len(shape)))
        found = [self._spec(shape, [place]) for place in places]
        return [PartitionSpec(), *[spec for spec in found if spec is not None]]

    def _with_pairs(self, g: int, likely: list[PartitionSpec]) -> list[PartitionSpec]:
        """These specs, and pairwise combinations of their axes."""
        shape = self.types[self.groups[g][0]].shape
        places = [
            (name, d) for spec in likely for d, names in enumerate(spec.dims(len(shape)))
            for name in names
        ]  # fmt: skip
        order = list(self.mesh.shape)
        pairs = [sorted(p, key=lambda x: order.index(x[0])) for p in
                 itertools.combinations(places, 2) if p[0][0] != p[1][0]]  # fmt: skip
        both = [self._spec(shape, pair) for pair in pairs]
        return [*likely, *[spec for spec in both if spec is not None]]

    def _spec(
        self, shape: Sequence[int], places: Sequence[tuple[Any, int]]
    ) -> PartitionSpec | None:
        """Shards dimensions by axes; None if the sizes are not divisible."""
        split: list[list[Any]] = [[] for _ in shape]
        for axis, d in places:
            split[d].append(axis)
        parts = [math.prod([self.mesh.shape[n] for n in names]) for names in split]
        if not all([n and n % k == 0 for n, k in zip(shape, parts, strict=True)]):
            return None
        return PartitionSpec(*[n[0] if len(n) == 1 else tuple(n) or None for n in split])

    def _cost(self, choice: Choice) -> tuple[float, int]:
        """Estimated seconds, with a large penalty for exceeding memory; then peak memory."""
        if choice not in self.costs:
            seconds, memory = estimate_of(
                self._lowered(choice), self.machine, TIMEOUT, self.options
            )
            limit = _FULL * self.machine.memory_bytes
            short = memory.peak / limit if memory.peak > limit else 0.0
            self.costs[choice] = seconds.total + 1e6 * short, memory.peak
        return self.costs[choice]

    def _lowered(self, choice: Choice) -> Lowered:
        leaves = [
            ShapeDtypeStruct(t.shape, t.dtype, sharding=s, weak_type=t.weak_type)
            for t, s in zip(self.types, self._placed(choice, self.mesh), strict=True)
        ]
        args, kwargs = self.tree.unflatten(leaves)
        return lowered_there(self.f.trace(*args, **kwargs), self.target)

    def _placed(self, choice: Choice, mesh: Any) -> list[NamedSharding]:
        found: list[Any] = [None] * len(self.types)
        for members, spec in zip(self.groups, choice, strict=True):
            for i in members:
                found[i] = NamedSharding(mesh, spec)
        return found

    def _suggestion(self, choice: Choice) -> Suggestion:
        specs = {
            Group(tuple([self.paths[i] for i in members]), _text(self.types[members[0]])): spec
            for members, spec in zip(self.groups, choice, strict=True)
        }
        shardings = self.tree.unflatten(self._placed(choice, self.named))
        report = report_of(self._lowered(choice), self.machine)
        return Suggestion(shardings, specs, replace(report, missing=self.missing))


def _plain(key: Any) -> Any:
    """The name or index of a path entry."""
    return getattr(key, "key", getattr(key, "name", getattr(key, "idx", None)))


def _text(t: ArrayType) -> str:
    return t.str_short(True).removeprefix("~")

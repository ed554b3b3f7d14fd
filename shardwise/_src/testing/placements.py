"""Checks of an op under shardings, on simulated meshes of two and three devices: of its `dims` rule
against the partitioner, and of its values for uneven sizes.

For each factor, shards every operand dimension that has it, and compares the compiled results with
the unsharded ones. A factor of a result must shard that result without communication; partial
results over a contracted factor must be combined by `combine`. If the rule names no factor for a
dimension that can nevertheless be sharded without communication, a rule is missing.

`check_uneven` splits every dimension into three shards of different sizes, with NaN as padding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.config import poison_padding, sharded_linalg_min_size_bytes
from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.op import Op
from shardwise._src.running.eager import EAGER
from shardwise._src.running.executable import Executable
from shardwise._src.runtime.compiler.modules import COLLECTIVES
from shardwise._src.testing.meshes import simulated_mesh
from shardwise._src.testing.running import compiled, staged
from shardwise._src.testing.sample import Report, Sample
from shardwise._src.transfers.transfer import move
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

AXIS = "x"
PARTS = 2
UNEVEN_PARTS = 3
_COMBINE: dict[str, Callable] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@dataclass(frozen=True)
class _Split:
    """A sharding: which operand dimensions are sharded, and which result dimensions then are."""

    label: str
    ins: tuple[frozenset[int], ...]
    outs: tuple[frozenset[int], ...]

    def shardings(self, mesh: Any, types: Sequence[ArrayType]) -> list[NamedSharding]:
        return [
            NamedSharding(mesh, _spec(t, dims)) for t, dims in zip(types, self.ins, strict=True)
        ]


def _spec(t: ArrayType, dims: frozenset[int]) -> PartitionSpec:
    return PartitionSpec(*[AXIS if d in dims else None for d in range(t.ndim)])


@sharded_linalg_min_size_bytes(0)
def check_placements(op: Op, sample: Sample, report: Report) -> None:
    """Compares every sharding that `dims` allows, and others, with the unsharded result."""
    types = sample.types()
    try:
        outs = infer(op, types, sample.params)
        out_types = tuple(outs) if op.multiple else (outs,)
        if op.dims is None:
            raise op.missing("dims", "explicit sharding")
        dims = op.dims(op, *types, **sample.params)
    except Exception as error:
        report.raised("dims", error)
        return
    if not check_form(dims, types, out_types, report):
        return
    contracted = dims.contracted()
    if not sample.placed or not types:
        return
    splits = [(f, s) for f in _factors(dims.inputs) if (s := _split(f, dims, types, out_types))]
    for factor, split in splits:
        if factor not in contracted:
            _check_explicit(op, sample, types, split, report)
        elif dims.combine is None:
            report.add(
                f"dims: contracted factor '{factor}'",
                "combine=None",
                "how partial results over it are combined",
            )
    run = _Placed(op, sample, types, report)
    if run.expected is None:
        return
    run.check_kept([s for f, s in splits if f not in contracted])
    run.check_contracted([s for f, s in splits if f in contracted], dims)
    run.check_unnamed(_unnamed(dims, types, sample))


@sharded_linalg_min_size_bytes(0)
def check_form(
    dims: Dims, types: Sequence[ArrayType], outs: Sequence[ArrayType], report: Report
) -> bool:
    """Every dimension of operands and results has one factor; every factor has one size."""
    ok = True
    for what, groups, ts in (("operand", dims.inputs, types), ("result", dims.outputs, outs)):
        ranks, given = [t.ndim for t in ts], [len(g) for g in groups]
        if ranks != given:
            report.add(f"dims: dimensions of each {what}", given, ranks)
            ok = False
    if not ok:
        return False
    sizes: dict[str, int] = {}
    groups = [*zip(types, dims.inputs, strict=True), *zip(outs, dims.outputs, strict=True)]
    for t, factors in groups:
        for n, factor in zip(t.shape, factors, strict=True):
            if isinstance(factor, str) and sizes.setdefault(factor, n) != n:
                report.add(f"dims: sizes of factor '{factor}'", n, sizes[factor])
                ok = False
    return ok


def _major(factor: Any) -> Any:
    return factor[0] if isinstance(factor, tuple) else factor


def _factors(inputs: Any) -> list[str]:
    """Factors along which an operand dimension can be sharded."""
    majors = {_major(f) for g in inputs for f in g}
    return sorted(f for f in majors if f is not None)


def _split(
    factor: str, dims: Dims, types: Sequence[ArrayType], outs: Sequence[ArrayType]
) -> _Split | None:
    """The sharding along a factor; None if a size is not divisible."""

    def places(groups: Any) -> tuple[frozenset[int], ...]:
        return tuple(frozenset(d for d, f in enumerate(g) if _major(f) == factor) for g in groups)

    ins, out_places = places(dims.inputs), places(dims.outputs)
    pairs = [*zip(types, ins, strict=True), *zip(outs, out_places, strict=True)]
    if any(t.shape[d] % PARTS or not t.shape[d] for t, p in pairs for d in p):
        return None
    if any(len(p) > 1 for p in ins):
        return None  # one mesh axis cannot shard two dimensions of an operand
    return _Split(f"factor '{factor}'", ins, out_places)


def _unnamed(dims: Dims, types: Sequence[ArrayType], sample: Sample) -> list[_Split]:
    """A sharding of each dimension for which the rule names no factor."""
    found = []
    for i, (t, factors) in enumerate(zip(types, dims.inputs, strict=True)):
        for d, (n, factor) in enumerate(zip(t.shape, factors, strict=True)):
            if factor is None and n and n % PARTS == 0 and (i, d) not in sample.unnamed:
                ins = tuple(frozenset([d]) if k == i else frozenset() for k in range(len(types)))
                found.append(_Split(f"operand {i}, dimension {d}", ins, ()))
    return found


def _check_explicit(
    op: Op, sample: Sample, types: Sequence[ArrayType], split: _Split, report: Report
) -> None:
    """Over an explicit mesh, inference must return the result's sharding."""
    mesh = AbstractMesh((PARTS,), (AXIS,), axis_types=(AxisType.Explicit,))
    given = tuple(
        t.update(mesh=mesh, spec=_spec(t, p)) for t, p in zip(types, split.ins, strict=True)
    )
    check = f"explicit sharding, {split.label}"
    try:
        outs = infer(op, given, sample.params)
    except Exception as error:
        report.raised(check, error)
        return
    outs = tuple(outs) if op.multiple else (outs,)
    expected = [
        o.update(mesh=mesh, spec=_spec(o, p)) for o, p in zip(outs, split.outs, strict=True)
    ]
    for came, wanted in zip(outs, expected, strict=True):
        if came.mesh is None or came.spec.dims(came.ndim) != wanted.spec.dims(wanted.ndim):
            report.add(check, came.str_short(True), wanted.str_short(True))


def check_uneven(op: Op, sample: Sample, report: Report) -> int:
    """Compares results with one unevenly sharded dimension with the reference, for all dimensions.

    Returns the number of tested shardings.
    """
    types = sample.types()
    if not sample.placed or not types:
        return 0
    places = [frozenset({(i, d)}) for i, t in enumerate(types) for d in range(t.ndim)]
    inputs = () if op.dims is None else op.dims(op, *types, **sample.params).inputs
    for factor in _factors(inputs):
        rows = enumerate(inputs)
        joint = frozenset((i, d) for i, g in rows for d, f in enumerate(g) if _major(f) == factor)
        if len(joint) > 1 and len({i for i, _ in joint}) == len(joint):
            places.append(joint)
    uneven = [p for p in places if any(types[i].shape[d] % UNEVEN_PARTS for i, d in p)]
    splits = [
        _Split(
            " and ".join(f"operand {i}, dimension {d}" for i, d in sorted(p)) + ", unevenly",
            tuple(frozenset(d for k, d in p if k == i) for i in range(len(types))),
            (),
        )
        for p in uneven
    ]
    with poison_padding(True), sharded_linalg_min_size_bytes(0):
        run = _Placed(op, sample, types, report, UNEVEN_PARTS)
        if run.expected is None:
            return 0
        for split, arrays in zip(splits, run.attempt(splits)[1], strict=False):
            run.same_values(split, arrays)
    return len(splits)


class _Placed:
    """Runs a sample under different shardings, several per compiled program."""

    def __init__(
        self,
        op: Op,
        sample: Sample,
        types: tuple[ArrayType, ...],
        report: Report,
        parts: int = PARTS,
    ):
        self.op, self.sample, self.report, self.types = op, sample, report, types
        self.given = [type_of(a) for a in sample.args]
        self.mesh = simulated_mesh((parts,), (AXIS,))
        self.whole = NamedSharding(self.mesh, PartitionSpec())
        self.function = functools.partial(sample.apply, op)
        self.expected: list[np.ndarray] | None = None
        try:
            self.args = [EAGER.array(a) for a in sample.args]
            self.expected = [np.asarray(r) for r in self.function(*self.args)]
            self.program = staged(self.function, self.given, op.name)
        except Exception:
            self.expected = None  # reported by the value check

    def placed(self, splits: Sequence[_Split]) -> tuple[Executable, list[Any]]:
        """One program for all shardings, and its arguments."""

        def everything(*args: Any) -> list[Any]:
            count = len(self.types)
            return [
                out
                for i in range(len(splits))
                for out in self.program(*args[i * count : (i + 1) * count])
            ]

        program = staged(everything, self.given * len(splits), "placements")
        targets = [t for s in splits for t in s.shardings(self.mesh, self.types)]
        args = [move(a, t) for a, t in zip(self.args * len(splits), targets, strict=True)]
        return compiled(program, args, in_shardings=targets), args

    def results(self, splits: Sequence[_Split]) -> tuple[bool, list[list[Any]]]:
        """Whether there is communication, and the result arrays for each sharding."""
        exe, args = self.placed(splits)
        arrays, count = exe(args), len(self.expected or ())
        groups = [arrays[i : i + count] for i in range(0, len(arrays), count)]
        return exe.module.has_collectives, groups

    def same_values(self, split: _Split, arrays: list[Any]) -> bool:
        what, expected = f"placement: {split.label}", self.expected or []
        return self.report.compare_results(what, arrays, expected, self.sample.tolerance)

    def attempt(self, splits: Sequence[_Split]) -> tuple[bool, list[list[Any]]]:
        """The results; none if it fails, which is reported for the failing sharding."""
        try:
            if splits:
                return self.results(splits)
        except Exception as error:
            if len(splits) == 1:
                self.report.raised(f"placement: {splits[0].label}", error)
            else:
                for split in splits:
                    self.attempt([split])
        return False, []

    def check_kept(self, splits: Sequence[_Split]) -> None:
        """Factors of results: these dimensions are sharded, without communication."""
        communicates, groups = self.attempt(splits)
        for split, arrays in zip(splits, groups, strict=False):
            if self.same_values(split, arrays) and not self.sample.communicates:
                self._check_outputs(split, arrays)
        if not communicates or self.sample.communicates:
            return
        for split in splits:
            exe, _ = self.placed([split])
            if exe.module.has_collectives:
                self.report.add(
                    f"placement: {split.label} needs communication",
                    _collectives(exe),
                    "none: `dims` says results are sharded alike",
                )

    def _check_outputs(self, split: _Split, arrays: list[Any]) -> None:
        for i, (a, dims) in enumerate(zip(arrays, split.outs, strict=True)):
            wanted = NamedSharding(self.mesh, _spec(a.aval, dims))
            if not a.sharding.is_equivalent_to(wanted, a.ndim):
                self.report.add(
                    f"placement: {split.label}, sharding of result {i}", a.sharding, wanted
                )

    def check_contracted(self, splits: Sequence[_Split], dims: Dims) -> None:
        """Factors of no result: values are correct, and partial results combine by `combine`."""
        for split, arrays in zip(splits, self.attempt(splits)[1], strict=False):
            self.same_values(split, arrays)
            if dims.combine is not None:
                self._check_combine(split, dims.combine)

    def _check_combine(self, split: _Split, combine: str) -> None:
        """Combining the op on both halves must equal the op on the full operands."""
        halves = []
        for half in range(PARTS):
            args = [
                _half(np.asarray(a), d, half) for a, d in zip(self.args, split.ins, strict=True)
            ]
            try:
                halves.append([np.asarray(r) for r in self.function(*args)])
            except TypeError:
                return  # the parameters contain shapes, so the op does not accept halves
        what = f"dims: combine={combine!r} over {split.label}"
        together, expected = list(map(_COMBINE[combine], *halves)), self.expected or []
        self.report.compare_results(what, together, expected, self.sample.tolerance)

    def check_unnamed(self, splits: Sequence[_Split]) -> None:
        """Dimensions without a factor: values are correct, and sharding them is not free."""
        for split, arrays in zip(splits, self.attempt(splits)[1], strict=False):
            if not self.same_values(split, arrays):
                continue
            # Uneven shards may happen to need no communication: that does not imply a rule.
            if all(
                a.sharding.is_fully_replicated or not a.sharding.is_even(a.shape) for a in arrays
            ):
                continue
            exe, _ = self.placed([split])
            if not exe.module.has_collectives:
                self.report.add(
                    f"missing rule: {split.label}",
                    "None in `dims`",
                    "a factor: XLA shards it without communication, with results "
                    + ", ".join(str(getattr(a.sharding, "spec", a.sharding)) for a in arrays),
                )


def _half(x: np.ndarray, dims: frozenset[int], half: int) -> np.ndarray:
    for d in dims:
        x = np.split(x, PARTS, axis=d)[half]
    return x


def _collectives(exe: Executable) -> str:
    lines = exe.module.hlo_text().splitlines()
    found = {k for k in COLLECTIVES for line in lines if f"{k}(" in line or f"{k}-start(" in line}
    return ", ".join(sorted(found))

"""The collectives that a compiled program runs, read from its optimized HLO text.

    found = collectives(jit(step).lower(state, batch).compile().as_text())
    console.print(table(summarize(found, mesh)))

Each collective instruction becomes one `Collective`; `summarize` groups them by kind and mesh axes.
An asynchronous pair (`-start`, `-done`) is one collective; a collective that carries several arrays
is also one, with the sum of their bytes. A collective inside a loop counts once per iteration if
the compiler knows the trip count; otherwise it is counted once and marked.

This module only parses text: it needs no devices and no compiler. It does not estimate time.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise._src.explain.device_axes import Axis, Groups, axes_of, over_text
from shardwise._src.explain.hlo import (
    ArrayShape,
    Instruction,
    Module,
    array_in,
    integers,
    read,
    top_level,
)
from shardwise._src.messages.formatting import in_bytes

if TYPE_CHECKING:
    from rich.table import Table

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)


@dataclass(frozen=True)
class Collective:
    """One collective instruction, seen from one device.

    `arrays` is the payload: what the device holds after the collective; for a reduce-scatter, its
    input (the larger side). `runs` is the number of times that one execution of the program runs
    it; `runs_known` is false inside a loop with an unknown trip count. `groups` holds positions in
    the program's device order, which for a mesh is `mesh.devices.flat`; it is empty if all devices
    form one group. A collective-permute has `pairs` (source, target) in place of groups.
    """

    kind: str
    name: str
    arrays: tuple[ArrayShape, ...]
    group_size: int
    groups: Groups = ()
    pairs: Groups = ()
    runs: int = 1
    runs_known: bool = True
    op_name: str = ""
    source: str = ""

    @property
    def elements(self) -> int:
        return sum(array.elements for array in self.arrays)

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)

    def __str__(self) -> str:
        arrays = ", ".join(map(str, self.arrays))
        return f"{self.kind}({arrays}) over {self.group_size} devices"


@dataclass(frozen=True)
class Summary:
    """All collectives of one kind over the same mesh axes.

    `axes` is None if the groups are not along mesh axes, or if no mesh was given.
    `count` and `bytes` (per device) are for one execution of the program.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    group_size: int
    count: int
    elements: int
    bytes: int
    runs_known: bool = True


# ---- reading the text ----------------------------------------------------------------------------


def collectives(hlo_text: Any) -> list[Collective]:
    """Every collective instruction of an optimized HLO module, in the order of the text.

    Args:
        hlo_text: the result of `compiled.as_text()`; or the compiled function, or a `hlo.Module`.

    Raises:
        ValueError: the text is not optimized HLO, for instance the text of a lowered function.
    """
    module = hlo_text if isinstance(hlo_text, Module) else read(hlo_text)
    return [
        _collective(i, kind, module, *module.runs.get(name, (1, False)))
        for name, i in module if (kind := i.opcode.removesuffix("-start")) in KINDS
    ]  # fmt: skip


def _collective(
    instruction: Instruction, kind: str, module: Module, runs: int, known: bool
) -> Collective:
    line = instruction.line
    groups = _groups(line, "replica_groups")
    pairs = _groups(line, "source_target_pairs")
    size = len(groups[0]) if groups else module.device_count
    if pairs:
        size = len({position for pair in pairs for position in pair})
    arrays = _payload(instruction.shape, kind, instruction.opcode.endswith("-start"))
    if kind == "reduce-scatter":
        arrays = tuple(_scattered(array, line, size) for array in arrays)
    return Collective(
        kind=kind,
        name=instruction.name,
        arrays=arrays,
        group_size=size,
        groups=groups,
        pairs=pairs,
        runs=runs,
        runs_known=known,
        op_name=instruction.op_name,
        source=module.source(instruction),
    )


def _payload(shape: str, kind: str, started: bool) -> tuple[ArrayShape, ...]:
    """The arrays of a result. A `-start` form also returns its operands, which are omitted."""
    parts = top_level(shape)
    if started and kind != "all-reduce" and len(parts) > 1:
        # (operands, results, contexts…); several operands are tuples inside the tuple.
        parts = top_level(parts[1])
    return tuple(array_in(text) for text in parts)


def _scattered(array: ArrayShape, line: str, size: int) -> ArrayShape:
    """The input of a reduce-scatter on one device, from its output."""
    dimension = re.search(r"\bdimensions=\{(\d+)\}", line)
    axis = int(dimension[1]) if dimension else 0
    sizes = list(array.dimensions)
    sizes[axis] *= size
    return replace(array, dimensions=tuple(sizes))


# ---- groups --------------------------------------------------------------------------------------

_MESH_GROUPS = re.compile(
    r"mesh\[(?P<mesh>[^\]]*)\](?:, device_ids=\((?P<ids>(?:\[[^\]]*\][^)]*\))|[\d,]*)\)?)?"
    r" \{(?P<axes>[^}]*)\}"
)


def _groups(line: str, attribute: str) -> Groups:
    """The groups, in any HLO syntax; empty for `{}`: one group of all devices."""
    _, found, text = line.partition(f" {attribute}=")
    if not found:
        return ()
    if text.startswith("{"):
        listed = re.match(r"\{((?:\{[\d,]*\},?)*)\}", text)
        inner = re.findall(r"\{([\d,]+)\}", listed[1]) if listed else []
        return tuple(tuple(map(int, group.split(","))) for group in inner)
    if text.startswith("["):
        return _iota_groups(text)
    if matched := _MESH_GROUPS.match(text):
        return _mesh_groups(matched)
    raise ValueError(
        f"cannot read {attribute}={text[:80]!r}; known forms: {{{{0,1}},{{2,3}}}}, "
        "[2,2]<=[4], [2,2]<=[2,2]T(1,0) and mesh['x'=2,'y'=2] {'y'}"
    )


def _iota_groups(text: str) -> Groups:
    """`[4,2]<=[2,4]T(1,0)`: an iota of shape (2, 4), transposed, reshaped to 4 groups of 2."""
    matched = re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if matched is None:
        raise ValueError(f"cannot read the device list {text[:60]!r}")
    count, size = integers(matched[1])
    flat = _iota(integers(matched[2]), integers(matched[3] or ""))
    return tuple(tuple(flat[i * size : (i + 1) * size]) for i in range(count))


def _mesh_groups(matched: re.Match) -> Groups:
    """`mesh['x'=4,'y'=2] {'y'}`: devices that differ in `y` only. `'x':(2)2` is a sub-axis."""
    found = re.findall(r"'?([^',=]+)'?=(\d+)", matched["mesh"])
    names, sizes = [name for name, _ in found], [int(size) for _, size in found]
    varying: list[int] = []
    split, mapped = list(sizes), list(range(len(sizes)))  # positions of the axes after splitting
    for name, before, part in re.findall(r"'?([^',:]+)'?(?::\((\d+)\)(\d+))?", matched["axes"]):
        axis = names.index(name)
        if not part:
            varying.append(mapped[axis])
            continue
        at, pieces = mapped[axis], [int(before), int(part)]
        pieces.append(sizes[axis] // math.prod(pieces))
        split[at : at + 1] = pieces
        mapped = [m + 2 * (m > at) for m in mapped]
        varying = [v + 2 * (v > at) for v in varying] + [at + 1]
    kept = [i for i in range(len(split)) if i not in varying]
    order = _iota(split, kept + varying)
    devices = _device_order(matched["ids"], len(order))
    size = math.prod(split[i] for i in varying)
    flat = [devices[i] for i in order]
    return tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))


def _device_order(ids: str | None, count: int) -> Sequence[int]:
    if not ids:
        return range(count)
    if not ids.startswith("["):
        return integers(ids)
    sizes, _, order = ids.partition("T")
    return _iota(integers(sizes), integers(order))


def _iota(sizes: Sequence[int], order: Sequence[int]) -> list[int]:
    """0, 1, 2… with these sizes, then transposed and read in row-major order."""
    grid = np.arange(math.prod(sizes)).reshape(sizes)
    return grid.transpose(order or range(grid.ndim)).ravel().tolist()


# ---- mesh axes and the summary -------------------------------------------------------------------


def mesh_axes(collective: Collective, mesh: Any) -> tuple[Axis, ...] | None:
    """The axes of `mesh` along which a collective communicates, or None if it is not along axes.

    For a sub-axis, as Shardy splits axes, a `SubAxis`. For a collective-permute, the axes along
    which its sources and targets differ.
    """
    return axes_of(collective.groups, collective.pairs, mesh)


def summarize(found: Iterable[Collective], mesh: Any = None) -> list[Summary]:
    """Groups collectives by kind and mesh axes, most bytes first.

    Args:
        found: the result of `collectives`.
        mesh: anything with `mesh.shape`, an ordered mapping from axis names to sizes, with devices
            in the program's order. Without a mesh, groups are distinguished by their size.
    """
    grouped: dict[tuple, list[Collective]] = defaultdict(list)
    for collective in found:
        axes = None if mesh is None else mesh_axes(collective, mesh)
        grouped[collective.kind, axes, collective.group_size].append(collective)
    rows = [
        Summary(
            kind=kind,
            axes=axes,
            group_size=size,
            count=sum(c.runs for c in members),
            elements=sum(c.elements * c.runs for c in members),
            bytes=sum(c.bytes * c.runs for c in members),
            runs_known=all(c.runs_known for c in members),
        )
        for (kind, axes, size), members in grouped.items()
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.kind, str(row.axes), row.group_size))


def table(summary: Sequence[Summary], title: str | None = None) -> Table:
    """A rich table of a summary: a row for each kind and set of axes, and a total."""
    from rich import box
    from rich.table import Table

    many = len(summary) > 1
    out = Table(title=title, box=box.SIMPLE_HEAD, show_footer=many, title_justify="left")
    total = sum(row.bytes for row in summary)
    mark = "" if all(row.runs_known for row in summary) else "+"
    out.add_column("collective", footer="total")
    out.add_column("over")
    count = sum(row.count for row in summary)
    out.add_column("count", justify="right", footer=f"{count}{mark}")
    out.add_column("bytes per device", justify="right", footer=f"{in_bytes(total)}{mark}")
    for row in summary:
        over = over_text(row.axes, row.group_size, row.kind)
        mark = "" if row.runs_known else "+"  # at least: inside a loop of unknown length
        out.add_row(row.kind, over, f"{row.count}{mark}", f"{in_bytes(row.bytes)}{mark}")
    if not summary:
        out.add_row("none", "", "0", "0 B")
    return out

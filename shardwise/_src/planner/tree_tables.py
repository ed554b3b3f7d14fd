"""A table of a pytree's arrays: shapes, dtypes, shardings, total bytes and bytes per device.

    print(explain.tree(params))

Nothing is read or sent: types and shardings are sufficient, also for arrays that span processes,
`ShapeDtypeStruct`s and traced values.

Text and HTML output shows up to `SHOWN` rows. In larger pytrees, arrays whose paths differ only in
numbers, such as those of layers, are merged into one row (`['layers'][*]['w']`, 48 times); after
that, the smallest are summarized in a last row. `to_dict()` has all of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import padded_type, stored_type
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.messages.formatting import columns, in_bytes, pluralize
from shardwise._src.messages.tree_paths import leaf_paths, similar
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.regions import is_abstract
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.sharding import NamedSharding, SingleDeviceSharding
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.visualize.html import STYLE, table_html
from shardwise._src.visualize.svg import escape

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 30  # rows
LONGEST = 56  # characters of a path or a sharding; longer ones lose their middle
HEAD = ("array", "shape", "dtype", "sharding", "elements", "bytes", "per device")
LEFT = 4  # text columns; the other columns are numbers


@dataclass(frozen=True)
class TreeRow:
    """An array of a pytree, or several similar ones.

    place: its sharding as a string: a spec, a device, "host", or "" if unknown.
    elements, bytes: of one array, without padding; None if the shape has symbols, or if the leaf is
        not an array.
    per_device: bytes of the largest shard, including padding.
    count: the number of such arrays.
    """

    path: str
    shape: tuple[Any, ...] | None
    dtype: str
    place: str
    elements: int | None
    bytes: int | None
    per_device: int | None
    count: int = 1

    def to_dict(self) -> dict[str, Any]:
        shape = self.shape
        if shape is not None:
            shape = [n if isinstance(n, int) else str(n) for n in shape]
        return {
            "path": self.path,
            "shape": shape,
            "dtype": self.dtype,
            "sharding": self.place,
            "elements": self.elements,
            "bytes": self.bytes,
            "bytes_per_device": self.per_device,
        }


@public("shardwise.explain")
@dataclass(frozen=True, repr=False)
class TreeTable:
    """The contents of a pytree of arrays, returned by `explain.tree`.

    rows: one for each leaf, in pytree order.
    bytes_per_device: the maximum bytes of all of them on one device.
    dtypes: (arrays, elements, bytes) by dtype, most bytes first.
    meshes: of the shardings, as strings.
    """

    rows: tuple[TreeRow, ...]
    bytes_per_device: int
    dtypes: dict[str, tuple[int, int, int]]
    meshes: tuple[str, ...]

    @property
    def elements(self) -> int:
        return sum([row.elements or 0 for row in self.rows])

    @property
    def bytes(self) -> int:
        """Counts each array once, regardless of how many devices hold it."""
        return sum([row.bytes or 0 for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists only, JSON-serializable. Contains all rows."""
        sums = {
            name: {"arrays": n, "elements": elements, "bytes": size}
            for name, (n, elements, size) in self.dtypes.items()
        }
        return {
            "elements": self.elements,
            "bytes": self.bytes,
            "bytes_per_device": self.bytes_per_device,
            "dtypes": sums,
            "meshes": list(self.meshes),
            "arrays": [row.to_dict() for row in self.rows],
        }

    def __str__(self) -> str:
        lines = columns([HEAD, *map(_cells, self._shown()), self._total()], "<<<<>>>")
        rule = "─" * max(map(len, lines))
        body = [lines[0], rule, *lines[1:-1], rule, lines[-1]]
        return "\n".join([*body, *self._notes()])

    __repr__ = __str__

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table

        out = Table(
            box=box.SIMPLE_HEAD,
            show_footer=True,
            caption="\n".join(self._notes()),
            caption_justify="left",
        )
        for i, (name, foot) in enumerate(zip(HEAD, self._total(), strict=True)):
            if i < LEFT:
                out.add_column(name, foot, overflow="fold")
            else:
                out.add_column(name, foot, justify="right", no_wrap=True)
        for row in self._shown():
            out.add_row(*map(_plain, _cells(row)))
        return out

    def _repr_html_(self) -> str:
        shown = self._shown()
        most = max([(row.bytes or 0) * row.count for row in shown], default=0)
        table = table_html(
            [HEAD, *map(_cells, shown), self._total()],
            LEFT,
            has_foot=True,
            bars=(HEAD.index("bytes"), [_share(row, most) for row in shown]),
        )
        notes = "".join([f'<div style="opacity:.8">{escape(t)}</div>' for t in self._notes()])
        return f'<figure style="{STYLE}">{table}{notes}</figure>'

    def _shown(self) -> list[TreeRow]:
        return folded(self.rows, SHOWN)

    def _total(self) -> tuple[str, ...]:
        arrays = sum([row.bytes is not None for row in self.rows])
        return (
            pluralize(arrays, "array"),
            "",
            "",
            "",
            f"{self.elements:,}",
            in_bytes(self.bytes),
            in_bytes(self.bytes_per_device),
        )

    def _notes(self) -> Iterator[str]:
        if len(self.dtypes) > 1:
            rows = self.dtypes.items()
            sums = [f"{x}: {pluralize(n, 'array')}, {in_bytes(size)}" for x, (n, _, size) in rows]
            yield "; ".join(sums)
        for mesh in self.meshes:
            yield f"over {mesh}"
        unknown = sum([row.shape is not None and row.bytes is None for row in self.rows])
        if unknown:
            yield f"{pluralize(unknown, 'array')} of symbolic shapes, not in the totals"


# --------------------------------------------------------------------------------- making tables


def tree(x: Any) -> TreeTable:
    """A table of the arrays of a pytree: their types, shardings and sizes.

    Args:
      x: a pytree of arrays, NumPy arrays and `ShapeDtypeStruct`s (such as results of `eval_shape`),
        traced values and refs. Other leaves are listed with no size.

    Returns:
      A `TreeTable`: prints as text, shows as a table in notebooks, and converts to data with
      `to_dict()`. An array that occurs twice has two rows, and counts twice except per device.
    """
    leaves, _ = flatten(x)
    paths = leaf_paths(x) if len(leaves) != 1 or leaves[0] is not x else ["x"]
    seen: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    rows: list[TreeRow] = []
    held: dict[int, tuple[tuple[Any, ...], int]] = {}
    meshes: dict[str, None] = {}
    for path, leaf in zip(paths, leaves, strict=True):
        row, sharding = _row(path, leaf)
        rows.append(row)
        if row.bytes is not None:
            sums = (1, row.elements or 0, row.bytes)
            seen[row.dtype] = [a + b for a, b in zip(seen[row.dtype], sums, strict=True)]
        if sharding is not None and row.per_device is not None:
            held[id(leaf)] = _devices(sharding), row.per_device
        if isinstance(sharding, NamedSharding):
            meshes[_mesh_text(sharding.mesh)] = None
    by_size = sorted(seen.items(), key=lambda item: -item[1][2])
    dtypes = {name: (a, b, c) for name, (a, b, c) in by_size}
    return TreeTable(tuple(rows), _fullest(held.values()), dtypes, tuple(meshes))


def _row(path: str, leaf: Any) -> tuple[TreeRow, Any]:
    """A leaf's row, and its sharding."""
    if isinstance(leaf, np.ndarray):
        size, name = leaf.size, leaf.dtype.name
        return TreeRow(path, leaf.shape, name, "host", size, leaf.nbytes, None), None
    if is_ref(leaf):
        return _row(path, leaf[...])
    plain = TreeRow(path, None, type(leaf).__name__, "", None, None, None), None
    if isinstance(leaf, bool | int | float | complex):
        return plain
    try:
        t = type_of(leaf)
    except TypeError:
        return plain
    is_array = isinstance(leaf, Array) and not isinstance(leaf, Tracer)
    is_placed = is_array or isinstance(leaf, ShapeDtypeStruct)
    sharding = leaf.sharding if is_placed else t.explicit_sharding
    place = "" if sharding is None else _place_text(sharding, t.ndim)
    if isinstance(leaf, Array) and is_array and leaf.is_deleted():
        return TreeRow(path, t.shape, str(t.dtype), "deleted", t.size, 0, None), None
    if any([isinstance(n, Symbolic) for n in t.shape]):
        return TreeRow(path, t.shape, str(t.dtype), place, None, None, None), sharding
    stored = stored_type(t)
    size = stored.size * stored.dtype.itemsize
    each = None if sharding is None else _shard_bytes(t, sharding)
    return TreeRow(path, t.shape, str(t.dtype), place, t.size, size, each), sharding


def _shard_bytes(t: Any, sharding: Any) -> int:
    buffer = padded_type(t, sharding)
    return math.prod(sharding.tile_shape(buffer.shape)) * buffer.dtype.itemsize


def _place_text(sharding: Any, ndim: int) -> str:
    kind = getattr(sharding, "_memory_kind", None)
    kind = f" in {kind}" if kind else ""
    if isinstance(sharding, NamedSharding):
        return f"{sharding.spec}{kind}"
    if isinstance(sharding, SingleDeviceSharding):
        device = sharding.devices[0]
        return f"{device.platform.upper()} {device.id}{kind}"
    tiles = " × ".join(map(str, sharding.tiling(ndim).dims)) or "1"
    cut = "replicated" if sharding.is_fully_replicated else f"{tiles} tiles"
    return f"{cut} on {pluralize(sharding.num_devices, 'device')}{kind}"


def _mesh_text(mesh: Any) -> str:
    sizes = ", ".join([f"{name}: {n}" for name, n in mesh.shape.items()])
    kind = "an abstract mesh of" if isinstance(mesh, AbstractMesh) else "a mesh of"
    return f"{kind} {pluralize(mesh.size, 'device')} ({sizes})"


def _devices(sharding: Any) -> tuple[Any, ...]:
    """Identifies devices: the devices themselves, or their positions in an abstract mesh."""
    return tuple(range(sharding.num_devices)) if is_abstract(sharding) else sharding.devices


def _fullest(held: Any) -> int:
    """The maximum bytes on one device; held: pairs of an array's devices and the bytes on each."""
    together: Counter[tuple[Any, ...]] = Counter()
    for devices, size in held:
        together[devices] += size
    on: Counter[Any] = Counter()
    for devices, size in together.items():
        on.update(dict.fromkeys(devices, size))
    return max(on.values(), default=0)


# ------------------------------------------------------------------------------------ shown rows


def folded(rows: Sequence[TreeRow], most: int) -> list[TreeRow]:
    """At most `most` rows: merges similar ones, and summarizes the smallest in a last row."""
    if len(rows) <= most:
        return list(rows)
    alike = similar(rows, lambda row: (row.path, row.shape, row.dtype, row.place, row.bytes))
    found = [replace(same[0], path=path, count=len(same)) for path, same in alike]
    if len(found) <= most:
        return found
    order = sorted(range(len(found)), key=lambda i: -(found[i].bytes or 0) * found[i].count)
    kept = [found[i] for i in sorted(order[: most - 1])]
    return [*kept, _rest([found[i] for i in order[most - 1 :]])]


def _rest(rows: Sequence[TreeRow]) -> TreeRow:
    def total(name: str) -> int | None:
        known = [n * row.count for row in rows if (n := getattr(row, name)) is not None]
        return sum(known) if known else None

    number = sum([row.count for row in rows])
    elements, size, each = map(total, ("elements", "bytes", "per_device"))
    return TreeRow(f"… and {number:,} smaller", None, "", "", elements, size, each)


def _cells(row: TreeRow) -> tuple[str, ...]:
    path, place = _middle(row.path), _middle(row.place)
    if row.count > 1:
        path = f"{path} ({row.count:,} times)"
    shape = "" if row.shape is None else str(row.shape)
    elements = "" if row.elements is None else f"{row.elements * row.count:,}"
    sizes = ["" if n is None else in_bytes(n * row.count) for n in (row.bytes, row.per_device)]
    return (path, shape, row.dtype, place, elements, *sizes)


def _middle(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    half = (LONGEST - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def _plain(text: str) -> str:
    """Text without rich markup."""
    return text.replace("[", r"\[")


def _share(row: TreeRow, most: int) -> float:
    """A row's bytes, as a fraction of the largest row's."""
    return (row.bytes or 0) * row.count / most if most else 0.0

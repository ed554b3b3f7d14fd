"""FlatBuffers: tables of numbered optional fields, written and read with a schema.

    POINT = Table("point", x=(0, U16), name=(1, TEXT), more=(2, Many(POINT)))
    data = write(POINT, {"x": 3, "more": [{"x": 4}]})
    read(POINT, data)              # {"x": 3, "name": None, "more": [...]}

Bytes are untrusted: all reads are within bounds, and an offset out of bounds raises `Damaged`.
Fields that are not in the schema are ignored. Sizes have at most four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

DEPTH = 200  # maximum nesting of containers


class Damaged(Exception):
    """Describes what is wrong with the bytes; the message follows a colon."""


class Scalar(NamedTuple):
    code: str  # format character of module `struct`


class Many(NamedTuple):
    of: Any


class Table:
    """A schema: maps fields to numbers and kinds. `add` supports fields of the table's own kind."""

    def __init__(self, name: str, /, **fields: tuple[int, Any]):
        self.name = name
        self.fields = fields

    def add(self, **fields: tuple[int, Any]) -> Table:
        self.fields.update(fields)
        return self


U8, I8, U16, I16, U32, BOOL = map(Scalar, "BbHhI?")
TEXT, BYTES = "text", "bytes"


def write(table: Table, values: Mapping[str, Any]) -> bytes:
    """Serializes a table; fields with value None are omitted."""
    out = bytearray(4)
    _put(out, 0, "I", _add_table(out, table, values))
    return bytes(out)


def _put(out: bytearray, at: int, code: str, value: Any) -> None:
    struct.pack_into("<" + code, out, at, value)


def _align(out: bytearray) -> int:
    out += bytes(-len(out) % 4)
    return len(out)


def _add(out: bytearray, kind: Any, value: Any) -> int:
    """Appends a value; returns its position."""
    if isinstance(kind, Table):
        return _add_table(out, kind, value)
    at = _align(out)
    if kind in (TEXT, BYTES):
        data = value.encode() + b"\0" if kind == TEXT else value
        out += struct.pack("<I", len(data) - (kind == TEXT)) + data
    elif isinstance(kind.of, Scalar):
        out += struct.pack(f"<I{len(value)}{kind.of.code}", len(value), *value)
    else:
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for i, item in enumerate(value):
            _refer(out, at + 4 + 4 * i, kind.of, item)
    return at


def _refer(out: bytearray, cell: int, kind: Any, value: Any) -> None:
    """Appends a value and stores its offset in the cell."""
    _put(out, cell, "I", _add(out, kind, value) - cell)


def _add_table(out: bytearray, table: Table, values: Mapping[str, Any]) -> int:
    rows = [(*table.fields[n], v) for n, v in values.items() if v is not None]
    cells = {number: 4 + 4 * i for i, (number, _, _) in enumerate(rows)}
    count = max(cells, default=-1) + 1
    begin = _align(out)
    places = [cells.get(i, 0) for i in range(count)]
    out += struct.pack(f"<HH{count}H", 4 + 2 * count, 4 + 4 * len(rows), *places)
    at = _align(out)
    out += struct.pack("<i", at - begin) + bytes(4 * len(rows))
    for number, kind, value in rows:
        cell = at + cells[number]
        if isinstance(kind, Scalar):
            _put(out, cell, kind.code, value)
        else:
            _refer(out, cell, kind, value)
    return at


def read(table: Table, data: bytes) -> dict[str, Any]:
    """The fields of the root table of the bytes; None for absent fields.

    Raises:
      Damaged: an offset is out of bounds, or a string is not valid text.
    """
    reader = _Reader(data)
    return reader.table(table, reader.referred(0), 0)


class _Reader:
    def __init__(self, data: bytes):
        self._data = data
        self._left = len(data)  # bounds the number of values read: each takes bytes

    def number(self, code: str, at: int) -> Any:
        end = at + struct.calcsize("<" + code)
        if at < 0 or end > len(self._data):
            raise Damaged(f"they refer to byte {end}, which is past their end")
        return struct.unpack_from("<" + code, self._data, at)[0]

    def referred(self, cell: int) -> int:
        return cell + self.number("I", cell)

    def table(self, table: Table, at: int, depth: int) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or depth > DEPTH:
            raise Damaged(f"its {table.name} is longer than the bytes")
        fields = at - self.number("i", at)
        count = (self.number("H", fields) - 4) // 2
        found: dict[str, Any] = {}
        for name, (number, kind) in table.fields.items():
            place = self.number("H", fields + 4 + 2 * number) if number < count else 0
            found[name] = (
                self._value(kind, at + place, depth, f"{table.name}.{name}") if place else None
            )
        return found

    def _value(self, kind: Any, cell: int, depth: int, what: str) -> Any:
        if isinstance(kind, Scalar):
            return self.number(kind.code, cell)
        at = self.referred(cell)
        if isinstance(kind, Table):
            return self.table(kind, at, depth + 1)
        count = self.number("I", at)
        if kind in (TEXT, BYTES):
            return self._bytes(at + 4, count, kind, what)
        of = kind.of
        size = struct.calcsize("<" + of.code) if isinstance(of, Scalar) else 4
        self._check(at + 4, count * size, what)
        if isinstance(of, Scalar):
            return list(struct.unpack_from(f"<{count}{of.code}", self._data, at + 4))
        self._left -= count
        return [self._value(of, at + 4 + 4 * i, depth + 1, what) for i in range(count)]

    def _check(self, at: int, size: int, what: str) -> None:
        if at + size > len(self._data):
            raise Damaged(f"{what} ends at byte {at + size} of {len(self._data)}")

    def _bytes(self, at: int, size: int, kind: str, what: str) -> Any:
        self._check(at, size, what)
        found = self._data[at : at + size]
        if kind == BYTES:
            return found
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise Damaged(f"{what} is not valid UTF-8") from None

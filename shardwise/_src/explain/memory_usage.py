"""Memory usage of a compiled program, according to XLA's buffer assignment.

XLA assigns each value of a program a range in one of several allocations: for arguments, results
and constants, and one for all temporaries, in which values that are not live at the same time share
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

# Field numbers: xla/service/hlo.proto.
_LOGICAL, _ALLOCATION = 1, 3  # BufferAssignmentProto
_ID, _SIZE, _DEFINED = 1, 2, 3  # LogicalBufferProto
_INDEX, _INSTRUCTION = 3, 4  # LogicalBufferProto.Location
_THREAD, _PARAMETER, _NUMBER, _LIVE_OUT, _ASSIGNED, _TUPLE, _CONSTANT = 3, 5, 6, 7, 9, 11, 12
_BUFFER, _OFFSET, _BYTES = 1, 2, 3  # BufferAllocationProto.Assigned
_COMPUTATION, _INSTRUCTIONS, _NAME, _UNIQUE = 3, 2, 1, 35  # HloModuleProto and its messages

NONE = ("", ())
Kind = str  # "argument", "result", "donated", "temporary", "constant"


class Place(NamedTuple):
    """A memory range: its kind, and the instruction that defines its value, or its largest value.

    parameter: the parameter number of an argument; -1 for other kinds. part: for an instruction
    with a tuple result, the tuple index, outermost first.
    """

    bytes: int
    kind: Kind
    instruction: str
    parameter: int
    part: tuple[int, ...] = ()


Maker = tuple[str, tuple[int, ...]]  # an instruction, and the index into its tuple result


def places(assignment: bytes, module: bytes) -> list[Place]:
    """All allocations of one device, largest first; the one for temporaries is split into ranges.

    Ranges are disjoint: the largest of the values that share memory represents them.
    """
    names = _instruction_names(module)
    makers: dict[int, Maker] = {}
    found: list[Place] = []
    for field, value in _fields(assignment):
        if field == _LOGICAL:
            buffer = dict(_fields(value))
            where = dict(_fields(buffer.get(_DEFINED, b"")))
            name = names.get(where.get(_INSTRUCTION, 0), "")
            makers[buffer.get(_ID, 0)] = name, _numbers(where.get(_INDEX, b""))
    for field, value in _fields(assignment):
        if field == _ALLOCATION:
            found += _of_allocation(list(_fields(value)), makers)
    return sorted(found, key=lambda p: -p.bytes)


def _of_allocation(fields: list[tuple[int, Any]], makers: dict[int, Maker]) -> list[Place]:
    single = dict(fields)
    size = single.get(_SIZE, 0)
    assigned = [dict(_fields(value)) for field, value in fields if field == _ASSIGNED]
    if single.get(_THREAD) or single.get(_TUPLE) or not size:
        return []
    number = single.get(_NUMBER, 0) if single.get(_PARAMETER) else -1
    last, part = makers.get(assigned[-1].get(_BUFFER, 0), NONE) if assigned else NONE
    if single.get(_PARAMETER):
        return [Place(size, "donated" if single.get(_LIVE_OUT) else "argument", last, number)]
    if single.get(_LIVE_OUT):
        return [Place(size, "result", last, -1, part)]
    if single.get(_CONSTANT):
        return [Place(size, "constant", last, -1)]
    ranges = [(a.get(_BYTES, 0), a.get(_OFFSET, 0), makers.get(a.get(_BUFFER, 0), NONE))
              for a in assigned]  # fmt: skip
    parts = []
    taken: list[tuple[int, int]] = []
    for size, offset, maker in sorted(ranges, key=lambda r: (-r[0], r[1])):
        end = offset + size
        if all([end <= start or offset >= stop for start, stop in taken]):
            taken.append((offset, end))
            parts.append(Place(size, "temporary", maker[0], -1, maker[1]))
    return parts


def _instruction_names(module: bytes) -> dict[int, str]:
    computations = [value for field, value in _fields(module) if field == _COMPUTATION]
    instructions = [
        dict(_fields(value))
        for computation in computations
        for field, value in _fields(computation) if field == _INSTRUCTIONS
    ]  # fmt: skip
    return {one.get(_UNIQUE, 0): one[_NAME].decode() for one in instructions}


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: numbers; length-delimited fields as bytes."""
    at, end = 0, len(message)
    while at < end:
        key, at = _number(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(message, at)
        else:
            size, at = _number(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = message[at : at + size], at + size
        yield key >> 3, value


def _numbers(packed: bytes | int) -> tuple[int, ...]:
    """A repeated number; also accepts a single one."""
    if isinstance(packed, int):
        return (packed,)
    found, at = [], 0
    while at < len(packed):
        number, at = _number(packed, at)
        found.append(number)
    return tuple(found)


def _number(message: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = message[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at

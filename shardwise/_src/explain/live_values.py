"""The largest values of a compiled program, from its schedule, if its compiler does not report its
buffers.

The instructions of a scheduled module are in the order in which they run. Between its definition
and its last use a value takes memory, except that some instructions only rename values. What is
alive where that is largest is what the program's temporaries are for. Padding and sharing of
memory are not visible, so the sum is not exactly the size that the compiler reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from shardwise._src.explain.hlo import Instruction, Module
from shardwise._src.explain.memory_usage import Place

_RENAMES = ("bitcast", "get-tuple-element", "tuple", "while", "async-update", "opt-barrier",
            "parameter", "constant")  # fmt: skip
_ELSEWHERE = re.compile(r"S\([1-9]\d*\)")  # not in the main memory of the device
_DONATED = re.compile(r"\((\d+), \{[^}]*\}, (?:may|must)-alias\)")


class Alive(NamedTuple):
    """The values that are alive when a computation needs most memory."""

    bytes: int
    values: list[Instruction]


def live_values(module: Module) -> list[Place]:
    """Arguments, results and temporaries of a module's entry, largest first."""
    entry = module.computations[module.entry]
    donated = {int(n) for n in _DONATED.findall(module.text.partition("\n")[0])}
    found: list[Place] = []
    for i in entry:
        if i.opcode == "parameter" and (number := i.number) is not None:
            kind = "donated" if number in donated else "argument"
            found.append(Place(i.bytes, kind, i.name, number))
    results = _results(entry)
    found += [Place(_bytes(i), "result", i.name, -1) for i in results.values() if _counts(i)]
    temporary = _alive(module, module.entry).values
    found += [Place(_bytes(i), "temporary", i.name, -1) for i in temporary if i.name not in results]
    return sorted(found, key=lambda place: -place.bytes)


def _results(instructions: Sequence[Instruction]) -> dict[str, Instruction]:
    """The instructions whose values a computation returns."""
    known = {i.name: i for i in instructions}
    front, found = [i for i in instructions if i.root], dict[str, Instruction]()
    while front:
        i = front.pop()
        if i.opcode in ("tuple", "bitcast", "get-tuple-element") or i.opcode.endswith("-done"):
            front += [known[name] for name in i.operands if name in known]
        else:
            found[i.name] = i
    return found


def _counts(i: Instruction) -> bool:
    """Whether an instruction makes a value in the main memory."""
    return not _is_renaming(i) and not _ELSEWHERE.search(i.shape)


def _is_renaming(i: Instruction) -> bool:
    """Whether the result is made of the operands: also where an operation ends that was started."""
    return i.opcode in _RENAMES or i.opcode.endswith("-done")


def _bytes(i: Instruction) -> int:
    """The size of the memory that an instruction takes for its result.

    The result of a start contains the operands too: they come first for collectives, and last for
    copies.
    """
    if not i.opcode.endswith("-start") or i.opcode == "all-reduce-start":
        return i.bytes
    arrays = i.arrays
    if i.opcode == "copy-start":
        return arrays[0].bytes
    return sum([a.bytes for a in arrays[len(i.operands) : 2 * len(i.operands)]])


def _alive(module: Module, name: str) -> Alive:
    instructions = module.computations.get(name, [])
    last = _last_uses(instructions)
    most, living, alive = Alive(0, []), 0, dict[str, Instruction]()
    ends: dict[int, list[Instruction]] = {}
    for at, i in enumerate(instructions):
        if _counts(i):
            alive[i.name] = i
            living += _bytes(i)
            ends.setdefault(last.get(i.name, at), []).append(i)
        inside = [Alive(0, [])]
        if i.opcode in ("while", "call", "conditional"):
            inside += [_alive(module, callee) for callee, _ in i.called]
        deepest = max(inside, key=lambda one: one.bytes)
        if living + deepest.bytes > most.bytes:
            most = Alive(living + deepest.bytes, [*alive.values(), *deepest.values])
        for gone in ends.pop(at, []):
            del alive[gone.name]
            living -= _bytes(gone)
    return most


def _last_uses(instructions: Sequence[Instruction]) -> dict[str, int]:
    """For each value, the number of the last instruction that uses it, under any name."""
    last: dict[str, int] = {}
    for at in range(len(instructions) - 1, -1, -1):
        i = instructions[at]
        until = last.get(i.name, at) if _is_renaming(i) else at
        until = len(instructions) if i.root else until
        for operand in i.operands:
            last[operand] = max(last.get(operand, 0), until)
    return last

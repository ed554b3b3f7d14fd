"""All-reduces that are reduce-scatters: each device keeps only its part of the sum.

TPU's compiler runs such an all-reduce and its slices as one operation, a fusion. CPU's compiler
leaves them apart, and compilers for GPUs make a reduce-scatter of them; so a report that estimates
another machine from the program for CPUs counts them as that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from shardwise._src.explain.communication import Collective
from shardwise._src.explain.hlo import ArrayShape, Instruction, Module

_SAME = ("bitcast", "copy", "convert")  # between a sum and its slice


def _by_number(i: Instruction) -> int:
    return i.number or 0


class ScatteredSums:
    """The reduce-scatters of a module.

    elsewhere: whether slices in other fusions count, too.
    """

    def __init__(self, module: Module, elsewhere: bool):
        self.module, self.elsewhere = module, elsewhere

    def read(self, c: Collective) -> Collective:
        """The collective, as a reduce-scatter if it is one."""
        if c.kind != "all-reduce" or c.group_size < 2:
            return c
        home = self.homes[c.name]
        if not self.elsewhere and home not in self.fused:
            return c
        whole = self.results(home, c.name, len(c.arrays))
        kept = [
            users and all([self.takes_part(i, name, a, c.group_size) for i in users])
            for a, (name, users) in zip(c.arrays, whole, strict=True)
        ]
        return replace(c, kind="reduce-scatter") if kept and all(kept) else c

    def results(self, home: str, name: str, count: int) -> list[tuple[str, list[Instruction]]]:
        """Each result of a collective with its users, by its name."""
        users = self.users[home, name]
        if count == 1 and not any(i.opcode == "get-tuple-element" for i in users):
            return [(name, users)]
        parts = sorted([i for i in users if i.opcode == "get-tuple-element"], key=_by_number)
        found = [(i.name, self.users[home, i.name]) for i in parts]
        return found if len(found) == count else [(name, [])] * count

    def takes_part(self, i: Instruction, of: str, array: ArrayShape, parts: int) -> bool:
        """Whether an instruction uses only a device's part of a value."""
        home = self.homes[i.name]
        if i.opcode == "dynamic-slice" and i.operands[0] == of:
            return _is_part(i.arrays[0], array, parts)
        if i.opcode in _SAME and i.arrays[0].dimensions == array.dimensions:
            users = self.users[home, i.name]
            return bool(users) and all([self.takes_part(u, i.name, array, parts) for u in users])
        if i.opcode != "fusion":
            return False
        inside = i.called[0][0]
        for number in [n for n, operand in enumerate(i.operands) if operand == of]:
            parameter = self.parameters[inside][number]
            users = self.users[inside, parameter]
            if not users or not all([self.takes_part(u, parameter, array, parts) for u in users]):
                return False
        return True

    @cached_property
    def homes(self) -> dict[str, str]:
        """The computation of each instruction."""
        return {i.name: name for name, i in self.module}

    @cached_property
    def users(self) -> dict[tuple[str, str], list[Instruction]]:
        """The instructions that use a value, by computation and name."""
        found: dict[tuple[str, str], list[Instruction]] = defaultdict(list)
        for name, i in self.module:
            for operand in dict.fromkeys(i.operands):
                found[name, operand].append(i)
        return found

    @cached_property
    def parameters(self) -> dict[str, Sequence[str]]:
        """The names of a computation's parameters, by number."""
        return {
            name: [i.name for i in sorted(found, key=_by_number)]
            for name, all_ in self.module.computations.items()
            if (found := [i for i in all_ if i.opcode == "parameter"])
        }

    @cached_property
    def fused(self) -> set[str]:
        """The computations that are one operation."""
        return {name for _, i in self.module if i.opcode == "fusion" for name, _ in i.called}


def _is_part(part: ArrayShape, whole: ArrayShape, count: int) -> bool:
    """Whether an array is 1 / count of another along one dimension."""
    pairs = list(zip(part.dimensions, whole.dimensions, strict=True))
    return [(a, b) for a, b in pairs if a != b] in [[(b // count, b)] for _, b in pairs]

"""Parses optimized HLO as printed by XLA: instructions by computation, and how often each runs.

    module = read(compiled.as_text())
    for name, instructions in module.computations.items(): ...

This module only parses text: it needs no devices and no compiler.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from shardwise._src.explain.trip_counts import trip_count


@dataclass(frozen=True)
class ArrayShape:
    """One array of a collective's payload, for example `f32[2,8]`."""

    dtype: str
    dimensions: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.dimensions)

    @property
    def bytes(self) -> int:
        return -(-self.elements * _bits(self.dtype) // 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dimensions))}]"


_NUMBERED = re.compile(r" parameter\((\d+)\)|\bindex=(\d+)")
# An array whose layout names another memory, such as TPU's VMEM: `f32[8]{0:T(128)S(1)}`.
_IN_FAST_MEMORY = re.compile(r"\w+\[[\d,]*\]\{[^{}]*S\([1-9]\d*\)[^{}]*\}")


@dataclass(frozen=True)
class Instruction:
    """One line: `name = shape opcode(operands), rest`.

    frame: the id of its stack frame (`Module.sources`); op_name: from its metadata.
    trips: of a loop, how often it runs; None if that is unknown.
    """

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    line: str
    root: bool
    trips: int | None = None

    @cached_property
    def arrays(self) -> tuple[ArrayShape, ...]:
        """All arrays of the result."""
        return tuple([array_in(m[0]) for m in _ARRAY.finditer(self.shape)])

    @property
    def bytes(self) -> int:
        return sum([a.bytes for a in self.arrays])

    @property
    def main_bytes(self) -> int:
        """The bytes of its result that are in the main memory of a device."""
        shape = _IN_FAST_MEMORY.sub("", self.shape)
        return sum([array_in(m[0]).bytes for m in _ARRAY.finditer(shape)])

    @property
    def number(self) -> int | None:
        """The number of a parameter, or of the element of a tuple."""
        found = _NUMBERED.search(self.line)
        return None if found is None else int(found[1] or found[2])

    @property
    def op_name(self) -> str:
        found = _OP_NAME.search(self.line)
        return found[1] if found else ""

    def attribute(self, name: str) -> str:
        """The text within the braces of `name={…}`, or ''."""
        found = re.search(rf"\b{name}=\{{([^}}]*)\}}", self.line)
        return found[1] if found else ""

    @cached_property
    def called(self) -> list[tuple[str, int | None]]:
        """The computations that it runs, each with the number of runs (None: unknown)."""
        if self.opcode in ("async-update", "async-done"):  # counted at async-start
            return []
        times = self.trips if self.opcode == "while" else 1
        return [
            (name.strip().lstrip("%"), times)
            for _, names in _CALLED.findall(self.line)
            for name in names.strip("{}").split(",")
        ]


@dataclass(frozen=True)
class Module:
    """computations: instructions by computation name; entry: the name of the entry computation."""

    computations: dict[str, list[Instruction]]
    entry: str
    device_count: int
    text: str

    @cached_property
    def sources(self) -> dict[int, str]:
        """`file:line` by stack frame id."""
        return _source_lines(self.text)

    @cached_property
    def runs(self) -> dict[str, tuple[int, bool]]:
        """How often each computation runs in one execution, and whether this is known."""
        total: dict[str, tuple[int, bool]] = defaultdict(lambda: (0, True))

        def visit(name: str, times: int, known: bool) -> None:
            before, before_known = total[name]
            total[name] = (before + times, before_known and known)
            for instruction in self.computations.get(name, ()):
                for callee, factor in instruction.called:
                    often = times * (1 if factor is None else factor)
                    visit(callee, often, known and factor is not None)

        visit(self.entry, 1, True)
        return total

    def __iter__(self) -> Iterator[tuple[str, Instruction]]:
        """All instructions in textual order, each with the name of its computation."""
        for name, instructions in self.computations.items():
            for instruction in instructions:
                yield name, instruction

    def source(self, instruction: Instruction) -> str:
        """`file:line` of an instruction, or ''."""
        frame = re.search(r"stack_frame_id=(\d+)", instruction.line)
        if frame:
            return self.sources.get(int(frame[1]), "")
        # The older form, with file and line in each instruction.
        inline = re.search(r'source_file="([^"]*)"(?: source_line=(\d+))?', instruction.line)
        return f"{inline[1]}:{inline[2] or '?'}" if inline else ""


def integers(text: str) -> list[int]:
    """The numbers in a text."""
    return [int(n) for n in re.findall(r"\d+", text)]


# ---- reading -------------------------------------------------------------------------------------

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[^\s=]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9-]*)\("
)
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[^\s(]+) (?:\(.*\) -> .*)?\{$")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<=]*)\]")
_CALLED = re.compile(
    r"\b(body|condition|calls|to_apply|true_computation|false_computation|branch_computations"
    r"|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_OPERAND = re.compile(r"%([\w.\-]+)")


def read(text: Any, who: str = "collectives") -> Module:
    """Parses a module from text, or from an object with `as_text`.

    Raises:
      ValueError: the text is not optimized HLO, for instance the text of a lowered function.
    """
    if not isinstance(text, str):
        text = text.as_text()
    if "stablehlo." in text:
        raise ValueError(
            f"{who} takes optimized HLO; got the StableHLO of a function that is lowered but not "
            "compiled. Collectives appear only in a compiled function: "
            f"{who}(f.lower(...).compile())."
        )
    computations: dict[str, list[Instruction]] = {}
    here: list[Instruction] = []
    entry = ""
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            here = computations[header["name"]] = []
            entry = header["name"] if header["entry"] else entry
        elif found := _INSTRUCTION.match(line):
            here.append(_instruction(found, line))
    for instructions in computations.values():
        instructions[:] = [_with_trips(i, instructions, computations) for i in instructions]
    return Module(computations, entry, _device_count(text), text)


def _with_trips(
    i: Instruction, around: list[Instruction], computations: dict[str, list[Instruction]]
) -> Instruction:
    """An instruction; a loop has the number of its runs, if the compiler states or shows it."""
    if i.opcode != "while":
        return i
    stated = _TRIP_COUNT.search(i.line)
    return replace(i, trips=int(stated[1]) if stated else trip_count(i, around, computations))


def _instruction(found: re.Match[str], line: str) -> Instruction:
    depth, end = 1, found.end()
    while depth and end < len(line):
        depth += (line[end] == "(") - (line[end] == ")")
        end += 1
    operands = tuple(_OPERAND.findall(line[found.end() : end]))
    name, shape, opcode = found["name"], found["shape"], found["opcode"]
    return Instruction(name, shape, opcode, operands, line, line.lstrip().startswith("ROOT "))


def top_level(shape: str) -> list[str]:
    """Splits `(f32[2,8]{1,0}, (s32[], u32[]))` at commas outside brackets."""
    if not shape.startswith("("):
        return [shape]
    parts, depth, start = [], 0, 1
    for i, letter in enumerate(shape):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or depth == 0:
            parts.append(shape[start:i].strip())
            start = i + 1
    return [re.sub(r"/\*.*?\*/", "", part).strip() for part in parts if part]


def array_in(text: str) -> ArrayShape:
    matched = _ARRAY.search(text)
    if matched is None:
        raise ValueError(f"expected the shape of an array such as f32[2,8]{{1,0}}, got {text!r}")
    return ArrayShape(matched[1], tuple(integers(matched[2])))


def _bits(dtype: str) -> int:
    """`f8e4m3fn` → 8, `bf16` → 16, `c64` → 64; booleans have 8 bits, tokens none."""
    if dtype in ("token", "opaque"):
        return 0
    if dtype == "pred":
        return 8
    return integers(dtype)[0]


def _device_count(hlo_text: str) -> int:
    header = hlo_text.split("\n", 1)[0]
    counts = re.findall(r"(?:num_partitions|replica_count)=(\d+)", header)
    return math.prod(map(int, counts))


def _source_lines(hlo_text: str) -> dict[int, str]:
    """Stack frame id → `file:line`, from the tables at the start of the module."""
    files, places, frames = [
        dict(re.findall(row, _section(hlo_text, title), re.MULTILINE))
        for title, row in (
            ("FileNames", r'^(\d+) "(.*)"$'),
            ("FileLocations", r"^(\d+) \{file_name_id=(\d+ .*?\bline=\d+)"),
            ("StackFrames", r"^(\d+) \{file_location_id=(\d+)"),
        )
    ]
    lines = {}
    for frame, place in frames.items():
        if place in places:
            file, *_, line = integers(places[place])
            lines[int(frame)] = f"{files.get(str(file), '?')}:{line}"
    return lines


def _section(hlo_text: str, title: str) -> str:
    _, found, rest = hlo_text.partition(f"\n{title}\n")
    return rest.split("\n\n", 1)[0] if found else ""

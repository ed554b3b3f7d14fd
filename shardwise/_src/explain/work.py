"""Counts the computation and memory traffic of one device, in optimized HLO.

Matrix products and convolutions are counted by their shapes, with two operations per multiply-add;
other arithmetic counts as one operation per result element. Loops count once per iteration. Bytes
are those read and written by instructions that are not fused into others; if an operand is only
sliced, or updated in place, only the affected part counts.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardwise._src.explain.hlo import Instruction, Module

# Instructions that neither compute nor move data, or whose parts are counted separately.
_FREE = {
    "parameter", "tuple", "get-tuple-element", "bitcast", "constant", "while", "conditional",
    "call", "after-all", "partition-id", "replica-id", "opt-barrier", "domain", "copy-done",
    "async-done", "async-update",
}
_MOVES = {
    "copy", "copy-start", "transpose", "reshape", "broadcast", "slice", "dynamic-slice",
    "dynamic-update-slice", "concatenate", "pad", "reverse", "iota", "gather", "fusion",
    "custom-call", "bitcast-convert", "all-reduce", "all-gather", "all-to-all", "reduce-scatter",
    "collective-permute", "collective-broadcast", "ragged-all-to-all", "rng-bit-generator",
    "sort", "async-start", "send", "recv", "infeed", "outfeed",
}
_COMPLEX = {"c64": 4, "c128": 4}  # real multiplications per complex one


@dataclass(frozen=True)
class Work:
    """flops: of matrix products and convolutions, by dtype; elementwise: of the rest.

    bytes: read and written. uncounted: names of foreign functions, whose work is unknown.
    known: false if a loop runs an unknown number of times; it is counted once.
    """

    flops: dict[str, int]
    elementwise: int
    bytes: int
    uncounted: tuple[str, ...] = ()
    known: bool = True
    by_op: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values()) + self.elementwise


DtypeOf = Callable[[Instruction], str]


def _made(i: Instruction) -> str:
    return i.arrays[0].dtype


def work_of(module: Module, dtype_of: DtypeOf = _made) -> Work:
    """The work of one execution on one device. by_op: flops and bytes by instruction name.

    dtype_of: returns the dtype in which an instruction computes a product; by default the result's.
    """
    counter = _Counter(module, dtype_of)
    counter.visit(module.entry, 1, fused=False)
    return Work(
        dict(counter.flops), counter.elementwise, counter.bytes,
        tuple(sorted(counter.uncounted)), counter.known, dict(counter.by_op),
    )  # fmt: skip


class _Counter:
    def __init__(self, module: Module, dtype_of: DtypeOf) -> None:
        self.module, self.dtype_of = module, dtype_of
        self.flops: dict[str, int] = defaultdict(int)
        self.elementwise = self.bytes = 0
        self.uncounted: set[str] = set()
        self.known = True
        self.by_op: dict[str, tuple[int, int]] = {}

    def visit(self, name: str, times: int, fused: bool, owner: str = "") -> None:
        instructions = self.module.computations.get(name, [])
        shapes = {i.name: i for i in instructions}
        for i in instructions:
            self._count(i, shapes, times, fused, owner)
            if i.opcode in ("fusion", "call", "conditional", "while", "async-start"):
                inner = owner or (i.name if i.opcode == "fusion" else "")
                for called, factor in i.called:
                    self.known = self.known and factor is not None
                    often = times * (1 if factor is None else factor)
                    self.visit(called, often, fused or i.opcode == "fusion", inner)

    def _count(
        self, i: Instruction, shapes: dict[str, Instruction], times: int, fused: bool, owner: str
    ) -> None:
        if i.opcode in _FREE:
            return
        operands = [shapes[o] for o in i.operands if o in shapes]
        flops, moved = 0, 0
        if i.opcode == "custom-call":
            target = re.search(r'custom_call_target="([^"]*)"', i.line)
            self.uncounted.add(target[1] if target else "?")
        elif i.opcode == "fft":
            flops = times * _transform(i)
            self.elementwise += flops
        elif i.opcode in ("dot", "convolution"):
            flops = times * (_dot if i.opcode == "dot" else _convolution)(i, operands)
            self.flops[self.dtype_of(i)] += flops
        elif i.opcode in ("reduce", "reduce-window", "scatter", "map", "select-and-scatter"):
            flops = times * sum([a.elements for o in operands[:1] for a in o.arrays])
            self.elementwise += flops
        elif i.opcode not in _MOVES:
            flops = times * sum([a.elements for a in i.arrays])
            self.elementwise += flops
        if not fused:
            moved = times * self._moved(i, operands)
            self.bytes += moved
        before = self.by_op.get(owner or i.name, (0, 0))
        self.by_op[owner or i.name] = before[0] + flops, before[1] + moved

    def _moved(self, i: Instruction, operands: Sequence[Instruction]) -> int:
        if i.opcode == "fusion":
            return self._moved_by_fusion(i, operands)
        if i.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * i.bytes
        if i.opcode == "dynamic-update-slice":
            return 2 * operands[1].bytes if len(operands) > 1 else i.bytes
        return i.bytes + sum([o.bytes for o in operands])

    def _moved_by_fusion(self, i: Instruction, operands: Sequence[Instruction]) -> int:
        inside = self.module.computations.get(i.called[0][0], []) if i.called else []
        users: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
        for one in inside:
            for at, operand in enumerate(one.operands):
                users[operand].append((at, one))
        parameters = [one for one in inside if one.opcode == "parameter"]
        parameters.sort(key=lambda p: int(re.findall(r"parameter\((\d+)\)", p.line)[0]))
        shapes = {one.name: one for one in inside}
        total = sum([_read(p, users[p.name]) for p in parameters])
        root = next((one for one in inside if one.root), None)
        while root is not None and root.opcode == "bitcast" and root.operands[0] in shapes:
            root = shapes[root.operands[0]]
        if root is not None and root.opcode == "dynamic-update-slice":
            return total + shapes[root.operands[1]].bytes
        return total + i.bytes


def _read(parameter: Instruction, users: Sequence[tuple[int, Instruction]]) -> int:
    """How many bytes of a fusion operand are read."""
    if all([at == 0 and u.opcode in ("dynamic-slice", "slice", "gather") for at, u in users]):
        return min(parameter.bytes, sum([u.bytes for _, u in users]))
    if all([at == 0 and u.opcode == "dynamic-update-slice" for at, u in users]):
        return 0
    return parameter.bytes


def _integers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _dot(i: Instruction, operands: Sequence[Instruction]) -> int:
    out = i.arrays[0]
    if not operands:
        return 0
    dims = operands[0].arrays[0].dimensions
    shared = math.prod([dims[d] for d in _integers(i.attribute("lhs_contracting_dims"))])
    return 2 * _COMPLEX.get(out.dtype, 1) * out.elements * shared


def _transform(i: Instruction) -> int:
    """Five operations per element and factor of two, as in radix-2 algorithms."""
    sizes = _integers(i.attribute("fft_length"))
    return round(5 * i.arrays[0].elements * math.log2(max(2, math.prod(sizes))))


def _convolution(i: Instruction, operands: Sequence[Instruction]) -> int:
    """Counts as if no window extended beyond the edge."""
    out = i.arrays[0]
    labels = re.search(r"dim_labels=\w+_(\w+)->", i.line)
    if len(operands) < 2 or labels is None:
        return 0
    kernel = operands[1].arrays[0].dimensions
    each = math.prod([n for n, label in zip(kernel, labels[1], strict=True) if label != "o"])
    return 2 * _COMPLEX.get(out.dtype, 1) * out.elements * each

"""Counts the computation and memory traffic of one device, in optimized HLO.

Matrix products and convolutions are counted by their shapes, with two operations per multiply-add;
other arithmetic counts as one operation per result element. Loops count once per iteration. Bytes
are those read and written by instructions that are not fused into others; if an operand is only
sliced, or updated in place, only the affected part counts. Values in a fast memory, such as TPU's
VMEM, do not count.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shardwise._src.explain.hlo import Instruction, Module, integers
from shardwise._src.explain.library_calls import products_of_call
from shardwise._src.explain.report_data import Computation

# Instructions that neither compute nor move data, or whose parts are counted separately.
_FREE = {
    "parameter",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "constant",
    "while",
    "conditional",
    "call",
    "after-all",
    "partition-id",
    "replica-id",
    "opt-barrier",
    "domain",
    "copy-done",
    "async-done",
    "async-update",
}
_MOVES = {
    "copy",
    "copy-start",
    "transpose",
    "reshape",
    "broadcast",
    "slice",
    "dynamic-slice",
    "dynamic-update-slice",
    "concatenate",
    "pad",
    "reverse",
    "iota",
    "gather",
    "fusion",
    "custom-call",
    "bitcast-convert",
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
    "rng-bit-generator",
    "sort",
    "async-start",
    "send",
    "recv",
    "infeed",
    "outfeed",
}


DtypeOf = Callable[[Instruction], str]


class CallWork(NamedTuple):
    """The work of a custom call: as in `Computation`."""

    flops: Mapping[str, int]
    elementwise: int
    bytes: int


CallOf = Callable[[Instruction], CallWork | None]


def _made(i: Instruction) -> str:
    return i.arrays[0].dtype


def _unknown(i: Instruction) -> None:
    return None


def work_of(module: Module, dtype_of: DtypeOf = _made, call_of: CallOf = _unknown) -> Computation:
    """The work of one execution on one device.

    dtype_of: returns the dtype in which an instruction computes a product; by default the result's.
    call_of:  returns the work of a custom call; None if it is not known.
    """
    counter = _Counter(module, dtype_of, call_of)
    counter.visit(module.entry, 1, fused=False)
    return Computation(
        dict(counter.flops), counter.elementwise, counter.bytes,
        tuple(sorted(counter.uncounted)), counter.known,
    )  # fmt: skip


class _Counter:
    def __init__(self, module: Module, dtype_of: DtypeOf, call_of: CallOf) -> None:
        self.module, self.dtype_of, self.call_of = module, dtype_of, call_of
        self.flops: dict[str, int] = defaultdict(int)
        self.elementwise = self.bytes = 0
        self.uncounted: set[str] = set()
        self.known = True

    def visit(self, name: str, times: int, fused: bool) -> None:
        instructions = self.module.computations.get(name, [])
        shapes = {i.name: i for i in instructions}
        for i in instructions:
            self._count(i, [shapes[o] for o in i.operands if o in shapes], times, fused)
            if i.opcode in ("fusion", "call", "conditional", "while", "async-start"):
                for called, factor in i.called:
                    self.known = self.known and factor is not None
                    often = times * (1 if factor is None else factor)
                    self.visit(called, often, fused or i.opcode == "fusion")

    def _count(
        self, i: Instruction, operands: Sequence[Instruction], times: int, fused: bool
    ) -> None:
        if i.opcode in _FREE:
            return
        if i.opcode == "custom-call":
            found = re.search(r'custom_call_target="([^"]*)"', i.line)
            target = found[1] if found else "?"
            products = products_of_call(i, target, operands)
            known = self.call_of(i) if products is None else None
            if known is not None:
                self._add(known, times)
                return
            if products is None:
                self.uncounted.add(target)
            else:
                self.flops[self.dtype_of(i)] += times * 2 * products
        elif i.opcode == "fft":
            self.elementwise += times * _transform(i)
        elif i.opcode in ("dot", "convolution"):
            count = _dot if i.opcode == "dot" else _convolution
            self.flops[self.dtype_of(i)] += times * count(i, operands)
        elif i.opcode in ("reduce", "reduce-window", "scatter", "map", "select-and-scatter"):
            self.elementwise += times * sum([a.elements for o in operands[:1] for a in o.arrays])
        elif i.opcode not in _MOVES:
            self.elementwise += times * sum([a.elements for a in i.arrays])
        if not fused:
            self.bytes += times * self._moved(i, operands)

    def _add(self, work: CallWork, times: int) -> None:
        for dtype, n in work.flops.items():
            self.flops[dtype] += times * n
        self.elementwise += times * work.elementwise
        self.bytes += times * work.bytes

    def _moved(self, i: Instruction, operands: Sequence[Instruction]) -> int:
        if i.opcode == "fusion":
            return self._moved_by_fusion(i, operands)
        if i.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * i.main_bytes
        if i.opcode == "dynamic-update-slice":
            return 2 * operands[1].main_bytes if len(operands) > 1 else i.main_bytes
        if i.opcode.endswith("-start") and i.opcode != "all-reduce-start":
            return i.main_bytes  # its result contains the operands
        return i.main_bytes + sum([o.main_bytes for o in operands])

    def _moved_by_fusion(self, i: Instruction, operands: Sequence[Instruction]) -> int:
        inside = self.module.computations.get(i.called[0][0], []) if i.called else []
        users: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
        for one in inside:
            for at, operand in enumerate(one.operands):
                users[operand].append((at, one))
        parameters = [one for one in inside if one.opcode == "parameter"]
        parameters.sort(key=lambda p: p.number or 0)
        shapes = {one.name: one for one in inside}
        total = sum([_read(p, users[p.name]) for p in parameters])
        root = next((one for one in inside if one.root), None)
        while root is not None and root.opcode == "bitcast" and root.operands[0] in shapes:
            root = shapes[root.operands[0]]
        if root is not None and root.opcode == "dynamic-update-slice":
            return total + shapes[root.operands[1]].main_bytes
        return total + i.main_bytes


def _read(parameter: Instruction, users: Sequence[tuple[int, Instruction]]) -> int:
    """How many bytes of a fusion operand are read."""
    if all([at == 0 and u.opcode in ("dynamic-slice", "slice", "gather") for at, u in users]):
        return min(parameter.main_bytes, sum([u.main_bytes for _, u in users]))
    if all([at == 0 and u.opcode == "dynamic-update-slice" for at, u in users]):
        return 0
    return parameter.main_bytes


def _products(dtype: str) -> int:
    """Real multiplications per multiplication."""
    return 4 if dtype in ("c64", "c128") else 1


def _dot(i: Instruction, operands: Sequence[Instruction]) -> int:
    out = i.arrays[0]
    if not operands:
        return 0
    dims = operands[0].arrays[0].dimensions
    shared = math.prod([dims[d] for d in integers(i.attribute("lhs_contracting_dims"))])
    return 2 * _products(out.dtype) * out.elements * shared


def _transform(i: Instruction) -> int:
    """Five operations per element and factor of two, as in radix-2 algorithms."""
    sizes = integers(i.attribute("fft_length"))
    return round(5 * i.arrays[0].elements * math.log2(max(2, math.prod(sizes))))


def _convolution(i: Instruction, operands: Sequence[Instruction]) -> int:
    """Counts the elements that meet: neither padding nor the holes of dilated operands, which TPUs'
    compiler uses to write batched products as convolutions."""
    out = i.arrays[0]
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", i.line)
    if len(operands) < 2 or labels is None:
        return 0
    image, kernel = operands[0].arrays[0].dimensions, operands[1].arrays[0].dimensions
    names = [label for label in labels[2] if label.isdigit()]
    other = [n for n, label in zip(out.dimensions, labels[3], strict=True) if label not in names]
    total = math.prod(other) * kernel[labels[2].index("i")]
    for at, name in enumerate(sorted(names, key=int)):
        sizes = image[labels[1].index(name)], out.dimensions[labels[3].index(name)]
        total *= _pairs(*sizes, *_window(i.attribute("window"), at))
    return 2 * _products(out.dtype) * total


def _window(text: str, at: int) -> tuple[int, ...]:
    """The size, stride, lower padding and dilations of a window in one dimension."""
    values = dict([part.split("=") for part in text.split()])
    numbers = {name: value.split("x") for name, value in values.items()}
    low = int(numbers["pad"][at].split("_")[0]) if "pad" in numbers else 0
    size, stride, base, dilation = [
        int(numbers[name][at]) if name in numbers else 1
        for name in ("size", "stride", "lhs_dilate", "rhs_dilate")
    ]
    return size, stride, low, base, dilation


def _pairs(n: int, results: int, size: int, stride: int, low: int, base: int, dilation: int) -> int:
    """How many pairs of a result and an element of its window meet an element of the operand, of
    size `n` before it is dilated by `base`."""
    total, common = 0, math.gcd(stride, base)
    for k in range(size):
        offset = k * dilation - low  # result r meets position r * stride + offset
        first = max(-(offset // stride), 0)
        last = min(((n - 1) * base - offset) // stride, results - 1)
        if last < first or offset % common:
            continue
        period = base // common
        while (first * stride + offset) % base:
            first += 1
        total += max((last - first) // period + 1, 0)
    return total

"""The arithmetic of calls to libraries, which HLO has as custom calls: cuBLAS and cuDNN.

Their operands have the shapes of the operations that they replace; what is contracted, and how
dimensions are named, is in their attributes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from shardwise._src.explain.hlo import ArrayShape, Instruction

_CONTRACTED = re.compile(r'"lhs_contracting_dimensions":\s*\[([\d", ]*)\]')
_SCORES = re.compile(r'"intermediate_tensor_shape":.*?"dimensions":\s*\[([\d", ]*)\]')
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_FORWARD, _BACKWARD = 2, 5  # matrix products of an attention


def products_of_call(i: Instruction, target: str, operands: Sequence[Instruction]) -> int | None:
    """Multiplications of a library call's products, real ones; None for other calls."""
    if len(operands) < 2:
        return None
    arrays = [i.arrays[0], operands[0].arrays[0], operands[1].arrays[0]]
    if target.startswith("__cublas$"):
        return _product(i, arrays)
    if target.startswith("__cudnn$conv"):
        return _convolution(i, target, arrays)
    if target.startswith("__cudnn$fmha"):
        return _attention(i, target, arrays)
    return None


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _product(i: Instruction, arrays: Sequence[ArrayShape]) -> int | None:
    out, left, _ = arrays
    found = _CONTRACTED.search(i.line)
    if found is None:
        return None
    shared = math.prod([left.dimensions[d] for d in _numbers(found[1])])
    return (4 if out.dtype in ("c64", "c128") else 1) * out.elements * shared


def _convolution(i: Instruction, target: str, arrays: Sequence[ArrayShape]) -> int | None:
    """By the names of the forward convolution, also for its derivatives."""
    labels = _LABELS.search(i.line)
    if labels is None:
        return None
    made, left, right = arrays
    kernel, out = right, made
    if target.endswith("BackwardFilter"):
        kernel, out = made, right
    elif target.endswith("BackwardInput"):
        kernel, out = right, left
    return out.elements * kernel.elements // kernel.dimensions[labels[2].index("o")]


def _attention(i: Instruction, target: str, arrays: Sequence[ArrayShape]) -> int | None:
    found = _SCORES.search(i.line)
    if found is None:
        return None
    head = arrays[1].dimensions[-1]
    count = _BACKWARD if "Backward" in target else _FORWARD
    return count * math.prod(_numbers(found[1])) * head

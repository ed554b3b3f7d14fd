"""Reduces a failing program to the smallest one that still fails.

Each reduction is tried in the child process, and retained if the program still fails: results and
arguments' shardings are dropped, intermediate values become arguments, steps are replaced by an
operand, arrays lose rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.values.programs.make import Line, Program
from tests.values.programs.placements import Placement, alone, without_results
from tests.values.programs.worker import Task, Worker

Case = tuple[Program, Placement]


def shrunk(
    worker: Worker, program: Program, placement: Placement, wrong: str, seconds: float
) -> tuple[Program, Placement, str]:
    """The smallest case found in this time, and its failure."""
    case: Case = (program, placement)
    ends = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in cuts(case):
            if time.monotonic() > ends:
                break
            answer = worker.ask(Task(program=smaller[0], placements=(smaller[1],)))
            found = [text for at, text in answer.faults if at == 0]
            if found and _alike(found[0], wrong):
                case, wrong, progress = smaller, found[0], True
                break
    return (*case, wrong)


def _alike(found: str, wrong: str) -> bool:
    """Distinguishes errors from wrong values."""
    return _kind(found) == _kind(wrong)


def _kind(text: str) -> str:
    if text.startswith(("the process", "no answer")):
        return text[:11]
    is_error = re.match(r"\w*(Error|Failure)", text)
    return text[:20] if is_error else "value"


def cuts(case: Case) -> Iterator[Case]:
    """Smaller cases, the largest reductions first."""
    yield from _fewer_results(case)
    yield from _later_starts(case)
    yield from _bypassed(case)
    yield from _simpler_places(case)
    yield from _fewer_rows(case)


def tidy(program: Program, placement: Placement) -> Case:
    """Without lines and arguments that no result needs."""
    needed, lines = set(program.outputs), []
    for line in reversed(program.lines):
        if needed & set(line.targets):
            lines.append(line)
            needed |= _names(line.text)
    inputs = {k: v for k, v in program.inputs.items() if k in needed}
    if not inputs:
        inputs = dict(list(program.inputs.items())[:1])
    ins = {k: placement.ins.get(k) for k in inputs}
    return replace(program, inputs=inputs, lines=tuple(lines[::-1])), replace(placement, ins=ins)


def _names(text: str) -> set[str]:
    return set(re.findall(r"\b(?:[abc]|v\d+[ab]?)\b", text))


def _fewer_results(case: Case) -> Iterator[Case]:
    program, placement = case
    n = len(program.outputs)
    halves = [list(range(n // 2)), list(range(n // 2, n))] if n > 2 else []
    ones = [[j for j in range(n) if j != i] for i in range(n)] if n > 1 else []
    for kept in halves + ones:
        fewer = replace(program, outputs=tuple(program.outputs[i] for i in kept))
        yield tidy(fewer, without_results(placement, kept))


def _later_starts(case: Case) -> Iterator[Case]:
    """Intermediate values as arguments: NumPy host arrays, computed on one device."""
    program, placement = case
    for line in reversed(program.lines):
        for name in line.targets:
            if name in program.outputs and len(program.outputs) == 1:
                continue
            value = _value(program, name)
            if value is None:
                continue
            lines = tuple(
                replace(other, targets=tuple("_" if t == name else t for t in other.targets))
                for other in program.lines
            )
            later = replace(program, inputs={**program.inputs, name: value}, lines=lines)
            used = any(name in _names(other.text) for other in lines)
            if used:
                for spec in _specs(value.ndim):
                    yield tidy(later, replace(placement, ins={**placement.ins, name: spec}))


def _specs(rank: int) -> list:
    return [None, *[(*[None] * i, "x", *[None] * (rank - 1 - i)) for i in range(rank)]]


def _value(program: Program, name: str) -> np.ndarray | None:
    only, _ = tidy(replace(program, outputs=(name,)), Placement((1,), {}))
    try:
        return np.asarray(alone(only)[0])
    except Exception:
        return None


def _bypassed(case: Case) -> Iterator[Case]:
    """Replaces a step by one of its operands."""
    program, placement = case
    for i, line in enumerate(program.lines):
        if len(line.targets) > 1:
            continue
        for name in sorted(_names(line.text)):
            if line.text == name:
                continue
            lines = [*program.lines[:i], Line(line.targets, name), *program.lines[i + 1 :]]
            yield tidy(replace(program, lines=tuple(lines)), placement)


def _simpler_places(case: Case) -> Iterator[Case]:
    program, p = case
    if p.poison:
        yield program, replace(p, poison=False)
    if p.explicit:
        yield program, replace(p, explicit=False)
    for name, spec in p.ins.items():
        if spec is not None:
            yield program, replace(p, ins={**p.ins, name: None})
    if p.outs is not None:
        yield program, replace(p, outs=None)
        for i, spec in enumerate(p.outs):
            if spec is not None:
                yield program, replace(p, outs=(*p.outs[:i], None, *p.outs[i + 1 :]))
    if len(p.sizes) == 2:
        for axis in "xy":
            yield program, _one_axis(p, axis)
    for n in range(2, p.sizes[0]):
        yield program, replace(p, sizes=(n, *p.sizes[1:]))


def _one_axis(p: Placement, axis: str) -> Placement:
    def only(spec):
        if spec is None:
            return None
        return tuple("x" if s is not None and axis in s else None for s in spec)

    outs = None if p.outs is None else tuple(map(only, p.outs))
    size = p.sizes["xy".index(axis)]
    return replace(p, sizes=(size,), ins={k: only(s) for k, s in p.ins.items()}, outs=outs)


def _fewer_rows(case: Case) -> Iterator[Case]:
    program, placement = case
    for name, value in program.inputs.items():
        for axis, n in enumerate(value.shape):
            if n > 1:
                for m in {1, n // 2, n - 1}:
                    less = np.take(value, range(m), axis)
                    yield replace(program, inputs={**program.inputs, name: less}), placement
        simple = np.arange(1, value.size + 1).reshape(value.shape).astype(value.dtype)
        if value.dtype.kind not in "b" and value.size and not _equal(simple, value):
            yield replace(program, inputs={**program.inputs, name: simple}), placement


def _equal(x: np.ndarray, y: np.ndarray) -> bool:
    return x.tobytes() == y.tobytes()

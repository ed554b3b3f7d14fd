"""Checks of an op's `batch` rule against a Python loop.

Tests every subset of operands (all subsets for up to three operands, otherwise single ones and all
of them), with the batch dimension first, last, and in different positions; and nested batching.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.basis import move_axis
from shardwise._src.running.eager import EAGER
from shardwise._src.testing.running import Bundle
from shardwise._src.testing.sample import Report, Sample
from shardwise._src.transforms.batch import batch, to_dim

SIZE = 3
OUTER = 2


class _Loop:
    """The op's results for each combination of argument values, run one by one."""

    def __init__(self, op: Op, sample: Sample):
        self.function = functools.partial(sample.apply, op)
        self.values = [
            [np.asarray(sample.variant(i, k)) for k in range(SIZE)] for i in range(len(sample.args))
        ]
        self._found: dict[tuple[int, ...], list[np.ndarray]] = {}

    def at(self, choice: tuple[int, ...]) -> list[np.ndarray]:
        """The results if argument i has its value with index `choice[i]`."""
        if choice not in self._found:
            args = [EAGER.array(v[k]) for v, k in zip(self.values, choice, strict=True)]
            self._found[choice] = [np.asarray(r) for r in self.function(*args)]
        return self._found[choice]

    def along(self, count: int, choose: Callable[[int], tuple[int, ...]]) -> list[np.ndarray]:
        rows = [self.at(choose(k)) for k in range(count)]
        return [np.stack(results) for results in zip(*rows, strict=True)]


def check_batch(op: Op, sample: Sample, report: Report) -> None:
    """Compares batched runs of the op with a loop."""
    count = len(sample.args)
    if count == 0 or op.batch is None or not sample.batched:
        return
    try:
        loop = _Loop(op, sample)
        loop.at((0,) * count)
    except Exception:
        return  # reported by the value check
    singles = [np.asarray(a) for a in sample.args]
    stacked = [np.stack(v) for v in loop.values]
    outer = [v[:OUTER] for v in stacked]
    nested = [np.stack([v, np.roll(v, -1, 0)]) for v in stacked]
    bundle = Bundle(report, [*singles, *stacked, *outer, *nested])
    expected: dict[str, list[np.ndarray]] = {}
    ranks = [v.ndim for v in singles]
    for places in _few_placements(ranks) if sample.heavy else _placements(ranks):
        name = f"batch dimensions {places}"
        bundle.add(name, functools.partial(_batched, loop.function, places))
        chosen = tuple(p is not None for p in places)
        expected[name] = loop.along(SIZE, lambda k, c=chosen: tuple(k * b for b in c))
    for name, outer, inner in _nestings(1 if sample.heavy else count, count):
        bundle.add(name, functools.partial(_nested, loop.function, outer, inner))
        expected[name] = _nested_loop(loop, outer, inner)
    for name, results in bundle.run().items():
        for i, (came, wanted) in enumerate(zip(results, expected[name], strict=True)):
            if not report.compare(f"{name} (result {i})", came, wanted, sample.tolerance):
                break


def _placements(ranks: list[int]) -> Iterator[tuple[int | None, ...]]:
    """The batch dimension of each operand; None if it is not batched."""
    count = len(ranks)
    sizes = range(1, count + 1) if count <= 3 else (1, count)
    for size in sizes:
        for subset in itertools.combinations(range(count), size):
            yield from dict.fromkeys(
                tuple(
                    None if i not in subset else ranks[i] if i in last else 0 for i in range(count)
                )
                for last in _ends(subset)
            )


def _few_placements(ranks: list[int]) -> Iterator[tuple[int | None, ...]]:
    """Each operand alone, with its batch dimension last; then all, first and last alternately."""
    for i, rank in enumerate(ranks):
        yield tuple(rank if k == i else None for k in range(len(ranks)))
    if len(ranks) > 1:
        yield tuple(rank if i % 2 else 0 for i, rank in enumerate(ranks))


def _ends(subset: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Which operands of a subset have the batch dimension last: none, all, every second one."""
    ends = [(), subset]
    return [*ends, subset[1::2]] if len(subset) > 1 else ends


def _batched(fun: Callable, places: tuple[int | None, ...], *args: Any) -> list[Any]:
    count = len(places)
    values = [
        args[i] if p is None else move_axis(args[count + i], 0, p) for i, p in enumerate(places)
    ]
    return _batched_in_front(fun, values, list(places), SIZE)


def _batched_in_front(
    fun: Callable, values: Sequence[Any], dims: list[int | None], size: int
) -> list[Any]:
    """The batched results, with the batch dimension first."""
    outs, found = batch(fun, values, dims, size)
    return [to_dim(o, d, 0, size) for o, d in zip(outs, found, strict=True)]


def _nestings(kinds: int, count: int) -> Iterator[tuple[str, tuple[bool, ...], tuple[bool, ...]]]:
    everything = (True,) * count
    yield "batch of batch", everything, everything
    if kinds > 1:
        first = tuple(i == 0 for i in range(count))
        others = tuple(i != 0 for i in range(count))
        yield "batch of batch (outer: operand 0, inner: the others)", first, others


def _nested(
    fun: Callable, outer: tuple[bool, ...], inner: tuple[bool, ...], *args: Any
) -> list[Any]:
    """args: for each operand, its single, stacked, outer and nested value, in groups."""
    count = len(outer)
    marks = zip(outer, inner, strict=True)
    values = [args[(2 * o + i) * count + k] for k, (o, i) in enumerate(marks)]

    def inside(*xs: Any) -> list[Any]:
        return _batched_in_front(fun, xs, [0 if i else None for i in inner], SIZE)

    return _batched_in_front(inside, values, [0 if o else None for o in outer], OUTER)


def _nested_loop(loop: _Loop, outer: tuple[bool, ...], inner: tuple[bool, ...]) -> list[np.ndarray]:
    def choice(j: int, k: int) -> tuple[int, ...]:
        return tuple((j * o + k * i) % SIZE for o, i in zip(outer, inner, strict=True))

    rows = [loop.along(SIZE, functools.partial(choice, j)) for j in range(OUTER)]
    return [np.stack(results) for results in zip(*rows, strict=True)]

"""Complete training steps: mostly XLA's time, so equality is the goal, with equal communication."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks import gpt
from benchmarks.libs import DEVICES, Lib
from benchmarks.runner import Case, Row

# `%x = f32[8,128]{1,0} all-reduce(...)`; the result may be a tuple, the op may have a start half.
COLLECTIVE = re.compile(
    r"= (?P<type>\((?:[^()]|\([\d,]*\))*\)|\S+) "
    r"(?P<op>all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(-start)?\("
)
COMMENT = re.compile(r"/\*.*?\*/")  # `/*index=5*/` inside long tuples
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def collectives(hlo: str) -> Counter[str]:
    """How often each collective occurs in compiled HLO text: `{"all-reduce 3×f32[1024]": 2}`.

    Arrays count by their number of elements: a gradient that is reduced in its transposed form is
    the same communication.
    """
    found: Counter[str] = Counter()
    for match in COLLECTIVE.finditer(COMMENT.sub("", hlo)):
        sized = [
            f"{dtype}[{math.prod(map(int, filter(None, sizes.split(','))))}]"
            for dtype, sizes in ARRAY.findall(match["type"])
        ]
        arrays = Counter(sorted(sized))  # layouts, order do not matter
        parts = (f"{count}×{array}" if count > 1 else array for array, count in arrays.items())
        found[" ".join((match["op"], *parts))] += 1
    return found


def replicated(path: tuple[str, ...]) -> tuple[str | None, ...]:
    return ()


def tensor_parallel(path: tuple[str, ...]) -> tuple[str | None, ...]:
    """Columns of the first product of a block, rows of the second; the rest replicated."""
    if path[-1] in ("query", "key", "value", "up"):
        return (None, "tp")
    return ("tp", None) if path[-1] in ("out", "down") else ()


def fully_sharded(path: tuple[str, ...]) -> tuple[str | None, ...]:
    return () if path[-1] == "count" else ("dp",)


def place(tree: Any, leaf: Callable[[tuple[str, ...]], Any], path: tuple[str, ...] = ()) -> Any:
    """The tree with each leaf replaced by `leaf(path)`."""
    if isinstance(tree, dict):
        return {key: place(value, leaf, (*path, key)) for key, value in tree.items()}
    if isinstance(tree, list):
        return [place(value, leaf, (*path, str(i))) for i, value in enumerate(tree)]
    return leaf(path)


def one_device(lib: Lib) -> Case:
    return stepping(lib, {})


def sharded(
    rule: Callable[[tuple[str, ...]], tuple[str | None, ...]], **axes: int
) -> Callable[[Lib], Case]:
    def setup(lib: Lib) -> Case:
        mesh = lib.mesh(**axes)
        state = gpt.initial(gpt.STEADY)
        params, moments = (place(part, lambda p: lib.named(mesh, *rule(p))) for part in state)
        rows = lib.named(mesh, "dp", None)
        return stepping(
            lib,
            {
                "in_shardings": (params, moments, rows, rows),
                # Specified, so that a step's results can be passed to the next step without
                # recompilation.
                "out_shardings": (params, moments, lib.named(mesh)),
            },
        )

    return setup


def stepping(lib: Lib, options: dict[str, Any]) -> Case:
    """The step compiled ahead of time; each call continues from the state of the last."""
    arguments: Any = (*gpt.initial(gpt.STEADY), *gpt.batch(gpt.STEADY))
    put = lib.root.device_put
    arguments = put(arguments, options["in_shardings"]) if options else put(arguments)
    case = continuing(lib, lib.root.jit(gpt.make_step(lib, gpt.STEADY), **options), arguments)
    if options and not case.facts:
        raise RuntimeError("a sharded step communicates, but its HLO text shows no collective")
    return case


def continuing(lib: Lib, step: Any, arguments: Any) -> Case:
    """A jitted step, and what it sends; each call continues from the state of the last."""
    params, moments, tokens, targets = arguments
    found = collectives(step.lower(*arguments).compile().as_text())
    state = (params, moments)

    def call() -> Any:
        nonlocal state
        params, moments, loss = step(*state, tokens, targets)
        state = lib.root.block_until_ready((params, moments))
        return loss

    return Case(call, found)


ROWS = (
    Row("step.1_device", 1.0, one_device, clock="wall"),
    Row("step.dp8", 1.0, sharded(replicated, dp=DEVICES), clock="wall"),
    Row("step.dp4_tp2", 1.0, sharded(tensor_parallel, dp=4, tp=2), clock="wall"),
    Row("step.fsdp8", 1.0, sharded(fully_sharded, dp=DEVICES), clock="wall"),
)

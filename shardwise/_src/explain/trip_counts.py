"""How often loops run whose compiler does not state it: counters from a constant to a constant.

The condition compares an element of the loop's tuple with a constant, the loop starts with a
constant there, and the body adds a constant to it:

    condition: get-tuple-element(arg), index=0 < constant(24)     body: element 0 = element 0 + 1

A bound or a step may also be an element that the loop starts with and does not change. Loops of any
other form are of unknown length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r" constant\((-?\d+)\)")
_CALLED = {name: re.compile(rf"\b{name}=%?([\w.\-]+)") for name in ("condition", "body")}
_DIRECTION = re.compile(r"\bdirection=(\w+)")
_SAME = {"copy", "bitcast", "convert", "reshape"}
_MOST = 16  # instructions that a value is traced through

Computation = Sequence[Any]  # of `hlo.Instruction`s


def trip_count(
    loop: Any, around: Computation, computations: Mapping[str, Computation]
) -> int | None:
    """The number of runs of a `while` in a computation; None if it is unknown."""
    parts = [pattern.search(loop.line) for pattern in _CALLED.values()]
    condition, body = [computations.get(part[1], ()) if part else () for part in parts]
    start, result = _definition(around, loop.operands[0]), _root(body)
    compared, direction = _root(condition), _DIRECTION.search(getattr(_root(condition), "line", ""))
    if not (_is(start, "tuple") and _is(result, "tuple") and _is(compared, "compare")):
        return None

    def first(element: int) -> int | None:
        return _constant(around, start.operands[element])

    def fixed(within: Computation, name: str) -> int | None:
        """A constant, or an element that the loop does not change."""
        element = _element(within, name)
        if element is None:
            return _constant(within, name)
        same = _element(body, result.operands[element]) == element
        return first(element) if same else None

    left, right = compared.operands
    counter, bound = _element(condition, left), fixed(condition, right)
    if counter is None or bound is None or direction is None:
        return None
    begin, step = first(counter), _step(body, result.operands[counter], counter, fixed)
    if begin is None or not step:
        return None
    distance = {"LT": bound - begin, "LE": bound - begin + 1, "NE": bound - begin,
                "GT": bound - begin, "GE": bound - begin - 1}.get(direction[1])  # fmt: skip
    goes_up = direction[1] in ("LT", "LE") or (direction[1] == "NE" and step > 0)
    if distance is None or goes_up != (step > 0):
        return None
    if direction[1] == "NE" and distance % step:  # it does not meet its bound
        return None
    return max(-(-distance // step), 0)


def _step(
    body: Computation, name: str, counter: int, fixed: Callable[[Computation, str], int | None]
) -> int | None:
    """What the body adds to the counter."""
    made = _definition(body, name)
    if not (_is(made, "add") or _is(made, "subtract")):
        return None
    left, right = made.operands
    if _element(body, left) != counter and made.opcode == "add":
        left, right = right, left
    step = fixed(body, right) if _element(body, left) == counter else None
    return -step if step is not None and made.opcode == "subtract" else step


def _definition(within: Computation, name: str) -> Any:
    """The instruction that makes a value, behind copies; None if it is elsewhere."""
    made = None
    for _ in range(_MOST):
        made = next((i for i in within if i.name == name), None)
        if made is None or made.opcode not in _SAME or len(made.operands) != 1:
            break
        name = made.operands[0]
    return made


def _root(computation: Computation) -> Any:
    return next((i for i in computation if i.root), None)


def _is(instruction: Any, opcode: str) -> bool:
    return instruction is not None and instruction.opcode == opcode


def _element(within: Computation, name: str) -> int | None:
    """The number of the element of the computation's parameter that a value is."""
    made = _definition(within, name)
    if not _is(made, "get-tuple-element"):
        return None
    of_parameter = _is(_definition(within, made.operands[0]), "parameter")
    return made.number if of_parameter else None


def _constant(within: Computation, name: str) -> int | None:
    made = _definition(within, name)
    number = _NUMBER.search(made.line) if _is(made, "constant") else None
    return int(number[1]) if number else None

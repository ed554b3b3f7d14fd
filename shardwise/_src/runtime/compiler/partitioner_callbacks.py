"""Custom calls that are partitioned by user functions, with a *question* for each call.

    name = ask(question)       # the `backend_config` of a call of TARGET in a module's text

`question.answer(ins, outs)` gets the shape and tiles of each operand and result, once the
partitioner knows them; it returns the module of one device and the tiles that it is for. A question
is referenced weakly: its caller must keep it alive. The text is valid only in this process.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from jaxlib import _hlo
from jaxlib import xla_client as xc

from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.runtime.compiler.partitioner import of_users
from shardwise._src.runtime.compiler.runtime_shardings import tiles_of
from shardwise._src.runtime.platforms import Platform

TARGET = "shardwise_functions"


class Tiles(NamedTuple):
    """The sharding of an operand or result; sharding: that of XLA, or None if unknown."""

    shape: tuple[int, ...]
    sharding: xc.HloSharding | None


class Question(Protocol):
    """failure: the last exception of `answer`."""

    failure: BaseException | None

    def answer(
        self, ins: Sequence[Tiles], outs: Sequence[Tiles]
    ) -> tuple[str, Sequence[Any], Sequence[Any]]:
        """The text, and the `Tiling` of each operand and result."""
        ...


_open: WeakValueDictionary[str, Any] = WeakValueDictionary()
_numbers = itertools.count()
_registered: set[Any] = set()


def ask(question: Question, platform: Platform) -> str:
    """Registers a question; returns its name, which identifies it in a call's text."""
    if platform.c_api not in _registered:
        api = {} if platform.c_api is None else {"c_api": platform.c_api()}
        rules = of_users, _parts, _of_operands
        with uninterrupted():
            xc.register_custom_call_partitioner(TARGET, *rules, True, **api)
            _registered.add(platform.c_api)
    name = f"question {next(_numbers)}"
    _open[name] = question
    return name


_NAME = re.compile(r"question \d+")


def failure_in(text: str) -> BaseException | None:
    """The exception of a question in a module whose compilation failed."""
    if TARGET not in text:
        return None
    asked = [_open.get(name) for name in _NAME.findall(text)]
    found = [q.failure for q in asked if q is not None and q.failure is not None]
    return found[0] if found else None


def without_names(text: str) -> str:
    """The text without process-local names, equal in all processes."""
    return _NAME.sub("question", text) if TARGET in text else text


def _parts(
    arg_shapes: list[_hlo.Shape],
    arg_shardings: list[xc.HloSharding | None],
    result_shape: _hlo.Shape,
    result_sharding: xc.HloSharding | None,
    config: bytes,
) -> tuple[bytes, list[xc.HloSharding], xc.HloSharding]:
    question = _open[config.decode()]
    question.failure = None
    several = result_shape.is_tuple()
    shapes = result_shape.tuple_shapes() if several else [result_shape]
    held: Sequence[xc.HloSharding | None] = [result_sharding] * len(shapes)
    if several and result_sharding is not None:
        held = result_sharding.tuple_elements()
    sides = [
        [Tiles(tuple(s.dimensions()), t) for s, t in zip(*side, strict=True)]
        for side in ((arg_shapes, arg_shardings), (shapes, held))
    ]
    try:
        text, ins, outs = question.answer(*sides)
    except BaseException as error:
        question.failure = error
        raise
    given, found = [[tiles_of(t) for t in side] for side in (ins, outs)]
    if several:
        return text.encode(), given, xc.HloSharding.tuple_sharding(result_shape, found)
    return text.encode(), given, found[0]


def _of_operands(
    arg_shapes: list[_hlo.Shape],
    shardings: list[xc.HloSharding | None],
    shape: _hlo.Shape,
    config: bytes,
) -> xc.HloSharding:
    return xc.HloSharding.replicate()  # Shardy uses the rule in the text

"""`tree_util.Partial`: a function with some of its arguments, as a pytree container."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.runtime.pytree import register_node


class _Whole:
    """Hides a partial function in a callable, as `functools.partial` would merge it.

    Its arguments would then become entries of the outer one, which has only its own. It equals the
    partial function, and has its attributes.
    """

    __slots__ = ("function",)

    def __init__(self, function: functools.partial[Any]):
        self.function = function

    func = property(lambda self: self.function.func)
    args = property(lambda self: self.function.args)
    keywords = property(lambda self: self.function.keywords)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.function == (other.function if isinstance(other, _Whole) else other)

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)


@public("shardwise.tree_util")
class Partial(functools.partial):
    """`functools.partial` as a container: its arguments are entries, its function static.

    So it can be passed to a jitted function, which is compiled once per function, not per
    arguments: `Partial(f, w)` and `Partial(f, v)` run one program if the types of w and v agree.
    The arguments of a partial function passed as `function` stay inside it and are not entries.
    """

    def __new__(cls, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Partial:
        if isinstance(function, functools.partial):
            function = _Whole(function)
        return super().__new__(cls, function, *args, **kwargs)


register_node(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda function, parts: Partial(function, *parts[0], **parts[1]),
)

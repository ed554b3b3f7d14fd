"""`Closure`: a function together with the arrays that it needs.

It is a container of these arrays, so that a jitted function can take it and return it:

    step = jit(lambda x: vjp(f, x)[1])      # gives the function that pulls cotangents back
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.runtime.pytree import register_node


class Closure:
    """`run(values, *args)` as a function of `args`."""

    __slots__ = ("run", "values")

    def __init__(self, run: Callable, values: Sequence[Any]):
        self.run = run
        self.values = values

    def __call__(self, *args: Any) -> Any:
        return self.run(self.values, *args)

    def __repr__(self) -> str:
        return f"<{self.run.__name__} with {len(self.values)} arrays>"


register_node(Closure, lambda c: (c.values, c.run), lambda run, values: Closure(run, tuple(values)))

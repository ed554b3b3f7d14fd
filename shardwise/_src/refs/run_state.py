"""`run_state`: functions that write to refs, as functions of values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise._src.refs.refs import Ref as Ref
from shardwise._src.refs.refs import freeze, new_ref
from shardwise._src.runtime.pytree import flatten


def run_state(f: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function that returns the last values of the refs that `f` writes to.

        run_state(f)(init)    # refs = new refs for init; f(refs); freeze(refs)

    Args:
      f: takes a pytree of refs, returns None.

    Returns:
      A function from a pytree of initial values, which are arrays, to the last values.

    Raises:
      TypeError: at the call, if `f` returns something.
    """

    @functools.wraps(f)
    def wrapped(init: Any) -> Any:
        leaves, tree = flatten(init)
        refs = [new_ref(x) for x in leaves]
        result = f(tree.unflatten(refs))
        if result is not None:
            raise TypeError(
                f"run_state: the function must return None, as its results are in the refs; it "
                f"returned {result!r}."
            )
        return tree.unflatten([freeze(r) for r in refs])

    return wrapped

"""Functions of kernels that have a kernel for their derivative.

    layer_norm = with_cotangents(forward, backward)

    forward(how, *args)         → the result, by a kernel
    backward(how, args, ct)     → cotangents of args, by another kernel

In forward mode, tangents are results of the derivative of the forward kernel, a kernel too. They
are linear in the tangents of the arguments, and reverse mode transposes this linear function: its
transpose is `backward`. Further derivatives are those of both kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.autodiff.grad import jvp
from shardwise._src.base.marks import merge, partition, picked
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.linear_call import linear_call
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import is_inexact


def with_cotangents(forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """`forward` with this rule. how: hashable options. args: pytrees of arrays, whose integers have
    no cotangents: `backward` returns None for them."""
    run = custom_jvp(forward, nondiff_argnums=(0,))

    @run.defjvp
    def rule(how: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
        leaves, tree = flatten(primals)
        marks = [is_inexact(type_of(x).dtype) for x in leaves]

        def moved(values: Any, ts: Any) -> Any:
            fixed, moving = partition(values, marks)

            def f(*xs: Any) -> Any:
                return forward(how, *tree.unflatten(merge(marks, xs, fixed)))

            return jvp(f, tuple(moving), tuple(ts))[1]

        def back(values: Any, ct: Any) -> Any:
            return flatten(backward(how, tree.unflatten(values), ct))[0]

        ts = picked(flatten(tangents)[0], marks)
        return run(how, *primals), linear_call(moved, back, leaves, ts)

    return run

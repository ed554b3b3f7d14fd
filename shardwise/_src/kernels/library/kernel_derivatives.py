"""Functions of kernels that have a kernel for their derivative.

    layer_norm = with_cotangents(forward, backward)

    forward(how, *args)             → the result, by a kernel
    backward(how, args, ct)         → cotangents of args, by another kernel

In forward mode, tangents are results of the derivative of the forward kernel, a kernel too. They
are linear in the tangents of the arguments, and reverse mode transposes this linear function: its
transpose is `backward`. Further derivatives are those of both kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shardwise as sw
from shardwise import numpy as snp
from shardwise.custom_derivatives import linear_call


def with_cotangents(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    *,
    is_multilinear: bool = False,
    needs_result: bool = False,
) -> Any:
    """`forward` with this rule.

    how: hashable options. args: pytrees of arrays, whose integers have no cotangents: `backward`
    returns None for them.
    is_multilinear: whether the result is linear in each array, so that tangents are results of the
      same function.
    needs_result: whether `backward` gets the result as well: backward(how, args, result, ct).
    """
    run = sw.custom_jvp(forward, nondiff_argnums=(0,))

    @run.defjvp
    def rule(how: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
        result = run(how, *primals)
        leaves, tree = sw.tree.flatten(primals)
        moving = [i for i, x in enumerate(leaves) if snp.issubdtype(x.dtype, snp.inexact)]

        def replaced(args: Any, places: list[int], xs: Any) -> Any:
            new = dict(zip(places, xs, strict=True))
            return tree.unflatten([new.get(i, x) for i, x in enumerate(sw.tree.leaves(args))])

        def moved(known: Any, ts: Any) -> Any:
            args = known[0]
            if is_multilinear:
                pairs = zip(moving, ts, strict=True)
                return sum(run(how, *replaced(args, [i], [t])) for i, t in pairs)
            xs = [sw.tree.leaves(args)[i] for i in moving]
            return sw.jvp(lambda *xs: forward(how, *replaced(args, moving, xs)), xs, ts)[1]

        def back(known: Any, ct: Any) -> Any:
            return sw.tree.leaves(backward(how, *known, ct))

        known = (primals, result) if needs_result else (primals,)
        ts = sw.tree.leaves(tangents)
        return result, linear_call(moved, back, known, [ts[i] for i in moving])

    return run

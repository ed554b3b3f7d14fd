"""Transforms that enter the programs of ops with a state (transforms/entering.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program, eval_program
from shardwise._src.ops.elementwise import add, sin
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import array_type
from tests.helpers.errors import message


class Count(Inside):
    """How many times a sine was computed."""

    name, key = "count", ()
    types = (array_type((), np.dtype(np.int32)),)

    def has(self, program: Program) -> bool:
        return "sin" in str(program)

    def run(self, program: Program, args: Sequence[Any], state: Sequence[Any]) -> Any:
        (count,) = state

        def evaluate(eqn: Equation, values: list[Any]) -> Sequence[Any]:
            nonlocal count
            if eqn.op.programs:
                outs, (count,) = self.enter(eqn, values, [count])
                return outs
            if eqn.op is sin:
                count = add(count, np.int32(1))
            out = eqn.op(*values, **eqn.params)
            return out if eqn.op.multiple else [out]

        return eval_program(program, args, evaluate), [count]

    def join(self, state: Sequence[Any], states: Sequence[Any]) -> Sequence[Any]:
        return [add(state[0], states[0].sum(dtype=np.int32))]


def counted(fun: Any, *args: Any) -> tuple[Any, int]:
    program, captured = stage(lambda *xs: [fun(*xs)], [type_of(x) for x in args])
    outs, (count,) = Count().run(program, [*captured, *args], [np.int32(0)])
    return outs[0], int(count)


@sw.custom_jvp
def sine(x: Any) -> Any:
    return jnp.sin(x)


sine.defjvp(lambda primals, tangents: (sine(*primals), tangents[0]))
with_vjp = sw.custom_vjp(lambda x: jnp.sin(x))
with_vjp.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct,))
of_rows = sw.custom_batching.custom_vmap(lambda x: jnp.sin(x))
of_rows.def_vmap(lambda size, batched, x: (jnp.sin(x), True))


def in_test(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.sin(c) < 0.9, lambda c: c + 0.25, x)


def in_test_and_body(x: Any) -> Any:
    return lax.while_loop(lambda c: jnp.sin(c) < 0.9, lambda c: c + jnp.sin(0.25 + 0 * c), x)


def over_devices(x: Any) -> Any:
    mesh = sw.make_mesh((8,), ("i",))
    loop = lambda v: lax.scan(lambda c, _: (jnp.sin(c), None), v, None, length=2)[0]  # noqa: E731
    mapped = sw.shard_map(loop, mesh=mesh, in_specs=sw.P("i"), out_specs=sw.P("i"))
    return mapped(jnp.zeros(8) + x)


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (lambda x: jnp.sin(jnp.sin(x)), 2),
        (sw.jit(lambda x: jnp.sin(x)), 1),
        (lambda x: lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=5)[0], 5),
        (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.sin(c), x), 3),
        (lambda x: lax.cond(x > 0, lambda: jnp.sin(jnp.sin(x)), lambda: x), 2),
        (lambda x: lax.cond(x < 0, lambda: jnp.sin(jnp.sin(x)), lambda: x), 0),
        (lambda x: lax.while_loop(lambda c: c < 1, lambda c: c + jnp.sin(0.5 + 0 * c), x), 2),
        (in_test, 5),
        (in_test_and_body, 9),
        (sine, 1),
        (with_vjp, 1),
        (of_rows, 1),
        (sw.checkpoint(lambda x: jnp.sin(jnp.sin(x))), 2),
        (lambda x: sw.vmap(jnp.sin)(jnp.ones(3) * x), 1),
        (over_devices, 16),
    ],
    ids=["ops", "jit", "scan", "fori_loop", "cond", "cond, the other branch", "while_loop",
         "while_loop, in the test", "while_loop, in both", "custom_jvp", "custom_vjp",
         "custom_vmap", "checkpoint", "vmap", "shard_map"],
)  # fmt: skip
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_a_transform_works_inside_of_ops(fun: Any, expected: int, jitted: bool) -> None:
    x = np.float32(0.25)
    run = (lambda x: counted_in_jit(fun, x)) if jitted else (lambda x: counted(fun, x))
    out, count = run(x)
    np.testing.assert_allclose(out, fun(x), rtol=1e-6)
    assert count == expected


def counted_in_jit(fun: Any, x: Any) -> tuple[Any, int]:
    """The transform is applied while `jit` traces: the count is computed by the program."""

    @sw.jit
    def both(x: Any) -> Any:
        program, captured = stage(lambda x: [fun(x)], [type_of(x)])
        outs, (count,) = Count().run(program, [*captured, x], [np.int32(0)])
        return outs[0], count

    out, count = both(x)
    return out, int(count)


def test_derivatives_of_an_entered_loop() -> None:
    def loop(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0]

    def first(x: Any) -> Any:
        program, _ = stage(lambda x: [loop(x)], [type_of(x)])
        return Count().run(program, [x], [np.int32(0)])[0][0]

    np.testing.assert_allclose(sw.grad(first)(0.5), sw.grad(loop)(0.5), rtol=1e-6)


def test_an_op_without_the_rule_is_named() -> None:
    def fun(x: Any) -> Any:
        return lax.custom_linear_solve(jnp.sin, x, lambda mv, b: mv(b), symmetric=True)

    assert message(NotImplementedError, lambda: counted(fun, jnp.ones(2))) == (
        "[custom_linear_solve] cannot be used under count: its record has no `enter` rule."
    )


def test_equal_transforms_share_programs() -> None:
    program, _ = stage(lambda x: [jnp.sin(x)], [type_of(np.float32(1))])
    assert Count() == Count() and hash(Count()) == hash(Count())
    assert Count().program(program) is Count().program(program)
    assert isinstance(sin, Op)

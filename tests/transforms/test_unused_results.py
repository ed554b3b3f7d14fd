"""Results that nothing uses: nested functions have the values and derivatives of plain ones, and
their programs compute nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import used, walk
from shardwise.interpreters import partial_eval as pe

X = np.linspace(0.2, 0.8, 3, dtype=np.float32)
COUNT = 3  # iterations
Function = Callable[[Any], tuple[Any, Any]]


def used_one(x: Any) -> Any:
    return jnp.sin(x) * 0.9


def unused_one(x: Any) -> Any:
    return jnp.cos(x * 2)


def both(x: Any) -> tuple[Any, Any]:
    return used_one(x), unused_one(x)


# Each nests a function of a vector with two results in another, which computes what `plain` does
# with the first.


def in_jit(f: Function) -> Function:
    return sw.jit(f)


def in_checkpoint(f: Function) -> Function:
    return sw.checkpoint(f)


def in_carry(f: Function) -> Function:
    return lambda x: lax.scan(lambda c, _: (f(c[0]), None), (x, x), None, length=COUNT)[0]


def in_ys(f: Function) -> Function:
    def run(x: Any) -> tuple[Any, Any]:
        _, (one, other) = lax.scan(lambda c, row: (c, f(row)), 0.0, jnp.stack([x] * COUNT))
        return one[-1], other[-1]

    return run


def in_cond(f: Function) -> Function:
    return lambda x: lax.cond(x.sum() > 0, f, lambda x: (x, x), x)


def in_while(f: Function) -> Function:
    def run(x: Any) -> tuple[Any, Any]:
        start = (0, x, x)
        return lax.while_loop(lambda c: c[0] < COUNT, lambda c: (c[0] + 1, *f(c[1])), start)[1:]

    return run


def in_custom_vjp(f: Function) -> Function:
    rule = sw.custom_vjp(f)

    def backward(x: Any, cts: Any) -> tuple[Any]:
        return sw.vjp(f, x)[1](cts)

    rule.defvjp(lambda x: (f(x), x), backward)
    return rule


NESTINGS = [in_jit, in_checkpoint, in_carry, in_ys, in_cond, in_while, in_custom_vjp]
LOOPS = [in_carry, in_while]
PAIRS = list(product(NESTINGS, NESTINGS))


def plain(outer: Any, inner: Any, x: Any) -> Any:
    """What the first result of the nesting is."""
    for _ in range(COUNT ** sum(one in LOOPS for one in (outer, inner))):
        x = used_one(x)
    return x


def dead(program: Program) -> list[str]:
    """The equations, also in nested programs, without effects and with a result that nothing uses.

    A carry may be unused after the loop, and a custom rule is for all results of its function.
    """
    found = []
    inner = [p for e in walk(program) if "rule" not in e.params for p in e.programs()]
    for one in {program, *inner}:
        needed = used(one)
        for eqn in one.eqns:
            loop = eqn.op.name in ("scan", "while_loop")
            unused = [v not in needed for v in eqn.outvars]
            bad = all(unused) if loop or "rule" in eqn.params else any(unused)
            if bad and not eqn.effects:
                found.append(str(eqn))
    return found


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_programs_and_values_of_nested_functions(outer: Any, inner: Any) -> None:
    nested = outer(inner(both))
    expected = plain(outer, inner, X)
    np.testing.assert_allclose(sw.jit(lambda x: nested(x)[0])(X), expected, rtol=1e-5)
    staged = sw.make_jaxpr(lambda x: nested(x)[0])(X)
    reduced, _ = pe.dce_jaxpr(sw.make_jaxpr(nested)(X).jaxpr, [True, False])
    for program in (staged.jaxpr, reduced):
        assert dead(program) == []
        if in_custom_vjp not in (outer, inner):
            assert "cos" not in str(program)
        np.testing.assert_allclose(program(X)[0], expected, rtol=1e-5)


@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_derivatives_of_nested_functions(outer: Any, inner: Any) -> None:
    nested, t = outer(inner(both)), np.array([1, -2, 3], np.float32)
    _, expected = sw.jvp(lambda x: plain(outer, inner, x), (X,), (t,))
    if in_custom_vjp not in (outer, inner):
        for run in (lambda f: f, sw.jit):
            _, moved = run(lambda x, t: sw.jvp(lambda x: nested(x)[0], (x,), (t,)))(X, t)
            np.testing.assert_allclose(moved, expected, rtol=1e-5)
    if in_while in (outer, inner):
        return

    def loss(x: Any) -> Any:
        return (nested(x)[0] * t).sum()

    wanted = sw.grad(lambda x: (plain(outer, inner, x) * t).sum())(X)
    np.testing.assert_allclose(sw.grad(loss)(X), wanted, rtol=1e-5)
    staged = sw.make_jaxpr(sw.grad(loss))(X)
    assert dead(staged.jaxpr) == []
    np.testing.assert_allclose(staged.jaxpr(X)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("nest", [in_jit, in_checkpoint, in_carry, in_ys, in_cond, in_while])
def test_effects_stay_when_their_results_are_not_used(nest: Any) -> None:
    seen: list[float] = []

    def f(x: Any) -> tuple[Any, Any]:
        sw.debug.callback(lambda v: seen.append(float(v)), x[0] * 2)
        return both(x)

    nested = nest(f)
    for used_results in ([True, False], [False, False]):
        program, read = pe.dce_jaxpr(sw.make_jaxpr(nested)(X).jaxpr, used_results)
        assert read == [True] and "cos" not in str(program)
        assert dead(program) == []
        seen.clear()
        sw.jit(lambda x, p=program: p(x))(X)
        sw.effects_barrier()
        loops = nest in (in_carry, in_ys, in_while)
        assert len(seen) == (COUNT if loops else 1)
        np.testing.assert_allclose(seen[0], X[0] * 2, rtol=1e-6)


def test_operands_of_unused_results_are_not_computed() -> None:
    f = sw.jit(lambda x, y: (jnp.sin(x), jnp.exp(y)))
    program = sw.make_jaxpr(lambda x: f(x, jnp.cos(x))[0])(X)
    (eqn,) = program.jaxpr.eqns
    assert len(eqn.invars) == len(eqn.outvars) == 1
    big = jnp.arange(1000.0)
    held = sw.make_jaxpr(lambda x: sw.jit(lambda x: (x + 1, x.sum() * big))(x)[0])(X)
    assert held.consts == () and not any(p.consts for e in held.eqns for p in e.programs())


def test_loops_keep_the_carries_of_their_condition() -> None:
    def loop(x: Any) -> tuple[Any, Any, Any, Any]:
        def body(c: Any) -> Any:
            n, steps, a, b = c
            return n - steps, steps, jnp.sin(a), jnp.cos(b)

        return lax.while_loop(lambda c: c[0] > 0, body, (6, 2, x, x))

    program = sw.make_jaxpr(lambda x: loop(x)[2])(X)
    (eqn,) = program.jaxpr.eqns
    assert len(eqn.outvars) == 3 and dead(program.jaxpr) == []
    np.testing.assert_allclose(program.jaxpr(X)[0], np.sin(np.sin(np.sin(X))), rtol=1e-6)


def scanned(w: Any, x: Any) -> Any:
    def body(c: Any, _: Any) -> Any:
        return jnp.sin(w @ c), lax.stop_gradient(jnp.exp(w @ (c * 3)))

    c, ys = lax.scan(body, x, None, length=COUNT)
    return jnp.sin(c), ys


def chosen(w: Any, x: Any) -> Any:
    def taken(x: Any) -> Any:
        return jnp.sin(w @ x), lax.stop_gradient(jnp.exp(w @ (x * 3)))

    a, b = lax.cond(x.sum() > 0, taken, lambda x: (x, x), x)
    return jnp.sin(a), b


@pytest.mark.parametrize("f", [scanned, chosen])
def test_policies_save_only_what_the_backward_pass_uses(f: Any) -> None:
    w = np.eye(3, dtype=np.float32) * 2
    saving = sw.checkpoint(f, policy=sw.checkpoint_policies.dots_saveable)

    def gradient(f: Any, w: Any, x: Any) -> Any:
        (a, b), back = sw.vjp(lambda x: f(w, x), x)
        return b, back((a, jnp.zeros_like(b)))[0]

    program = sw.make_jaxpr(lambda w, x: gradient(saving, w, x))(w, X)
    (second,) = [e for e in program.eqns if e.primitive.name == "checkpoint"]
    (inner,) = second.programs()
    assert used(inner).issuperset(inner.invars) and dead(program.jaxpr) == []
    for found, expected in zip(program.jaxpr(w, X), gradient(f, w, X), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)

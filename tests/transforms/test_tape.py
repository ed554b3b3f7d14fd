"""Eager reverse mode uses cached linear parts; its results match those of the individual rules."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import every_op
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms import tape
from shardwise._src.transforms.jvp import JVP
from shardwise._src.transforms.linearize import linearize
from shardwise._src.types.dtypes import is_inexact
from tests.helpers.everyday import everyday
from tests.ops.samples import SAMPLES

OPS = every_op()


def linear_parts(op, sample, forward):
    """Values, and the tangents along random directions, under one of the two interpreters."""
    args = [EAGER.array(a) for a in sample.args]
    active = [i for i, a in enumerate(args) if is_inexact(type_of(a).dtype)]

    def f(*given):
        full = list(args)
        for i, x in zip(active, given, strict=True):
            full[i] = x
        out = op(*full, **sample.params)
        return [*out] if op.multiple else [out]

    outs, linear = linearize(f, [args[i] for i in active], forward=forward)
    rng = np.random.default_rng(0)
    given = [np.asarray(rng.standard_normal(args[i].shape), args[i].dtype) for i in active]
    return outs, linear([EAGER.array(t) for t in given])


NAMES = [
    n
    for n in sorted(SAMPLES)
    if n in OPS and OPS[n].jvp is not None and not OPS[n].user_code and not OPS[n].programs
]


@pytest.mark.parametrize("group", everyday(range(4), 1))
def test_every_op_gives_what_its_rule_gives(group):
    taken = 0
    for name in NAMES[group::4]:
        op = OPS[name]
        if op.effects or op.eager is not None:
            continue
        for sample in SAMPLES[name][:1]:
            if sample.keys or not any(is_inexact(type_of(a).dtype) for a in sample.args):
                continue
            try:
                found = linear_parts(op, sample, tape.Tape)
            except NotImplementedError as error:  # an operand has no derivative
                with pytest.raises(NotImplementedError, match=re.escape(str(error))):
                    linear_parts(op, sample, JVP)
                continue
            wanted = linear_parts(op, sample, JVP)
            for a, b in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
                assert (a is None) == (b is None), name
                if a is None:
                    continue
                assert (a.shape, a.dtype) == (b.shape, b.dtype), name
                np.testing.assert_allclose(
                    np.asarray(a, complex),
                    np.asarray(b, complex),
                    2e-2 if a.dtype == "bfloat16" else 1e-4,
                    1e-5,
                    err_msg=name,
                )
            taken += 1
    assert taken > 20


def launches(monkeypatch, run):
    """How many programs and ops the eager interpreter runs."""
    count = 0
    for method in ("run", "process", "call"):
        held = getattr(type(EAGER), method)

        def counted(self, *args, held=held):
            nonlocal count
            count += 1
            return held(self, *args)

        monkeypatch.setattr(type(EAGER), method, counted)
    run()
    return count


def test_a_gradient_in_a_loop_launches_once_per_op_and_once_for_the_way_back(monkeypatch):
    x = jnp.linspace(0.0, 1.0, 5)
    g = sw.grad(lambda x: jnp.sum(jnp.sin(x * x)))
    g(x)
    assert launches(monkeypatch, lambda: g(x)) == 4


@pytest.mark.parametrize("make", [float, np.float32, int])
def test_scalars_that_change_compile_nothing_new(make):
    x = jnp.linspace(0.0, 1.0, 5)

    def f(x, k):
        return jnp.sum(jnp.sin(x * k) / k)

    sw.grad(f)(x, make(3))
    before = len(tape._locals), len(EAGER.cache)
    for k in range(4, 12):
        np.testing.assert_allclose(sw.grad(f)(x, make(k)), np.cos(np.asarray(x) * k), 1e-5, 1e-5)
    assert (len(tape._locals), len(EAGER.cache)) == before


def test_types_flags_and_signs_of_zero_are_told_apart():
    def f(x):
        return jnp.sum(jnp.arctan2(x, -0.0 * jnp.ones_like(x)) * jnp.where(x > 0, x, 2))

    for dtype in (np.float32, np.float16):
        x = np.linspace(-1, 1, 4, dtype=dtype)
        assert sw.grad(f)(x).dtype == dtype
    with sw.enable_x64():
        assert sw.grad(f)(np.linspace(-1, 1, 4)).dtype == np.float64
    assert sw.grad(f)(np.linspace(-1, 1, 4)).dtype == np.float32
    one, other = (sw.grad(lambda x, z=z: jnp.clip(x, z, 1.0) * 2)(0.5) for z in (0.0, -0.0))
    assert one == other == 2


def test_functions_with_trees_static_arguments_and_several_results():
    x = jnp.arange(6.0).reshape(2, 3)

    def f(x):
        first, second = jnp.split(x, [1], axis=1)
        q, r = jnp.divmod(x, 2.5)
        return jnp.var(x[0, ::-1], ddof=1) + jnp.sum(first * second) + jnp.sum(r) + jnp.sum(q)

    wanted = sw.jit(sw.grad(f))(x)
    for _ in range(2):
        np.testing.assert_allclose(sw.grad(f)(x), wanted, 1e-6)
    value, back = sw.vjp(f, x)
    np.testing.assert_allclose(value, f(x), 1e-6)
    np.testing.assert_allclose(back(jnp.float32(2))[0], 2 * wanted, 1e-6)
    along = sw.linearize(f, x)[1]
    np.testing.assert_allclose(along(jnp.ones((2, 3))), jnp.sum(wanted), 1e-5)


def test_what_holds_programs_or_users_functions_takes_its_own_way():
    @sw.custom_jvp
    def g(x):
        return x * x

    g.defjvp(lambda primals, tangents: (g(*primals), 100.0 * tangents[0]))

    def f(x):
        y, _ = sw.lax.scan(lambda c, a: (c * a, None), x[0], x[1:])
        return y + g(x[0]) + sw.jit(jnp.sin)(x[1]) + jnp.exp(x[0])

    x = jnp.asarray([1.5, 2.0, 3.0])
    found = sw.grad(f)(x)
    np.testing.assert_allclose(found, [6 + 100 + np.exp(1.5), 4.5 + np.cos(2.0), 3.0], 1e-5)


def test_gradients_stay_where_the_arguments_are():
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    x = sw.device_put(np.ones((8, 4), np.float32), sw.NamedSharding(mesh, sw.P("x")))
    for f in (lambda x: jnp.sum(x * 2), lambda x: jnp.sum(x**2), lambda x: jnp.sum(jnp.tanh(x))):
        assert sw.grad(f)(x).sharding == x.sharding

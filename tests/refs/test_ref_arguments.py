"""Refs and their parts as arguments, of compiled stages and rules, against JAX where it has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as np_
from shardwise import lax
from shardwise.experimental.serialize_executable import serialize
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message as refused
from tests.helpers.refs import X, both, here


def add_one(part):
    part[...] += 1.0


PARTS = {
    "element": (lambda r: r.at[1, 2], np.s_[1, 2]),
    "slice": (lambda r: r.at[:, 1:], np.s_[:, 1:]),
    "part of a part": (lambda r: r.at[1].at[np.array([0, 2])], np.s_[1, [0, 2]]),
    "traced": (lambda r: r.at[np_.array(1), :2], np.s_[1, :2]),
    "transposed": (lambda r: r.T.at[1], np.s_[:, 1]),
    "reshaped": (lambda r: r.reshape(3, 2).at[0], np.s_[0, :2]),
}
CALLS = {
    "jit": lambda part: sw.jit(lambda tree: add_one(tree["part"]))({"part": part}),
    "checkpoint": lambda part: sw.checkpoint(add_one)(part),
    "cond": lambda part: lax.cond(np_.array(True), add_one, lambda part: None, part),
    "switch": lambda part: lax.switch(np_.array(1), [lambda part: None, add_one], part),
    "shard_map": lambda part: sw.shard_map(
        add_one, mesh=sw.make_mesh((1,), ("x",)), in_specs=P(), out_specs=None
    )(part),
}


@pytest.mark.parametrize("call", CALLS)
def test_parts_of_refs(call):
    for view, index in PARTS.values():
        wanted = X.copy()
        wanted[index] += 1
        ref = sw.new_ref(X)
        CALLS[call](view(ref))
        np.testing.assert_array_equal(ref[...], wanted)
        ref = sw.new_ref(X)
        found = sw.jit(lambda ref, view=view: [CALLS[call](view(ref)), ref[...]][1])(ref)
        np.testing.assert_array_equal(found, wanted)


def test_parts_are_not_mapped_over():
    ref = sw.new_ref(X)
    for f in (lambda: sw.vmap(add_one)(ref.at[1:]), lambda: lax.scan(print, None, ref.at[1:])):
        assert refused(TypeError, f).endswith(
            ": a part of Ref{f32[2,3]} is an argument, which cannot be mapped over. Pass the ref "
            "itself, and select the part in the function."
        )


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_refs(reverse):
    def make(lib, xp):
        def f(x):
            ref, other = lib.new_ref(x), lib.new_ref(x * 2)

            def step(c, rows):
                row, fixed = rows["ref"], rows["array"]
                row[...] += xp.sin(c * fixed)
                other[0] += row[...]
                return c + xp.sum(row[...]), row[0]

            xs = {"ref": ref, "array": x}
            c, ys = lib.lax.scan(step, xp.float32(1.0), xs, reverse=reverse)
            return c, ys, ref[...], other[...]

        return lambda x: (lib.jit(f)(x), lib.grad(lambda x: f(x)[0])(x))

    both(make, X)
    ref = sw.new_ref(X)
    ys = lax.map(lambda row: [add_one(row), row[0]][1], ref)
    np.testing.assert_array_equal(ys, X[:, 0] + 1)
    np.testing.assert_array_equal(ref[...], X + 1)


def test_stages_take_refs():
    outer = sw.new_ref(X)

    def f(ref, x, k):
        ref[...] += x * k
        outer[0] += x
        return ref[0], k

    g = sw.jit(f, static_argnums=2)
    ref = sw.new_ref(X)
    assert sw.eval_shape(lambda ref, x: f(ref, x, 3)[0], ref, X[0]).shape == (3,)
    assert len(sw.make_jaxpr(lambda ref, x: f(ref, x, 3)[0])(ref, X[0]).jaxpr.eqns)
    for call in (
        g.lower(ref, X[0], 3).compile(),
        g.trace(ref, X[0], 3),
        sw.jit(g.trace(ref, X[0], 3)),
    ):
        ref, before = sw.new_ref(X), np.asarray(outer[...])
        row, _ = call(ref, X[0])
        np.testing.assert_array_equal(ref[...], X + X[0] * 3)
        np.testing.assert_array_equal(row, X[0] * 4)
        np.testing.assert_array_equal(outer[0], before[0] + X[0])
    np.testing.assert_array_equal(outer[1], X[1])
    compiled = sw.jit(lambda: add_one(outer)).lower().compile()
    compiled(), compiled()
    np.testing.assert_array_equal(outer[1], X[1] + 2)
    found = refused(TypeError, g.lower(ref, X[0], 3).compile(), X, X[0])
    assert found == "jit of f: the program takes 1 ref."
    for save in (lambda f: serialize(f.lower().compile()), lambda f: sw.export.export(f)()):
        text = refused(ValueError, save, sw.jit(lambda: add_one(outer)))
        assert "uses refs" in text and text.endswith("pass and return their values.")


@pytest.mark.parametrize("jitted", [False, True])
def test_rules_with_a_ref_that_is_differentiated(jitted):
    def make(lib, xp):
        @lib.custom_vjp
        def f(ref, y):
            return ref[...] * y

        f.defvjp(lambda ref, y: (f(ref, y), y), lambda y, ct: (ct * y * 3.0, None))
        g = lib.jit(f) if jitted else f
        return lambda x: lib.vjp(lambda x: xp.sum(g(lib.new_ref(x * 2), x)), x)[1](1.0)

    both(make, X)


@pytest.mark.parametrize("jitted", [False, True])
def test_rules_that_write_to_refs(jitted):
    @sw.custom_vjp
    def count(calls, x):
        calls[0] += x
        return x * 2

    def fwd(calls, x):
        calls[1] += x
        return x * 2, None

    count.defvjp(fwd, lambda _, ct: (None, ct))
    calls = sw.new_ref(np_.zeros(2))
    f = sw.jit(count) if jitted else count
    assert f(calls, 1.0) == 2 and sw.grad(lambda x: f(calls, x))(3.0) == 1
    assert calls[...].tolist() == [1, 3]


@pytest.mark.parametrize("wrap", [sw.jit, sw.checkpoint, lambda f: sw.jit(sw.jit(f))])
def test_staged_rules_that_watch_cotangents(wrap):
    seen = sw.new_ref(np_.zeros(2))

    @sw.custom_vjp
    def watch(x, ref):
        return x * 2

    def bwd(ref, ct):
        ref[...] += ct
        return ct * 2, None

    watch.defvjp(lambda x, ref: (x * 2, ref), bwd)

    def loss(x):
        return np_.sum(np_.sin(watch(x, seen)))

    x = np_.array([0.5, 1.0])
    for step in range(3):
        close(sw.grad(wrap(loss))(x), 2 * np.cos(2 * np.float32([0.5, 1.0])))
        close(seen[...], (step + 1) * np.cos(2 * np.float32([0.5, 1.0])))
    sw.jit(lambda x: sw.grad(wrap(loss))(x))(x)
    close(seen[...], 4 * np.cos(2 * np.float32([0.5, 1.0])))


def test_refs_do_not_leave_rules():
    ref = sw.new_ref(X)
    f = sw.custom_vjp(lambda ref: ref)
    f.defvjp(lambda ref: (ref[...], None), lambda _, ct: (ct,))
    g = sw.custom_vjp(lambda x, ref: x)
    g.defvjp(lambda x, ref: (x, sw.new_ref(x)), lambda _, ct: (ct, None))
    for call in (f, sw.jit(f)):
        assert "<lambda> returned Ref{f32[2,3]}" in refused(ValueError, call, ref)
    for call in (g, sw.jit(g)):
        assert "the fwd rule of custom_vjp function <lambda> returned Ref{f32[]}" in (
            refused(ValueError, sw.vjp, call, 3.0, ref)
        )
    text = refused(ValueError, lax.scan, lambda c, x: (sw.new_ref(c), x), 0, np_.arange(3))
    assert here(text).startswith("scan: <lambda> returned Ref{i32[]}, made at")
    refused(ValueError, lax.cond, np_.array(True), lambda: sw.new_ref(1.0), lambda: sw.new_ref(2.0))


@pytest.mark.parametrize("jitted", [False, True])
def test_refs_without_derivatives(jitted):
    def make(lib, xp):
        ref = lib.new_ref(1.0, kind="no_grad_no_remat")

        @lib.checkpoint
        def f(y, ref):
            out = y * y
            ref[...] += out
            return out * ref[...]

        g = lib.jit(f) if jitted else f
        return lambda x: (lib.grad(g)(x, ref), ref[...])

    close(make(sw, np_)(2.0), make(jax, jnp)(2.0))
    ref = sw.new_ref(X, kind="no_grad_no_remat")
    assert sw.typeof(ref).kind == "no_grad_no_remat" and sw.typeof(ref) != sw.typeof(sw.new_ref(X))
    assert refused(ValueError, lambda: sw.new_ref(X, kind="other")) == (
        "new_ref: kind must be None or 'no_grad_no_remat'; got 'other'."
    )

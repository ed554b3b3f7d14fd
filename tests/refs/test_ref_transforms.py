"""Refs in functions that are recomputed, differentiated, mapped and looped: against JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as np_
from shardwise import lax
from shardwise.ad_checkpoint import saved_residuals
from tests.helpers.comparing import close
from tests.helpers.errors import message as refused
from tests.helpers.everyday import everyday
from tests.helpers.refs import X, both, here

# -- checkpoint --


def rematted(lib, xp, wrap):
    """A function of x with refs that are local, from outside the checkpoint, and an argument of it."""

    def f(x):
        outer, passed = lib.new_ref(x), lib.new_ref(x * 2)

        @wrap
        def g(s, y):
            local = lib.new_ref(xp.zeros(3))

            def body(c, _):
                outer[...] = xp.sin(outer[...]) * c
                local[...] += outer[...]
                return c * y, s[0]

            c, ys = lib.lax.scan(body, y, None, length=2)
            s[1] = c + local[0]
            return xp.sum(ys) + local[1]

        def twice(y):
            return lib.lax.cond(y > 0, lambda y: g(passed, y), lambda y: y, y)

        return twice(x[0]) + lib.jit(twice)(x[1]) + xp.sum(outer[...] * passed[...])

    return f


@pytest.mark.parametrize("policy", everyday([None, "dots_saveable"], 1))
@pytest.mark.parametrize("transform", [
    sw.grad, lambda f: sw.jit(sw.vmap(sw.grad(f))), lambda f: lambda x: sw.jvp(f, (x,), (x * 2,)),
], ids=["grad", "vmap_grad", "jvp"])  # fmt: skip
def test_checkpoint(transform, policy, request):
    saves = policy and getattr(sw.checkpoint_policies, policy)
    x = X / 5 if "vmap" in request.node.name else X[0] / 5
    got = transform(rematted(sw, np_, lambda g: sw.checkpoint(g, policy=saves)))(x)
    close(got, transform(rematted(sw, np_, lambda g: g))(x), 2e-5, 0)


def test_checkpoint_saves_less():
    def loss(wrap):
        def f(x):
            r = sw.new_ref(x)

            @wrap
            def g():
                for _ in range(5):
                    r[...] = np_.sin(r[...])

            g()
            return r[...].sum()

        return f

    assert len(saved_residuals(loss(sw.checkpoint), X)) == 1
    assert len(saved_residuals(loss(lambda g: g), X)) == 5


def test_checkpoint_writes_refs_of_callers():
    r = sw.new_ref(X[0])

    @sw.jit
    def f(x):
        y = sw.checkpoint(lambda s, x: (s.set(sw.lax.stop_gradient(x)), x * s[...])[1])(r, x)
        return y.sum()

    np.testing.assert_array_equal(sw.grad(f)(X[1]), X[1])
    np.testing.assert_array_equal(r[...], X[1])


# -- control flow --


@pytest.mark.parametrize("jitted", [False, True])
def test_scan(jitted):
    def make(lib, xp):
        def run(x):
            r, read = lib.new_ref(x[0]), lib.new_ref(x[1])

            def body(c, y):
                r[...] += y * read[...]
                return c + r[0], r[...]

            out = lib.lax.scan(body, 0.0, x, reverse=True)
            return out, lib.freeze(r)

        return lib.jit(run) if jitted else run

    both(make, X)


@pytest.mark.parametrize("traced", [False, True])
def test_loops(traced):
    def make(lib, xp):
        def run(x, n):
            r = lib.new_ref(x)
            stop = lib.new_ref(xp.float32(40))

            def fori(i, c):
                r[0] += x[1] * c
                return c + 1.0

            a = lib.lax.fori_loop(0, n if traced else 4, fori, 0.0)

            def turn(i):
                r[...] *= 2.0
                return i + 1

            b = lib.lax.while_loop(lambda i: i < 3, turn, 0)
            return a, b, r[...], stop[...]

        return lib.jit(run) if traced else run

    both(make, X, 4)


@pytest.mark.parametrize("count", [0, 3])
def test_condition_reads_a_ref(count):
    r = sw.new_ref(np.float32(0))

    def turn(i):
        r[...] += 1
        return i + 1

    assert lax.while_loop(lambda i: r[...] < count, turn, 0) == count
    assert r[...] == count

    def asks(i):
        r[...] = 0.0
        return i < 3

    assert refused(ValueError, lax.while_loop, asks, turn, 0) == (
        "while_loop: asks, which decides whether to continue, writes to Ref{f32[]}. It may only "
        "read refs: write in the body."
    )


@pytest.mark.parametrize("which", [0, 1, 2])
def test_branches(which):
    def make(lib, xp):
        def run(x, i):
            a, b = lib.new_ref(x), lib.new_ref(x * 2)

            def first(r, y):
                r[0] = y
                return y

            def second(r, y):
                b[...] = r[...] + y
                return y * 2

            def third(r, y):
                return y * 3

            out = lib.lax.switch(i, [first, second, third], a, x[1])
            lib.lax.cond(i > 0, lambda: a.__setitem__(1, b[1]), lambda: None)
            return out, a[...], b[...]

        return lib.jit(run)

    both(make, X, which)


def test_closed_over_by_kept_bodies():
    r = sw.new_ref(np.float32(0))

    def body(c, x):
        r[...] += x
        return c, None

    for _ in range(3):
        lax.scan(body, 0.0, np_.arange(3.0))
    r[...] += 1.0
    sw.jit(lambda: lax.scan(body, 0.0, np_.arange(3.0)))()
    assert r[...] == 13.0


def test_without_jit():
    r = sw.new_ref(np.float32(1))
    with sw.disable_jit():
        sw.jit(lambda s: s.set(s[...] + 1))(r)
        lax.fori_loop(0, 3, lambda i, c: r.addupdate(1.0), None)
    assert r[...] == 5.0


# -- derivatives and vmap --


def uses_refs(lib, xp):
    def f(x):
        r, total = lib.new_ref(x), lib.new_ref(xp.zeros((), xp.float32))

        def body(c, y):
            r[...] = r[...] * xp.cos(c) + y
            total[...] += r[0]
            return c + xp.sum(r[...]) * 0.1, None

        c, _ = lib.lax.scan(body, xp.float32(0.5), x)

        def write(y):
            r[1:] = xp.sin(r[1:] * y)

        lib.lax.cond(c > 0, write, lambda y: None, c)
        lib.jit(lambda: r.__setitem__(0, r[0] ** 2))()
        return xp.sum(r[...]) * total[...]

    return f


def without_refs(x):
    """The same for JAX, which does not have all of these transforms for refs."""
    r, total, c = x, 0.0, 0.5
    for y in x:
        r = r * jnp.cos(c) + y
        total = total + r[0]
        c = c + jnp.sum(r) * 0.1
    r = r.at[1:].set(jnp.where(c > 0, jnp.sin(r[1:] * c), r[1:]))
    return jnp.sum(r.at[0].set(r[0] ** 2)) * total


@pytest.mark.parametrize(
    "transform",
    [
        lambda lib, f: lib.jit(lib.grad(f)),
        lambda lib, f: lib.grad(lib.jit(f)),
        lambda lib, f: lib.jit(lib.vmap(lib.grad(f))),
        lambda lib, f: lambda x: lib.jvp(f, (x,), (x * 2,)),
        lambda lib, f: lib.jit(lib.grad(lambda x: lib.vmap(f)(x).sum())),
        lambda lib, f: lib.jit(lib.jacfwd(lib.grad(f))),
        lambda lib, f: lib.jit(lib.grad(lib.checkpoint(f))),
    ],
    ids=["jit_grad", "grad_jit", "vmap_grad", "jvp", "grad_vmap", "hessian", "remat"],
)
def test_transforms(transform, request):
    mapped = "vmap" in request.node.name
    x = np.stack([X[0], X[1] / 3]) if mapped else X[0]
    wanted = transform(jax, without_refs)(x / 2)
    close(transform(sw, uses_refs(sw, np_))(x / 2), wanted, 2e-5, 0)


def test_outer_ref_in_grad():
    def make(lib, xp):
        def run(x):
            log = lib.new_ref(xp.zeros(3))

            @lib.jit
            def f(x):
                log[...] += lib.lax.stop_gradient(x) ** 2
                return xp.sum(x * log[...])

            return lib.grad(f)(x), log[...]

        return run

    both(make, X[0])
    r = sw.new_ref(np_.zeros(3))
    message = (
        "Ref{f32[3]}, made at test_ref_transforms.py, cannot hold a value that is differentiated: "
        "it was made outside of grad of f, called at errors.py. Make the ref inside of that "
        "function, or write `shardwise.lax.stop_gradient(x)`."
    )

    def f(x):
        r[...] = x
        return x.sum()

    assert here(refused(ValueError, sw.grad(f), X[0])) == message
    assert here(refused(ValueError, sw.grad(sw.jit(f)), X[0])) == message
    assert r[...].tolist() == [0, 0, 0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_mapped_refs(axis):
    def f(r, x, s):
        r[...] += x * s[...]
        return r[0]

    r, s = sw.new_ref(X), sw.new_ref(np.float32(2))
    y = np.arange(X.shape[axis], dtype=np.float32)
    added = np.moveaxis(np.moveaxis(X, axis, -1) * 0 + y * 2, -1, axis)
    for i, g in enumerate((f, sw.jit(f)), 1):
        out = sw.vmap(g, (axis, 0, None))(r, y, s)
        np.testing.assert_array_equal(r[...], X + i * added)
        np.testing.assert_array_equal(out, np.moveaxis(X + i * added, axis, 0)[:, 0])


def test_mapped_refs_like_jax():
    def make(lib, xp):
        def f(r, x):
            r[...] += x
            return lib.ref.swap(r, 0, r[1])

        def run(x, y):
            r = lib.new_ref(x)
            return lib.vmap(f)(r, y), lib.vmap(lib.jit(f))(r, y), r[...]

        return run

    both(make, X, X[:, 0])


def test_outer_ref_in_vmap():
    r = sw.new_ref(np.float32(0))
    message = (
        "Ref{f32[]}, made at test_ref_transforms.py, cannot hold a mapped value: it was made "
        "outside of vmap of set, called at errors.py. Make the ref inside of that function, or "
        "pass it as a mapped argument."
    )
    assert here(refused(ValueError, sw.vmap(r.set), X[0])) == message
    assert sw.vmap(lambda x: x + r[...])(X[0]).tolist() == X[0].tolist()


# -- any program --

KINDS = ["set", "add", "swap", "scan", "cond", "jit", "checkpoint"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=4)


def program(steps, lib, xp):
    def f(x):
        r = lib.new_ref(x)
        total = x[0]
        for kind, i in steps:
            if kind == "set":
                r[i] = total
            elif kind == "add":
                lib.ref.addupdate(r, i, r[3 - i] * 0.5)
            elif kind == "swap":
                total = total + lib.ref.swap(r, i, total * 2.0)
            elif kind in ("jit", "checkpoint"):
                # JAX does not differentiate a checkpoint that uses refs.
                wrap = lib.checkpoint if kind == "checkpoint" and lib is sw else lib.jit
                wrap(lambda t, i=i: lib.ref.set(r, i, t * r[i]))(total)
            elif kind == "cond":

                def write(t, i=i):
                    r[i] = t

                lib.lax.cond(total > r[i], write, lambda t: None, total)
            else:

                def body(c, _, i=i):
                    r[i] = xp.sin(r[i]) + c
                    return c * 0.5, r[i]

                total = total + lib.lax.scan(body, total, None, length=2)[1].sum()
        return (lib.freeze(r) * xp.arange(1.0, 5.0)).sum() + total

    return f


@settings(max_examples=6, deadline=None)
@given(STEPS)
def test_any_program(steps):
    x = np.array([0.3, -0.2, 0.7, 0.1], np.float32)
    got = sw.jit(sw.value_and_grad(program(steps, sw, np_)))(x)
    wanted = jax.jit(jax.value_and_grad(program(steps, jax, jnp)))(x)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)

"""Unreduced and reduced values in `shard_map`: types, values, and derivatives of all orders."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.meshes import mesh_of

GRID = mesh_of(2, 2, types=AxisType.Explicit)
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((6, 2)).astype(np.float32)


def put(x, *spec, **sums):
    """On the mesh; a full value is one of its partial sums."""
    return sw.reshard(sw.device_put(x, NamedSharding(GRID, P(*spec))), P(*spec, **sums))


def over(f, in_specs, out_specs, **options):
    """The map, of arguments that are resharded first."""
    g = sw.shard_map(f, mesh=GRID, in_specs=in_specs, out_specs=out_specs, **options)
    specs = in_specs if isinstance(in_specs, tuple) else (in_specs,)
    return lambda *args: g(*map(sw.reshard, args, specs))


def state(x):
    t = sw.typeof(x)
    return {n: "".join(sorted(getattr(t.mat, n))) for n in ("varying", "unreduced", "reduced")}


# -- values and derivatives are those of a function without devices --


def gathered(x, w):
    """Weights that are sharded over x, gathered; the cotangent is scattered again."""
    full = P(None, None, reduced={"x"})
    whole = over(lambda w: lax.all_gather(w, "x", tiled=True, to="reduced"), P("x"), full)
    return over(jnp.dot, (P("x"), full), P("x"))(x, whole(w))


def replicated(x, w):
    def f(x, w):
        return jnp.tanh(x @ lax.pcast(w, ("x", "y"), to="reduced"))

    return over(f, (P("x"), P()), P("x"))(x, w)


def summed(x, w):
    def f(x, w):
        return lax.psum(lax.pcast(x @ w, "y", to="unreduced") * 2, "y")

    return over(f, (P("x", "y"), P("y")), P("x"))(x, w)


def scattered(x, w):
    def f(x, w):
        total = jnp.transpose(lax.pcast(x @ w, "y", to="unreduced"))
        return lax.psum_scatter(total, "y", scatter_dimension=0, tiled=True).T

    return over(f, (P("x", "y"), P("y")), P("x", "y"))(x, w)


def of_both(x, w):
    """Products of reduced values are invarying, and their cotangents too."""

    def f(x, w):
        x, w = lax.pcast((x, w), "x", to="reduced")
        return jnp.sin(x @ w)

    return over(f, (P(), P()), P())(x, w)


def apart(x, w):
    """A bilinear function of an unreduced and a reduced value."""

    def f(x, w):
        sums = jnp.sum(lax.pcast(x, "x", to="unreduced"), axis=0)
        factors = jnp.exp(lax.pcast(w[:, 0], "x", to="reduced"))
        return lax.psum(sums * factors / factors.sum(), "x")

    return over(f, (P("x"), P()), P())(x, w)


def in_a_loop(x, w):
    def f(x, w):
        def body(w, row):
            return jnp.sin(w), row @ w

        w = lax.pcast(w, "x", to="reduced")
        return lax.scan(sw.checkpoint(body), w, x)[1]

    return over(f, (P("x"), P()), P("x"))(x, w)


def through_calls(x, w):
    def f(x, w):
        w = sw.jit(lambda w: jnp.reshape(lax.pcast(w, "y", to="reduced"), (2, 6)))(w)
        w = lax.cond(w.sum() > 100, lambda w: w, lambda w: w[::-1] + 1, w)
        return sw.vmap(jnp.dot, (0, None))(x, _columns(w))

    return over(f, (P("y", None), P()), P("y"))(x, w)


def _columns(w):
    return jnp.concatenate([w.T, -w[:1].T], axis=1)


def carried(x, w):
    """A reduced carry that the body makes varying."""

    def f(x, w):
        def step(w, row):
            return w * row[:, None] + 1, row.sum()

        w = lax.pcast(w, "x", to="reduced")
        w = lax.cond(x.sum() > 0, lambda w: w * 2, lambda w: w * 2, w)
        w = lax.pcast(lax.scan(step, w, x)[0], "x", to="unreduced")
        return lax.psum(w, "x")

    return over(f, (P("x"), P()), P())(x, w)


PLAIN = {
    carried: lambda x, w: sum(
        (w * 2 * a[:, None] + 1) * b[:, None] + 1 for a, b in x.reshape(2, 2, 6)
    ),
    gathered: lambda x, w: x @ w,
    replicated: lambda x, w: jnp.tanh(x @ w),
    summed: lambda x, w: x @ w * 2,
    scattered: lambda x, w: x @ w,
    of_both: lambda x, w: jnp.sin(x @ w),
    apart: lambda x, w: x.sum(0) * jnp.exp(w[:, 0]) / jnp.exp(w[:, 0]).sum(),
    in_a_loop: lambda x, w: jnp.stack([x[0] @ w, x[1] @ jnp.sin(w), x[2] @ w, x[3] @ jnp.sin(w)]),
    through_calls: lambda x, w: x @ _columns(w.reshape(2, 6)[::-1] + 1),
}


@pytest.mark.parametrize("f", PLAIN)
def test_like_without_devices(f):
    def forms(f):
        loss = lambda x, w: jnp.sum(jnp.sin(f(x, w)))  # noqa: E731
        grad = sw.grad(loss, (0, 1))
        again = lambda x, w: jnp.sum(jnp.cos(grad(x, w)[1]))  # noqa: E731
        tangent = lambda x, w: sw.jvp(f, (x, w), (jnp.cos(x), jnp.sin(w)))  # noqa: E731
        return lambda x, w: (f(x, w), grad(x, w), sw.grad(again, (0, 1))(x, w), tangent(x, w))

    with sw.set_mesh(GRID):
        close(sw.jit(forms(f))(put(X), put(W)), forms(PLAIN[f])(X, W), 2e-4)


# -- types --


def test_states_of_results():
    """As in jax: of casts, collectives, and of operands in different states."""
    found = []

    def f(v, i):
        u, r = lax.pcast(v, "x", to="unreduced"), lax.pcast(i, "x", to="reduced")
        found.extend(map(state, (v, i, u, r, r[:2] * v, r.sum(), u.T, u * r.sum(), jnp.sin(r) * 2)))
        found.extend(map(state, (lax.psum(u, "x"), lax.all_gather(v, "x", to="reduced"))))
        found.append(state(lax.psum_scatter(u, "x", tiled=True)))
        return u, r

    specs = P(unreduced={"x"}), P(reduced={"x"})
    with sw.set_mesh(GRID):
        u, r = sw.shard_map(f, out_specs=specs)(put(X, "x"), put(X))
        assert (u.sharding.spec.unreduced, r.sharding.spec.reduced) == ({"x"}, {"x"})
        again = sw.shard_map(lambda u, r: (u, r), out_specs=specs)(u, r)
        assert [x.sharding for x in again] == [u.sharding, r.sharding]
        close(sw.reshard(again[0], P()), X[:2] + X[2:], 1e-6)
        ct = sw.grad(lambda r: sw.shard_map(jnp.sin, out_specs=specs[1])(r).sum())(r)
        assert ct.sharding.spec.unreduced == {"x"}
        close(sw.reshard(ct, P()), np.cos(X), 1e-6)
    letters = ["".join(k[0] for k, names in row.items() if names) for row in found]
    assert letters == ["v", "", "u", "r", "v", "r", "u", "u", "r", "", "r", "v"]


MISTAKES = {
    "nonlinear": (lambda v, u, r: jnp.sin(u), NotImplementedError, "no unreduced rule for sin"),
    "unreduced and not": (lambda v, u, r: u + v, TypeError, "add partial sums to full values"),
    "unreduced and varying": (lambda v, u, r: u * v, TypeError, "along which the others must be"),
    "reduced and not": (
        lambda v, u, r: r[:2] * lax.psum(v, "x"),
        TypeError,
        "operands f32[2,6]{R:x}, f32[2,6] are not reduced along the same axes",
    ),
    "sum of reduced": (lambda v, u, r: lax.psum(r, "x"), ValueError, "is reduced along 'x'"),
    "maximum": (lambda v, u, r: lax.pmax(u, "x"), ValueError, "is unreduced along 'x'"),
    "some axes": (lambda v, u, r: lax.psum(u, ("x", "y")), ValueError, "unreduced along 'x' only"),
    "branches": (
        lambda v, u, r: lax.cond(True, lambda: r, lambda: lax.psum(v, "x")),
        TypeError,
        "differ in",
    ),
    "different branches": (
        lambda v, u, r: lax.cond(v.sum() > 0, lambda: r * 2, lambda: r),
        NotImplementedError,
        "devices take different branches",
    ),
    "cast": (lambda v, u, r: lax.pcast(u, "x", to="varying"), ValueError, "is 'unreduced' along"),
    "casts": (lambda v, u, r: lax.pcast(v, ("x", "y"), to="reduced"), ValueError, "separately"),
    "result": (lambda v, u, r: u, ValueError, "is not unreduced and reduced along the same axes"),
}


@pytest.mark.parametrize("f, kind, text", MISTAKES.values(), ids=MISTAKES)
def test_mistakes(f, kind, text):
    def g(v, i):
        return f(v, lax.pcast(v, "x", to="unreduced"), lax.pcast(i, "x", to="reduced"))

    with pytest.raises(kind) as caught:
        over(g, (P("x"), P()), P())(put(X, "x"), put(X))
    assert text in str(caught.value)


def test_specs_with_states():
    sums = P(unreduced={"x"})
    some = sw.shard_map(np.sin, mesh=GRID, in_specs=sums, out_specs=P(), axis_names={"x"})
    assert "all axes of the mesh are manual; got 'x'" in message(NotImplementedError, some, X)
    auto = sw.shard_map(np.sin, mesh=mesh_of(2, 2), in_specs=sums, out_specs=P())
    assert "unreduced= in P(unreduced={'x'}) needs axes of type Explicit" in message(
        ValueError, auto, X
    )
    other = sw.shard_map(lambda x: x, mesh=GRID, in_specs=sums, out_specs=sums)
    assert "is not sharded as its spec P(unreduced={'x'}) requires" in message(ValueError, other, X)


def test_unchecked():
    """Types do not tell, and specs only say what the devices have."""
    sums = P(unreduced={"x"})
    f = over(lambda x: x, P(), sums, check_vma=False)
    g = over(lambda x: lax.psum(x, "x"), sums, P(), check_vma=False)
    with sw.set_mesh(GRID):
        close(sw.reshard(f(put(X)), P()), 2 * X, 1e-6)
        close(g(put(X, unreduced={"x"})), X, 1e-6)
        close(sw.grad(lambda x: sw.reshard(f(x), P()).sum())(put(X)), 2 * np.ones_like(X), 1e-6)
        ct = sw.jit(sw.grad(lambda x: g(x).sum()))(put(X, unreduced={"x"}))
        assert ct.sharding.spec.reduced == {"x"}
        close(ct, np.ones_like(X), 1e-6)


def test_varying_results_become_partial_sums_along_unreduced_axes_of_their_specs():
    x = put(X, "x")
    f = over(lambda x: x.sum(0), P("x"), P(unreduced={"x"}))
    for run in (f, sw.jit(f)):
        out = run(x)
        assert out.sharding.spec == P(None, unreduced={"x"})
        np.testing.assert_allclose(sw.reshard(out, P()), X.sum(0), rtol=1e-5)
    slope = sw.grad(lambda x: (sw.reshard(f(x), P()) ** 2).sum())(x)
    np.testing.assert_allclose(slope, np.tile(2 * X.sum(0), (4, 1)), rtol=1e-4)
    same = over(lambda x: jnp.ones(6), P("x"), P(unreduced={"x"}))
    assert message(ValueError, lambda: same(x)) == (
        "shard_map of <lambda>: result, of type f32[6], is not unreduced and reduced along the same "
        "axes as its spec P(unreduced={'x'}). Cast it with `shardwise.lax.pcast`, reduce it with a "
        "collective, such as `shardwise.lax.psum`, or name these axes in out_specs."
    )


# -- outside of maps --


@pytest.mark.parametrize("jitted", [False, True])
def test_identities_keep_partial_sums_and_constants_like_them_have_their_own_values(jitted):
    run = sw.jit if jitted else (lambda f: f)
    u = put(X, None, unreduced={"x", "y"})
    for f, want in (
        (lax.stop_gradient, X),
        (lax.optimization_barrier, X),
        (lambda u: lax.optimization_barrier((u, u))[1], X),
        (jnp.zeros_like, 0 * X),
        (jnp.ones_like, 0 * X + 1),
        (lambda u: jnp.full_like(u, 2.5), 0 * X + 2.5),
        (lambda u: sw.tree.map(jnp.zeros_like, {"a": u})["a"] + u, X),
    ):
        with sw.set_mesh(GRID):
            out = run(f)(u)
            assert sw.typeof(out) == sw.typeof(u)
            np.testing.assert_array_equal(sw.reshard(out, P()), want)


def test_partial_sums_are_not_shown_as_values():
    u = put(X[0], unreduced={"x"})
    assert repr(u) == (
        f"Array(shape=(6,), dtype=float32) sharded as {u.sharding}, partial sums along 'x': "
        "`reshard` adds them"
    )

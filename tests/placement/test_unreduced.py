"""Partial sums over explicit axes (unreduced values), and values whose gradients are such sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.base.errors import ShardingTypeError
from shardwise.sharding import Mesh, reshard
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday
from tests.helpers.explicit import A, W, put, shown


def test_unreduced_products(mesh: Mesh):
    a, w = put(A, None, "x"), put(W, "x", None)

    def product(a: Any, w: Any) -> Any:
        return jnp.matmul(a, w, out_sharding=P(None, None, unreduced={"x"}))

    assert shown(product(a, w)) == "float32[8,6]{U:x}"
    twice = sw.jit(lambda a, w: reshard(product(a, w) + product(a, w), P("y", None)))(a, w)
    assert shown(twice) == "float32[8@y,6]"
    np.testing.assert_allclose(twice, 2 * (A @ W), rtol=1e-5)
    assert error_of(ShardingTypeError, lambda: jnp.sin(product(a, w))) == (
        "sin: operands f32[8,6]{U:x}: an operand is unreduced along 'x', and the op "
        "is not linear in just the unreduced operands. Use "
        "`shardwise.sharding.reshard(x, P())`."
    )
    wrong = P(None, None, unreduced={"y"})
    assert error_of(ShardingTypeError, lambda: jnp.matmul(a, w, out_sharding=wrong)) == (
        "matmul: out_sharding P(None, None, unreduced={'y'}) leaves 'y' unreduced, but not all "
        "operands are sharded over it; got f32[8,4@x], f32[4@x,6]. Leave `unreduced` out, or shard "
        "the summed dimensions of each operand over it."
    )


UNREDUCED = {
    "add": lambda u, v: u + u,
    "neg": lambda u, v: -u,
    "scale": lambda u, v: u * 2,
    "mul": lambda u, v: u * v,
    "div": lambda u, v: u / 4,
    "transpose": lambda u, v: u.T,
    "sum": lambda u, v: u.sum(0),
    "reshape": lambda u, v: u.reshape(4, 12),
    "slice": lambda u, v: u[:4],
    "concatenate": lambda u, v: jnp.concatenate([u, u]),
    "pad": lambda u, v: jnp.pad(u, 1),
    "where": lambda u, v: jnp.where(v > 0, u, u + u),
    "dynamic_slice": lambda u, v: lax.dynamic_slice(u, (1, 0), (3, 6)),
    "gather": lambda u, v: u[np.array([0, 2, 1])],
    "matmul": lambda u, v: u @ v.T,
    "broadcast": lambda u, v: jnp.broadcast_to(u, (2, 8, 6)),
    "repeat": lambda u, v: jnp.broadcast_to(u[:, :1], (2, 8, 6)),
    "ones": lambda u, v: u.reshape(8, 1, 6).reshape(8, 6, 1),
    "scatter": lambda u, v: u.at[np.array([1, 3, 1])].add(u[:3]),
}


@pytest.mark.parametrize("name", everyday(UNREDUCED, 2))
def test_sums_are_taken_once(mesh: Mesh, name: str):
    """In one program with the product, in a separate program, and op by op."""
    fun, v = UNREDUCED[name], np.cos(np.arange(48, dtype=np.float32)).reshape(8, 6)
    a, w, whole = put(A, None, "x"), put(W, "x", None), put(v)

    def product(a: Any, w: Any) -> Any:
        return jnp.matmul(a, w, out_sharding=P(None, None, unreduced={"x"}))

    expected = np.asarray(fun(jnp.asarray(A @ W), jnp.asarray(v)))
    for found in (
        sw.jit(lambda a, w, v: reshard(fun(product(a, w), v), P()))(a, w, whole),
        reshard(sw.jit(fun)(product(a, w), whole), P()),
        reshard(fun(product(a, w), whole), P()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


REDUCED = {
    "where": lambda w: jnp.where(w > 0, w, 0),
    "norm": lambda w: w / jnp.sqrt((w * w).sum(0)),
    "mean": lambda w: w - w.mean(0),
    "transpose": lambda w: (w.T * 2).T,
    "part": lambda w: jnp.split(w, 2, 1)[0] @ np.ones((3, 6), np.float32),
    "gather": lambda w: w[np.array([0, 3, 1, 0])],
    "window": lambda w: jnp.pad(lax.dynamic_slice(w, (1, 2), (3, 4)), ((0, 1), (2, 0))),
    "parts": lambda w: jnp.concatenate([w[:, :3], w[:, 3:] * 2], 1),
    "product": lambda w: w @ np.ones((6, 6), np.float32),
    "jit": lambda w: sw.jit(jnp.sin)(w),
    "vmap": lambda w: sw.vmap(lambda r: r * r)(w),
    "max": lambda w: w.max(1, keepdims=True) * w,
}


@pytest.mark.parametrize("name", everyday(REDUCED, 2))
def test_gradients_by_reduced_values(mesh: Mesh, name: str):
    fun, a = REDUCED[name], put(A, "x", None)

    def loss(a: Any, w: Any) -> Any:
        return ((a @ fun(w)) ** 2).sum()

    def reduced(w: Any) -> Any:
        return reshard(w, P(None, None, reduced={"x"}))

    by_w = sw.grad(lambda w: loss(a, w))
    expected = np.asarray(sw.grad(lambda w: loss(A, w))(jnp.asarray(W)))
    for found in (
        reshard(by_w(reduced(put(W))), P()),
        sw.jit(lambda w: reshard(by_w(reduced(w)), P()))(put(W)),
        sw.jit(sw.grad(lambda w: loss(a, reduced(w))))(put(W)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


def test_cotangents_of_reduced_values_are_unreduced(mesh: Mesh):
    a, seen = put(A, "y", None), []

    def loss(w: Any) -> Any:
        w = reshard(w, P(None, None, reduced={"y"}))
        return (a @ w).sum()

    def inner(w: Any) -> Any:
        g = sw.grad(lambda w: (a @ jnp.sin(w)).sum())(reshard(w, P(None, None, reduced={"y"})))
        seen.append(shown(g))
        return reshard(g, P())

    g = sw.jit(sw.grad(loss))(put(W))
    assert shown(g) == "float32[4,6]"
    np.testing.assert_allclose(g, np.repeat(A.sum(0)[:, None], 6, 1), rtol=1e-5)
    np.testing.assert_allclose(sw.jit(inner)(put(W)), A.sum(0)[:, None] * np.cos(W), rtol=1e-5)
    assert seen == ["float32[4,6]{U:y}"]


def test_resharding_to_and_from_partial_sums(mesh: Mesh):
    """The first device along an axis has the value, the others have zeros."""
    for x in np.float32(3), A:
        there = reshard(put(x), P(unreduced={"x"}))
        assert sorted(np.asarray(s.data).sum() for s in there.addressable_shards)[:4] == [0] * 4
        np.testing.assert_allclose(reshard(there, P()), x)
        np.testing.assert_allclose(sw.jit(lambda y: reshard(y, P()))(there), x)
    out = sw.jit(lambda x: x, out_shardings=P(unreduced={"x"}))(put(A))
    assert shown(out) == "float32[8,4]{U:x}"
    np.testing.assert_allclose(reshard(out, P()), A)
    with sw.set_mesh(mesh):
        parts = sw.device_put(put(A, "x"), P(unreduced={"x"}))
        assert [float(np.asarray(s.data).sum()) for s in parts.addressable_shards][::2] == [
            float(A[i : i + 2].sum()) for i in (0, 2, 4, 6)
        ]
        moved = sw.device_put(out, P(None, None, unreduced={"x"}))
    pairs = zip(out.addressable_shards, moved.addressable_shards, strict=True)
    assert all(np.array_equal(a.data, b.data) for a, b in pairs)  # nothing was summed


def test_out_sharding_of_partial_sums(mesh: Mesh):
    a, w = put(A, None, "x"), put(W, "x", None)
    u = jnp.matmul(a, w, out_sharding=P("y", unreduced={"x"}))
    for spec in P(unreduced={"x"}), P(unreduced={"y"}), P(unreduced={"x", "y"}), P():
        found = sw.jit(lambda u, spec=spec: lax.reduce_sum(u, (0, 1), out_sharding=spec))(u)
        assert found.sharding.spec == spec
        np.testing.assert_allclose(reshard(found, P()), (A @ W).sum(), rtol=1e-5)
    one = sw.jit(lambda u: lax.broadcast_like(u[:, :1], u))(u)
    assert shown(one) == "float32[8@y,6]{U:x}"
    np.testing.assert_allclose(reshard(one, P())[:, 2], (A @ W)[:, 0], rtol=1e-5)
    other = put(np.ones(6, np.float32), "y")
    message = error_of(ShardingTypeError, lambda: lax.broadcast_like(other, u))
    assert message.startswith("broadcast_like: f32[6@y] is sharded differently from")


def test_zero_cotangents_have_the_types_of_cotangents(mesh: Mesh):
    x = reshard(put(W), P(reduced={"x"}))
    _, pull = sw.vjp(lambda x, y: y, x, x)
    assert [shown(ct) for ct in pull(reshard(put(W), P(unreduced={"x"})))] == [
        "float32[4,6]{U:x}"
    ] * 2


def test_partial_sums_of_computed_values(mesh: Mesh):
    """XLA would take a value computed in the program as the partial sum of each device."""
    for f in (jnp.ravel, lambda x: jnp.arange(3.0) * 2, lambda x: jnp.asarray(np.full(3, 2.0))):
        for x in put(A), A:
            with sw.set_mesh(mesh):
                out = sw.jit(lambda x, f=f: reshard(f(x), P(unreduced={"x"})))(x)
                np.testing.assert_allclose(reshard(out, P()), f(x))


@pytest.mark.parametrize("run", [sw.jit, lambda f: f], ids=["jit", "eager"])
def test_gradients_of_sums_of_reduced_values(run: Any, mesh: Mesh):
    """The first cotangent, 1, is the partial sum of one device."""
    found = run(sw.grad(lambda w: jnp.sin(w).sum()))(reshard(put(W), P(reduced={"x"})))
    assert shown(found) == "float32[4,6]{U:x}"
    np.testing.assert_allclose(reshard(found, P()), np.cos(W), rtol=1e-5)

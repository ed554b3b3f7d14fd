"""Files of exported functions: JAX's files load here, ours load in JAX, and damage is reported."""

import functools
import hashlib
import struct

import jax
import jax.numpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import export
from shardwise._src.export.export_files import MARK
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers import comparing
from tests.helpers.errors import fails
from tests.helpers.meshes import MESH

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
Y = np.arange(6, dtype=np.float32).reshape(3, 2)
JAX_MESH = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
JAX_SPLIT = jax.sharding.NamedSharding(JAX_MESH, jax.sharding.PartitionSpec("x"))


def f(np_, x, y, n):
    return {"a": np_.sin(x) @ y * n, "b": [x.sum(), n + 1]}


close = functools.partial(comparing.close, atol=1e-6)


def ours(fun, *args, vjp_order=0, **options):
    return export.export(sw.jit(fun), **options)(*args).serialize(vjp_order)


def theirs(fun, *args, vjp_order=0, **options):
    pytest.importorskip("flatbuffers")  # which jax needs for this
    return jax.export.export(jax.jit(fun), **options)(*args).serialize(vjp_order)


def in_jax(blob):
    pytest.importorskip("flatbuffers")
    return jax.export.deserialize(blob)


# -- both ways --


def test_ours_in_jax():
    n = np.int32(3)
    blob = ours(lambda x, y, n: f(jnp, x, y, n), X, Y, n, vjp_order=2)
    e = in_jax(blob)
    wanted = f(jax.numpy, X, Y, n)
    close(e.call(X, Y, n), wanted)
    close(jax.jit(e.call)(X, Y, n), wanted)

    def loss(x, fun=e.call):
        return (fun(x, Y, n)["a"] ** 2).sum()

    g = jax.grad(lambda x: loss(x, lambda *a: f(jax.numpy, *a)))
    close(jax.grad(loss)(X), g(X))
    close(
        jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum())(X),
        jax.grad(lambda x: (g(x) ** 2).sum())(X),
    )
    assert e.fun_name == "<lambda>" and e.platforms == ("cpu",) and e.nr_devices == 1
    assert [str(t) for t in e.vjp().in_avals[-2:]] == ["float32[]", "float0[]"]
    s = X.T @ X + np.eye(3, dtype=np.float32)
    e = in_jax(ours(jnp.linalg.cholesky, s, platforms=("cuda", "cpu")))
    close(e.call(s), jax.numpy.linalg.cholesky(s))
    key = jax.random.key(1)
    e = in_jax(ours(lambda k: sw.random.bits(k, (3,)), sw.random.key(1)))
    np.testing.assert_array_equal(e.call(key), jax.random.bits(key, (3,)))


def test_ours_in_jax_with_shardings():
    x = sw.device_put(np.arange(16, dtype=np.float32).reshape(8, 2), NamedSharding(MESH, P("x")))
    out = NamedSharding(MESH, P(None, "y"))
    fun = sw.jit(lambda x: x * 2 + x.sum(), out_shardings=out)
    e = in_jax(export.export(fun)(x).serialize(1))
    here = jax.device_put(np.asarray(x), JAX_SPLIT)
    assert e.in_shardings_jax(JAX_MESH) == (JAX_SPLIT,)
    got = e.call(here)
    np.testing.assert_array_equal(got, np.asarray(x) * 2 + np.asarray(x).sum())
    assert got.sharding.is_equivalent_to(e.out_shardings_jax(JAX_MESH)[0], 2)


def test_theirs_here():
    n = np.int32(3)
    blob = theirs(lambda x, y, n: f(jax.numpy, x, y, n), X, Y, n, vjp_order=1)
    e = export.deserialize(blob)
    close(e.call(X, Y, n), f(jax.numpy, X, Y, n))
    close(sw.jit(e.call)(X, Y, n), f(jax.numpy, X, Y, n))
    close(
        sw.grad(lambda x: (e.call(x, Y, n)["a"] ** 2).sum())(X),
        jax.grad(lambda x: (f(jax.numpy, x, Y, n)["a"] ** 2).sum())(X),
    )
    assert in_jax(e.serialize(1)).vjp().in_avals == in_jax(blob).vjp().in_avals
    s = X.T @ X + np.eye(3, dtype=np.float32)
    e = export.deserialize(theirs(jax.numpy.linalg.cholesky, s, platforms=("cuda", "cpu")))
    close(e.call(s), jax.numpy.linalg.cholesky(s))


def test_theirs_here_with_shardings():
    def g(x):
        return jax.lax.with_sharding_constraint(x * 2, JAX_SPLIT) + x.sum()

    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    e = export.deserialize(theirs(g, jax.device_put(x, JAX_SPLIT)))
    assert e.nr_devices == 8
    assert e.in_shardings_jax(MESH) == (NamedSharding(MESH, P("x")),)
    here = sw.device_put(x, NamedSharding(MESH, P("x")))
    np.testing.assert_array_equal(e.call(here), x * 2 + x.sum())


def test_theirs_with_symbolic_dimensions_here():
    pytest.importorskip("flatbuffers")
    a, b = jax.export.symbolic_shape("a, b*2", constraints=["a >= b"])

    def g(x, y):
        return x.reshape(-1) * y.shape[0] + jax.numpy.arange(x.size), y

    kinds = [jax.ShapeDtypeStruct(s, np.float32) for s in ((a, b), (a,))]
    e = export.deserialize(theirs(g, *kinds, vjp_order=1))
    assert [t.str_short(True) for t in e.in_avals] == ["f32[a,2*b]", "f32[a]"]
    assert e.uses_global_constants
    for rows, columns in ((3, 4), (2, 2)):
        x, y = np.ones((rows, columns), np.float32), np.arange(rows, dtype=np.float32)
        close(e.call(x, y), g(x, y))
        close(sw.jit(lambda *xs: e.call(*xs)[0] + 1)(x, y), g(x, y)[0] + 1)
        slope = sw.grad(lambda x, y: e.call(x, y)[0].sum())(x, y)
        close(slope, jax.grad(lambda x, y: g(x, y)[0].sum())(x, y))
    what = "call of the exported g: "
    fails(
        ValueError, what + "dimension 1 of args[0] must be 2*b, which is 2 for a = 3, b = 1; got "
        "3, in f32[3,3].",
        e.call, np.ones((3, 3), np.float32), np.ones(3, np.float32),
    )  # fmt: skip
    fails(
        ValueError, what + "dimension 0 of args[1] must be a, which is 3 for a = 3, b = 1; got 2, "
        "in f32[2].",
        e.call, np.ones((3, 2), np.float32), np.ones(2, np.float32),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"^call of the exported g with arguments of types"):
        e.call(np.ones((1, 4), np.float32), np.ones(1, np.float32))  # a < b


# -- damage --

REFUSED = r"^shardwise\.export\.deserialize: these \d+ bytes are not an exported function: "

BLOB = bytes(ours(lambda x, y: {"a": jnp.sin(x) @ y}, X, Y, vjp_order=1))


def refused(blob, why):
    fails(
        ValueError,
        f"shardwise.export.deserialize: these {len(blob)} bytes are not an exported function: "
        f"{why}. Pass the bytes that the `serialize()` of an exported function returned; these "
        "were truncated or altered, or are something else.",
        export.deserialize, blob,
    )  # fmt: skip


def test_damage_is_named():
    refused(b"", "they refer to byte 4, which is past their end")
    refused(b"hello", "they refer to byte 1819043180, which is past their end")
    refused(b"no such thing", "they refer to byte 1931505522, which is past their end")
    refused(BLOB[:-1], "their end, with the digest, is missing or altered")
    refused(BLOB[:-40], "their end, with the digest, is missing or altered")
    flipped = bytearray(BLOB)
    flipped[100] ^= 1
    refused(flipped, "their digest does not match")
    body = BLOB[: -len(MARK) - 36] + struct.pack("<16sI", MARK, 7)
    refused(
        body + hashlib.sha256(body).digest(),
        "their version is 7, and this release reads versions up to 1",
    )
    fails(
        TypeError, "shardwise.export.deserialize takes bytes; got str.", export.deserialize, "blob"
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(BLOB) - 1))
def test_cut_bytes_are_refused(end):
    with pytest.raises(ValueError, match=REFUSED):
        export.deserialize(BLOB[:end])


@settings(max_examples=150, deadline=None)
@given(st.sets(st.tuples(st.integers(0, len(BLOB) - 1), st.integers(0, 7)), min_size=1, max_size=3))
def test_altered_bytes_are_refused(places):
    data = bytearray(BLOB)
    for at, bit in places:
        data[at] ^= 1 << bit
    with pytest.raises(ValueError, match=REFUSED):
        export.deserialize(data)


@settings(max_examples=2, deadline=None)  # each may start a process
@given(st.data())
def test_damage_to_what_has_no_digest_ends_no_process(data):
    """JAX's files: an error, or a function that is callable according to the types in the file."""
    whole = BLOB[: -len(MARK) - 36].replace(b"shardwise\0", b"some jax!\0")
    assert whole != BLOB
    cut = data.draw(st.integers(0, len(whole)))
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    altered = bytearray(whole)
    altered[at] ^= 1 << bit
    for blob in (whole[:cut], altered):
        try:
            export.deserialize(blob)
        except ValueError as error:
            assert str(error).startswith("shardwise.export.deserialize: these")

"""Fourier transforms against NumPy, on one device and sharded; derivatives against jax."""

import itertools
import re

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.composed import signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 6)).astype(np.float32)
Z = (X + 1j * RNG.standard_normal(X.shape)).astype(np.complex64)
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
TWO = ["fft2", "ifft2", "rfft2", "irfft2"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
NORMS = [None, "backward", "ortho", "forward"]


def operand(name):
    return X if name.startswith(("rfft", "ihfft")) else Z


def same(found, expected):
    found = np.asarray(found)
    assert found.dtype == (np.complex64 if expected.dtype.kind == "c" else np.float32)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


CASES = [
    *itertools.product(ONE, [(None, -1), (5, 0), (9, 1), (1, 2), (8, -2)], NORMS),
    *itertools.product(TWO, [(None, (-2, -1)), ((3, 5), (0, 2)), ((7, 2), (2, 1))], NORMS),
    *itertools.product(
        MANY, [(None, None), ((2, 5), None), ((2, 5, 7), (2, 0, 1)), (None, (1,))], NORMS
    ),
]


@pytest.mark.parametrize(("name", "how", "norm"), everyday(CASES, 4))
def test_values(name, how, norm):
    x = operand(name)
    s, axes = how
    if name in MANY and s is not None and axes is None:
        axes = range(x.ndim - len(s), x.ndim)
    same(getattr(jnp.fft, name)(x, *how, norm=norm), getattr(np.fft, name)(x, s, axes, norm))


@pytest.mark.parametrize("dtype", ["bool", "int32", "float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    x = jnp.asarray(X).astype(dtype) if dtype != "complex64" else jnp.asarray(Z)
    found = jnp.fft.fft(x)
    assert found.dtype == np.complex64
    wide = np.asarray(x.astype("complex64"))
    same(found, np.fft.fft(wide))
    assert jnp.fft.irfft(x).dtype == np.float32


def test_more_dimensions_than_xla_takes_at_once():
    x = RNG.standard_normal((2, 3, 2, 4, 3)).astype(np.float32)
    for name in MANY:
        given = x if name == "rfftn" else x.astype(np.complex64)
        same(getattr(jnp.fft, name)(given), getattr(np.fft, name)(given))
    same(jnp.fft.rfftn(x, axes=(4, 1, 0, 3)), np.fft.rfftn(x, axes=(4, 1, 0, 3)))
    back = jnp.fft.irfftn(jnp.fft.rfftn(x, axes=(4, 1, 0, 2)), s=(3, 3, 2, 2), axes=(4, 1, 0, 2))
    same(back, x)


def test_special_values():
    x = np.array([[1, np.nan, 0, 2], [np.inf, 1, 2, 3], [0, -0.0, 0, 0]], np.float32)
    found = np.asarray(jnp.fft.fft(x))
    assert not np.isfinite(found[:2]).any()
    np.testing.assert_array_equal(found[2], np.zeros(4))
    assert jnp.fft.fft(np.zeros((0, 4), np.float32)).shape == (0, 4)
    same(jnp.fft.fft(np.zeros((3, 0), np.float32), 4), np.zeros((3, 4), complex))


SPECS = [("x",), (None, "x"), ("y", "x"), (None, None, "x"), (("x", "y"),)]


@pytest.mark.parametrize("spec", everyday(SPECS, 1))
def test_sharded(spec):
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    for name, x in (("irfft", Z), ("rfftn", X), ("fft", Z)):
        place = NamedSharding(mesh, PartitionSpec(*spec))
        fun = sw.jit(getattr(jnp.fft, name))
        for rows in (x, np.concatenate([x, x, x[:1]])):  # 3 and 7 rows: uneven
            same(fun(sw.device_put(rows, place)), getattr(np.fft, name)(rows))
    if spec in (("x",), (("x", "y"),)):  # batches alone
        text = fun.lower(sw.device_put(np.zeros((8, 4, 6), np.float32), place)).compile().as_text()
        assert not re.search("all-gather|all-to-all|collective-permute", text)


@pytest.mark.parametrize("name", everyday([*ONE, *MANY], 1))
def test_derivatives(name):
    x = operand(name)[0]
    loss, theirs = (
        lambda v, lib=lib: (lib.abs(getattr(lib.fft, name)(v)) ** 2).sum()
        for lib in (jnp, jax.numpy)
    )
    same(sw.grad(loss)(x), np.asarray(jax.grad(theirs)(x)))
    tangents = np.ones_like(x)
    same(
        sw.jvp(getattr(jnp.fft, name), (x,), (tangents,))[1],
        np.asarray(jax.jvp(getattr(jax.numpy.fft, name), (x,), (tangents,))[1]),
    )


def test_vmap():
    found = sw.vmap(lambda v: jnp.fft.rfft(v, axis=0), in_axes=1, out_axes=1)(X)
    same(found, np.fft.rfft(X, axis=0))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n):
    same(jnp.fft.fftfreq(n), np.fft.fftfreq(n))
    same(jnp.fft.rfftfreq(n, 0.25), np.fft.rfftfreq(n, 0.25))
    assert jnp.fft.fftfreq(n, dtype="float16").dtype == np.float16
    x = RNG.standard_normal((n, 3)).astype(np.float32)
    for axes in (None, 0, (0, 1), [1]):
        same(jnp.fft.fftshift(x, axes), np.fft.fftshift(x, axes))
        same(jnp.fft.ifftshift(x, axes), np.fft.ifftshift(x, axes))


@pytest.mark.parametrize("name", [*ONE, *TWO, *MANY, "fftfreq", "rfftfreq", "fftshift"])
def test_signatures(name):
    assert signature(getattr(jnp.fft, name)) == signature(getattr(jax.numpy.fft, name))


test_mistakes = messages(
    """
jnp.fft.rfft(Z)
    TypeError: rfft takes real values; got c64[3,4,6]. Use `fft` for complex values, or pass
    `x.real`.
jnp.fft.fft(X, norm="unit")
    ValueError: fft: norm must be 'backward' (or None), 'ortho' or 'forward'; got 'unit'.
jnp.fft.fft(X, 0)
    ValueError: fft: signals must have at least one element; got lengths (0,) along axes (2,).
jnp.fft.fftn(X, axes=(0, -3))
    ValueError: fftn: axes must differ; got (0, 0).
jnp.fft.fftn(X, (2,), (0, 1))
    ValueError: fftn: s and axes must have the same length; got (2,) and (0, 1).
jnp.fft.fft2(X, axes=(1,))
    ValueError: fft2: axes must be two; got (1,). Use `fftn` for any other number of axes.
jnp.fft.fftfreq(0)
    ValueError: fftfreq: n must be positive; got 0.
""",
    globals(),
)


def test_norms_of_all_transforms_in_one_program():
    cases = [*itertools.product([*ONE, *TWO, *MANY], NORMS)]
    found = sw.jit(lambda x, z: [
        getattr(jnp.fft, name)(x if name.startswith(("rfft", "ihfft")) else z, norm=norm)
        for name, norm in cases
    ])(X, Z)  # fmt: skip
    for (name, norm), one in zip(cases, found, strict=True):
        same(one, getattr(np.fft, name)(operand(name), norm=norm))

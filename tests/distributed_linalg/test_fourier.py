"""Fourier transforms along sharded dimensions: values, and no device holds the full array."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import P
from shardwise.sharding import AxisType
from tests.distributed_linalg.test_factors import largest
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(29)
SPECS = {
    "eight": ((8,), P(None, "x")),
    "rows too": ((2, 4), P("x", "y")),
    "rows and another": ((2, 4), P("y", "x")),
    "two": ((2, 4), P(None, ("y", "x"))),
    "first": ((4, 2), P("x")),
    "some": ((2, 4), P(None, "x")),
}
NAMES = ("fft", "ifft", "rfft", "irfft", "fft2", "rfft2", "irfft2", "ifft2")


def given(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = RNG.standard_normal(shape)
    x = x if name.startswith("rfft") else x + 1j * RNG.standard_normal(shape)
    kind = "f" if name.startswith("rfft") else "c"
    return x.astype({"f": {"f": "f4", "d": "f8"}, "c": {"f": "c8", "d": "c16"}}[kind][dtype])


def placed(x: np.ndarray, way: str, kind: AxisType = AxisType.Auto):
    sizes, spec = SPECS[way]
    mesh = sw.make_mesh(sizes, ("x", "y")[: len(sizes)], axis_types=(kind,) * len(sizes))
    return sw.device_put(x, sw.NamedSharding(mesh, P(*spec[: x.ndim])))


def same(found, name: str, x: np.ndarray) -> None:
    wanted = getattr(np.fft, name)(x.astype("c16" if x.dtype.kind == "c" else "f8"))
    near = 50 * np.finfo(x.dtype).eps * np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, 0, near)


CASES = [
    (n, w, s, d) for n in NAMES for w in SPECS for s in ((40, 64), (3, 17), (2, 128)) for d in "fd"
]


@pytest.mark.parametrize(("name", "way", "shape", "dtype"), everyday(CASES, 4))
def test_values(name: str, way: str, shape: tuple[int, ...], dtype: str):
    """Even and uneven sizes; two rows, which are fewer than the devices."""
    x = given(name, shape, dtype)
    with sw.enable_x64(True):
        found = getattr(jnp.fft, name)(placed(x, way))
    assert found.dtype.itemsize in ((4, 8) if dtype == "f" else (8, 16))
    same(found, name, x)


@pytest.mark.parametrize(
    ("name", "n", "dtype"),
    everyday([(k, n, d) for k in NAMES[:4] for n in (64, 128, 192, 40, 17, 5) for d in "fd"], 2),
)
def test_of_one_line(name: str, n: int, dtype: str):
    mesh = sw.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    x = given(name, (n,), dtype)
    with sw.enable_x64(True):
        y = sw.device_put(x, sw.NamedSharding(mesh, P("x")))
        same(getattr(jnp.fft, name)(y), name, x)


@pytest.mark.parametrize("name", everyday(("fft", "ifft", "fft2", "rfft", "irfft"), 1))
def test_types_keep_what_is_divided(name: str):
    x = given(name, (16, 64), "f")
    y = placed(x, "eight", AxisType.Explicit)
    found = sw.jit(getattr(jnp.fft, name))(y)
    assert sw.typeof(found).sharding.spec == P(None, "x")
    same(found, name, x)


@pytest.mark.parametrize(
    ("name", "shape", "way"),
    everyday(
        [
            (n, (64, 64), w)
            for n in ("fft", "ifft", "rfft", "irfft", "fft2")
            for w in ("eight", "rows too", "two")
        ]
        + [("fft", (4096,), "first")],
        2,
    ),
)
def test_no_device_holds_the_whole(name: str, shape: tuple[int, ...], way: str):
    x = placed(given(name, shape, "f"), way)
    compiled = sw.jit(getattr(jnp.fft, name)).lower(x).compile()
    text = compiled.as_text()
    assert "all-to-all" in text and "all-gather" not in text
    assert largest(compiled) <= 2 * np.prod(shape) // (4 if len(shape) == 1 else 8)


def test_gradients():
    x = given("rfft", (6, 24), "f")

    def f(x):
        return (abs(jnp.fft.rfft(x)) ** 3).sum()

    found, wanted = [np.asarray(sw.grad(f)(y)) for y in (placed(x, "eight"), x)]
    np.testing.assert_allclose(found, wanted, 1e-3, 1e-3)
    assert not re.search("all-gather", sw.jit(sw.grad(f)).lower(placed(x, "eight")).as_text())

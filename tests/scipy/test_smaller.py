"""`scipy`'s smaller modules: ndimage, cluster.vq, integrate."""

from __future__ import annotations

import jax.scipy.cluster.vq
import jax.scipy.ndimage
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.ndimage

import shardwise as sw
from shardwise.scipy import integrate, ndimage
from shardwise.scipy.cluster.vq import vq
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((5, 7))
PLACES = RNG.uniform(-12, 12, (2, 3, 20))
MODES = "nearest mirror reflect grid-wrap grid-constant grid-mirror".split()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("mode", everyday(MODES, 5))
def test_map_coordinates(mode, order):
    with sw.enable_x64(True):
        found = ndimage.map_coordinates(IMAGE, PLACES, order, mode, 3.0)
        close(found, scipy.ndimage.map_coordinates(IMAGE, PLACES, order=order, mode=mode, cval=3.0))
        jaxs = {"grid-constant": "constant", "grid-wrap": "wrap"}.get(mode, mode)
        close(ndimage.map_coordinates(IMAGE, PLACES, order, jaxs, 3.0), found)


def test_map_coordinates_keeps_dtypes():
    places = [np.float32([0.5, 1.5, -0.4, 9]), np.float32([1, 1.25, 2, 0])]
    for dtype in (np.int32, np.uint8, np.float16, np.complex64):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        for order in (0, 1):
            found = ndimage.map_coordinates(x, places, order, cval=7)
            wanted = jax.scipy.ndimage.map_coordinates(x, places, order, cval=7)
            close(found, wanted, 1e-3)
            assert found.dtype == dtype
    line = np.float32([2.0])
    for mode in MODES:
        assert ndimage.map_coordinates(line, [np.float32([0, 3])], 0, mode, 2.0).tolist() == [2, 2]


def test_map_coordinates_in_places():
    def f(image, places, mode):
        return ndimage.map_coordinates(image, list(places), 1, mode)

    for mode in everyday(("constant", "mirror", "wrap"), 1):
        everywhere(lambda image, places, mode=mode: f(image, places, mode), IMAGE, PLACES)


def test_vq():
    obs, codes = RNG.standard_normal((7, 3)), RNG.standard_normal((4, 3))
    with sw.enable_x64(True):
        close(vq(obs, codes), scipy.cluster.vq.vq(obs, codes))
        close(vq(obs[:, 0], codes[:, 0]), scipy.cluster.vq.vq(obs[:, 0], codes[:, 0]))
    everywhere(vq, obs, codes)
    assert vq(np.arange(4), np.arange(2))[1].dtype == np.float32


def test_trapezoid():
    x = np.sort(RNG.standard_normal(9))
    with sw.enable_x64(True):
        y = RNG.standard_normal((2, 9))
        close(integrate.trapezoid(y, x), scipy.integrate.trapezoid(y, x))
        close(integrate.trapezoid(y, dx=0.5, axis=0), scipy.integrate.trapezoid(y, dx=0.5, axis=0))


test_messages = messages(
    """
ndimage.map_coordinates(IMAGE, PLACES, 3)
    NotImplementedError: map_coordinates: order must be 0 or 1; got 3. For splines on a regular
    grid use `shardwise.image.scale_and_translate(method='cubic')`; those of SciPy run on the host,
    with `shardwise.pure_callback`.
ndimage.map_coordinates(IMAGE, PLACES, 1, "far")
    ValueError: map_coordinates: mode must be one of ['constant', 'nearest', 'wrap', 'mirror',
    'reflect', 'grid-constant', 'grid-wrap', 'grid-mirror']; got 'far'.
ndimage.map_coordinates(IMAGE, PLACES[:1], 1)
    ValueError: map_coordinates takes a nonempty array of at least one dimension, and coordinates
    for each dimension; got shape (5, 7) and 1 of them.
vq(IMAGE, IMAGE[0])
    ValueError: vq: obs and code_book must be matrices with the same number of columns, or vectors;
    got shapes (5, 7) and (7,).
""",
    globals(),
)


def test_signatures_are_those_of_jax():
    assert signature(vq) == signature(jax.scipy.cluster.vq.vq)
    assert signature(integrate.trapezoid) == signature(jax.scipy.integrate.trapezoid)
    assert signature(ndimage.map_coordinates) == signature(jax.scipy.ndimage.map_coordinates)

"""`shardwise.image`: values against jax and known ones, shardings, derivatives, errors."""

from __future__ import annotations

import itertools

import jax
import jax.image
import numpy as np
import pytest

import shardwise as sw
from shardwise import image
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(6)
IMAGE = RNG.standard_normal((7, 5, 3))
METHODS = ("nearest", "linear", "cubic", "cubic-pytorch", "lanczos3", "lanczos5", "area")
CASES = [*itertools.product(METHODS, (True, False))]


@pytest.mark.parametrize(("method", "antialias"), everyday(CASES, 1))
def test_values(method, antialias):
    with sw.enable_x64(True), jax.enable_x64(True):
        shapes = ((3, 8, 3), (14, 5, 3), (1, 1, 3), (7, 5, 3), (20, 2, 6), (0, 5, 3))
        for shape in everyday(shapes, 2, method):
            wanted = jax.image.resize(IMAGE, shape, method, antialias)
            close(image.resize(IMAGE, shape, method, antialias), wanted)
        moves = (([0.5, 1.7], [1.0, -2.3]), ([1.0, 1.0], [0.0, 30.0]))
        for scale, shift in everyday(moves, 1, method):
            if method != "nearest":
                rest = (6, 9, 3), (0, 1), np.array(scale), np.array(shift), method, antialias
                wanted = jax.image.scale_and_translate(IMAGE, *rest)
                close(image.scale_and_translate(IMAGE, *rest), wanted)


def test_known_values():
    x = np.arange(4, dtype=np.float32)
    assert image.resize(x, (2,), "area").tolist() == [0.5, 2.5]
    assert image.resize(x, (8,), "nearest").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert image.resize(x, (8,), "linear").tolist() == [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]


def test_dtypes():
    x = np.arange(6).reshape(2, 3)
    for dtype, wanted in ((np.uint8, "f4"), (np.float16, "f2"), (np.complex64, "c8")):
        assert image.resize(x.astype(dtype), (4, 4), "linear").dtype == np.dtype(wanted)
        assert image.resize(x.astype(dtype), (4, 4), "nearest").dtype == dtype


@pytest.mark.parametrize("method", everyday([*image.ResizeMethod], 1))
def test_places_and_derivatives(method):
    x = RNG.standard_normal((7, 9))
    if method in (image.ResizeMethod.NEAREST, image.ResizeMethod.LINEAR):
        everywhere(lambda x: image.resize(x, (10, 4), method), x)
    if method is not image.ResizeMethod.NEAREST:
        rest = np.array([0.7, 1.3]), np.array([0.2, 0.4])
        everywhere(
            lambda x, s, t: image.scale_and_translate(x, (5, 8), (0, 1), s, t, method), x, *rest
        )


def test_methods_have_names():
    for method in image.ResizeMethod:
        name = method.name.lower().replace("_", "-")
        assert image.ResizeMethod.from_string(name) is method
        assert method.value == jax.image.ResizeMethod[method.name].value


test_messages = messages(
    """
image.resize(IMAGE, (3, 3), "linear")
    ValueError: resize: shape must have a size for each of the image's dimensions; got (3, 3) for
    f32[7,5,3].
image.resize(IMAGE[:0], (3, 5, 3), "linear")
    ValueError: resize: the image must not be empty; got f32[0,5,3].
image.resize(IMAGE, (3, 5, 3), "sharp")
    ValueError: ResizeMethod: unknown method 'sharp'; the methods are nearest, linear, bilinear,
    trilinear, triangle, lanczos3, lanczos5, cubic, bicubic, tricubic, cubic-pytorch,
    bicubic-pytorch, area.
image.scale_and_translate(IMAGE, (3, 5, 3), (0,), [1.0], [0.0], "nearest")
    ValueError: scale_and_translate: method 'nearest' is supported by `resize` only.
image.scale_and_translate(IMAGE, (3, 4, 3), (0,), np.ones(1), np.ones(1), "linear")
    ValueError: scale_and_translate: only spatial_dims may change their size; got (0,), and (7, 5,
    3) to (3, 4, 3).
image.scale_and_translate(IMAGE, (3, 5, 3), (0,), np.ones(2), np.ones(1), "linear")
    ValueError: scale_and_translate: scale must have an element for each of spatial_dims; got shape
    (2,) for (0,).
""",
    globals(),
)


@pytest.mark.parametrize("name", ["resize", "scale_and_translate"])
def test_signatures_are_those_of_jax(name):
    ours, theirs = [signature(getattr(m.image, name)) for m in (sw, jax)]
    assert ours[:-1] == theirs[:-1] and str(ours[-1][2]) == str(theirs[-1][2]) == "HIGHEST"

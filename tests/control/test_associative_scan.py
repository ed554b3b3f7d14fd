"""`associative_scan` under every transform, against jax."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import NamedSharding, P, lax
from shardwise._src.base.config import disable_jit, poison_padding
from shardwise._src.control import bodies
from shardwise.sharding import Mesh
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

MATRICES = np.random.default_rng(0).normal(size=(2, 4, 2, 2)).astype(np.float32)


@pytest.mark.parametrize("n", range(10))
def test_sizes(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n,)).astype(np.float32)
    close(lax.associative_scan(swnp.add, x), np.cumsum(x, dtype=np.float32))
    back = lax.associative_scan(swnp.add, x, reverse=True)
    close(back, np.cumsum(x[::-1], dtype=np.float32)[::-1])
    close(sw.jit(lambda x: lax.associative_scan(swnp.maximum, x))(x), np.maximum.accumulate(x))


def linear(lib):
    """Composition of linear recurrences, which does not commute."""

    def compose(a, b):
        return {"m": b["m"] @ a["m"], "v": (b["m"] @ a["v"][..., None])[..., 0] + b["v"]}

    return compose


@pytest.mark.sweep
@pytest.mark.parametrize(("reverse", "axes"), [(False, (None, 0)), (True, None)])
def test_matrices_along_an_inner_axis(reverse, axes):
    def f(lib, m, w):
        elems = {"m": m, "v": m[..., 0] * w}
        return lib.lax.associative_scan(linear(lib), elems, reverse=reverse, axis=1)

    same_as_jax(f, MATRICES, np.float32([0.5, 2.0]), axes=axes, tol=2e-3)


def test_negative_axis_and_other_dtypes():
    for lib in (OURS, JAX):
        x = np.arange(12, dtype=np.int32).reshape(3, 4)
        close(
            lib.lax.associative_scan(lib.np.add, lib.np.asarray(x), axis=-1),
            np.cumsum(x, -1, np.int32),
        )
        flags = lib.np.asarray(x % 3 == 0)
        close(
            lib.lax.associative_scan(lib.np.logical_or, flags),
            np.logical_or.accumulate(x % 3 == 0, 0),
        )


def test_without_jit_and_no_arrays():
    with disable_jit(True):
        close(lax.associative_scan(lambda a, b: a + b, swnp.arange(4)), np.int32([0, 1, 3, 6]))
    assert lax.associative_scan(lambda a, b: a, ()) == ()


def test_a_function_is_staged_once_for_what_it_does(monkeypatch):
    staged = []
    stage = bodies.stage
    monkeypatch.setattr(bodies, "stage", lambda *a, **k: staged.append(1) or stage(*a, **k))
    x = swnp.arange(8)

    def plus(a, b):
        return a + b * scale

    for scale in (1, 1, -1, -1, 1):
        wanted = jax.lax.associative_scan(lambda a, b: a + b * scale, np.arange(8))  # noqa: B023
        close(lax.associative_scan(plus, x), wanted)
        close(sw.jit(lambda x: lax.associative_scan(plus, x))(x), wanted)
    assert len(staged) == 2


def test_the_method_of_an_object_is_read_at_each_call():
    """As in jax, which caches nothing for these two."""

    class Layer:
        scale = 2

        def each(self, x):
            return x * self.scale

        def plus(self, a, b):
            return a + b * self.scale

    layer, x = Layer(), np.arange(4)
    each, plus = layer.each, layer.plus
    for lib in (OURS, JAX):
        for layer.scale in (2, 3):
            close(lib.lax.map(each, lib.np.asarray(x)), np.int32(x * layer.scale))
            wanted = jax.lax.associative_scan(plus, x)
            close(lib.lax.associative_scan(plus, lib.np.asarray(x)), wanted)


def test_uneven_shards():
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",))
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(6, 2)
    wanted = jax.lax.associative_scan(jax.numpy.multiply, x + 1)
    for spec in (P("x"), P(None, "x")):
        placed = sw.device_put(x + 1, NamedSharding(mesh, spec))
        with poison_padding(True):
            close(lax.associative_scan(swnp.multiply, placed), wanted)


def test_messages():
    assert message(TypeError, lax.associative_scan, 3, MATRICES) == (
        "associative_scan: fn must be a function; got 3."
    )
    given = {"a": np.zeros((3, 2), np.float32), "b": np.zeros(4, np.float32)}
    assert message(ValueError, lax.associative_scan, swnp.add, given) == (
        "associative_scan: the arrays of elems must have the same size along dimension 0; "
        "elems['a'] of type f32[3,2] has 3, elems['b'] of type f32[4] has 4."
    )
    assert message(ValueError, lax.associative_scan, swnp.add, [np.float32(1)]) == (
        "associative_scan: elems[0] is of type f32[], which has no dimension 0."
    )
    assert message(TypeError, lax.associative_scan, lambda a, b: (a, b), np.zeros(3)) == (
        "associative_scan: <lambda> must return a pytree like elems; elems is a leaf in elems and "
        "a tuple of 2 in the result."
    )
    assert message(TypeError, lax.associative_scan, lambda a, b: a, ["text"]) == (
        "associative_scan: elems[0] is 'text' of type str, which is not an array."
    )
    assert message(TypeError, lax.associative_scan, lambda a, b: a + b * 2.0, np.arange(5)) == (
        "associative_scan: <lambda> must preserve the shapes and dtypes of its arguments, which "
        "are slices along dimension 0; elems was passed as i32[2] and returned as ~f32[2]. Change "
        "elems or <lambda> so that they agree."
    )
    given = {"a": np.zeros((4, 2), np.float32), "b": np.zeros(4, np.int32)}
    wrong = lambda a, b: {"a": a["a"][0], "b": a["b"] > 0}  # noqa: E731
    assert message(TypeError, lax.associative_scan, wrong, given) == (
        "associative_scan: wrong must preserve the shapes and dtypes of its arguments, which are "
        "slices along dimension 0; elems['a'] was passed as f32[2,2] and returned as f32[2], "
        "elems['b'] was passed as i32[2] and returned as bool[2]. Change elems or wrong so that "
        "they agree."
    ).replace("wrong", "<lambda>")


@pytest.mark.parametrize("run", [lambda f: f, sw.jit], ids=["eager", "jit"])
def test_refs_from_outside(run):
    """As in jax, except for empty sets of pairs, for which `fn` is not called."""
    seen, scale = sw.new_ref(np.float32(0)), sw.new_ref(np.float32(2))

    def f(x):
        def add(a, b):
            seen[...] += 1
            return a + b * scale[...] / 2

        return lax.associative_scan(add, x)

    for turn in (1, 2):
        close(run(f)(np.arange(8, dtype=np.float32)), np.cumsum(np.arange(8, dtype=np.float32)))
        assert float(seen[...]) == 5 * turn

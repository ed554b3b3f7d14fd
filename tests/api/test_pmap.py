"""`pmap`, against jax and `vmap`."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.errors import message
from tests.helpers.same_as_jax import JAX, OURS, close

X = np.arange(24, dtype=np.float32).reshape(8, 3) / 10
W = np.ones((3, 2), np.float32)

# Each: lib → (function of whole arrays, its arguments).
PROGRAMS = {
    "one argument": lambda lib: (lib.root.pmap(lambda x: x * 2), X),
    "a sum": lambda lib: (lib.root.pmap(lambda x: lib.lax.psum(x, "i"), axis_name="i"), X),
    "shared": lambda lib: (lib.root.pmap(lambda x, w: x @ w, in_axes=(0, None)), X, W),
    "other axes": lambda lib: (lib.root.pmap(lambda x: x + 1, in_axes=1, out_axes=1), X.T),
    "one result": lambda lib: (
        lib.root.pmap(lambda x: (lib.lax.pmean(x, "i"), x), axis_name="i", out_axes=(None, 0)), X
    ),
    "grad": lambda lib: (lib.root.grad(lambda x: lib.np.sum(
        lib.root.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), axis_name="i")(x))), X),
    "grad inside": lambda lib: (lib.root.pmap(
        lambda x, w: lib.lax.pmean(
            lib.root.grad(lambda w: lib.np.sum(lib.np.tanh(x @ w)))(w), "i"),
        axis_name="i", in_axes=(0, None)), X, W),
    "jvp": lambda lib: (lambda x: lib.root.jvp(
        lib.root.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), axis_name="i"),
        (x,), (lib.np.cos(x),)), X),
    "vmap": lambda lib: (
        lib.root.vmap(lib.root.pmap(lambda x: lib.lax.psum(x, "i"), axis_name="i")),
        np.stack([X, 2 * X])),
    "static": lambda lib: (
        lambda x: lib.root.pmap(lambda x, n: x**n, static_broadcasted_argnums=1)(x, 3), X),
    "by name": lambda lib: (lambda x: lib.root.pmap(lambda x, y: x + y)(x, y=x), X),
    "trees": lambda lib: (lib.root.pmap(
        lambda d: {"s": d["a"].sum(), "b": d["b"]}, in_axes=({"a": 0, "b": None},)),
        {"a": X, "b": W}),
    "in jit": lambda lib: (lib.root.jit(lambda x: 1 + lib.root.pmap(
        lambda x: lib.lax.ppermute(x, "i", [(j, (j + 1) % 8) for j in range(8)]),
        axis_name="i")(x)), X),
    "in a loop": lambda lib: (lib.root.pmap(
        lambda x: lib.lax.fori_loop(0, 3, lambda _, c: lib.np.sin(lib.lax.psum(c, "i")), x),
        axis_name="i"), X),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax")
@pytest.mark.parametrize("case", PROGRAMS)
def test_results_are_those_of_jax(case):
    (f, *args), (g, *others) = PROGRAMS[case](OURS), PROGRAMS[case](JAX)
    close(jax.tree.map(np.asarray, sw.tree.map(np.asarray, f(*args))),
          jax.tree.map(np.asarray, g(*others)), 1e-5)


def test_each_device_has_its_part():
    y = sw.pmap(lambda x: x)(X)
    assert [np.asarray(s.data).shape for s in y.addressable_shards] == [(1, 3)] * 8
    assert [s.device for s in y.addressable_shards] == sw.devices()


def test_on_given_devices():
    devices = sw.devices()[5:1:-1]
    f = sw.pmap(lambda x: x * lax.axis_index("i"), axis_name="i", devices=devices)
    y = f(np.ones(4))
    assert y.tolist() == [0, 1, 2, 3]
    assert [s.device for s in sorted(y.addressable_shards, key=lambda s: s.index[0].start)] == (
        devices
    )


def test_a_size_that_no_argument_says():
    f = sw.pmap(lambda w: w * lax.axis_index("i"), axis_name="i", in_axes=None, axis_size=4)
    assert f(2.0).tolist() == [0, 2, 4, 6]


def test_a_map_in_a_map():
    f = sw.pmap(
        lambda x: sw.pmap(lambda y: lax.psum(y, ("j", "i")) * y, axis_name="j")(x), axis_name="i"
    )
    close(f(X), X.sum() * X, 1e-5)


def test_the_function_runs_once():
    traces = []
    f = sw.pmap(lambda x: (traces.append(1), x)[1])
    for _ in range(3):
        f(X)
    assert len(traces) == 1
    f(X[:4])
    assert len(traces) == 2


def test_arguments_may_be_donated():
    x = sw.pmap(lambda x: x)(X)
    y = sw.pmap(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    close(y, X + 1, 0)


def test_static_arguments_count_from_the_end_too():
    close(sw.pmap(lambda x, n: x * n, static_broadcasted_argnums=-1)(X, 3), 3 * X, 1e-6)


def test_a_map_in_a_map_has_no_devices_of_its_own():
    def f(x):
        return sw.pmap(jnp.sin, devices=sw.devices()[:3])(x)

    assert message(ValueError, sw.pmap(f), X) == (
        "pmap of sin is inside of another map, which has taken the devices: leave out `devices`."
    )


def test_with_nan():
    x = np.where(X > 1, np.nan, X).astype(np.float32)
    found = sw.pmap(lambda x: lax.pmax(x, "i"), axis_name="i")(x)
    np.testing.assert_array_equal(found, np.broadcast_to(x.max(0), x.shape))


@pytest.mark.parametrize(
    ("f", "args", "expected"),
    [
        (
            sw.pmap(jnp.sin), (np.ones(9),),
            "pmap of sin: the mapped axis has size 9, and there are 8 devices. Each index has a "
            "device of its own: give fewer, or use `shardwise.vmap`, or `shardwise.jit` with "
            "shardings.",
        ),
        (
            sw.pmap(jnp.sin, out_axes=3), (X,),
            "pmap of sin: out_axes is 3 for result, which has 2 dimensions with the mapped one.",
        ),
        (
            sw.pmap(jnp.add), (X, X[:4]),
            "pmap of add: mapped axes must have one size; axis 0 of x1 of type f32[8,3] has 8, "
            "axis 0 of x2 of type f32[4,3] has 4. What all examples share is passed by position, "
            "with None for it in in_axes.",
        ),
    ],
)
def test_errors(f, args, expected):
    assert message(ValueError, f, *args) == expected

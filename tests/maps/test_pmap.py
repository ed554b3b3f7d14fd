"""`pmap`, against jax and `vmap`."""

import functools
import importlib

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.comparing import close
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS

X = np.arange(24, dtype=np.float32).reshape(8, 3) / 10
W = np.ones((3, 2), np.float32)


def power(x, n):
    return x**n


class Scaling:
    def __init__(self, factor):
        self.factor = factor

    def scaled(self, x):
        return self.factor * x


# Each: lib → (function of full arrays, its arguments).
PROGRAMS = {
    "one argument": lambda lib: (lib.root.pmap(lambda x: x * 2), X),
    "a sum": lambda lib: (lib.root.pmap(lambda x: lib.lax.psum(x, "i"), axis_name="i"), X),
    "shared": lambda lib: (lib.root.pmap(lambda x, w: x @ w, in_axes=(0, None)), X, W),
    "other axes": lambda lib: (lib.root.pmap(lambda x: x + 1, in_axes=1, out_axes=1), X.T),
    "one result": lambda lib: (
        lib.root.pmap(lambda x: (lib.lax.pmean(x, "i"), x), axis_name="i", out_axes=(None, 0)),
        X,
    ),
    "grad": lambda lib: (
        lib.root.grad(
            lambda x: lib.np.sum(
                lib.root.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), axis_name="i")(x)
            )
        ),
        X,
    ),
    "grad inside": lambda lib: (
        lib.root.pmap(
            lambda x, w: lib.lax.pmean(
                lib.root.grad(lambda w: lib.np.sum(lib.np.tanh(x @ w)))(w), "i"
            ),
            axis_name="i",
            in_axes=(0, None),
        ),
        X,
        W,
    ),
    "jvp": lambda lib: (
        lambda x: lib.root.jvp(
            lib.root.pmap(lambda x: lib.np.sin(x) * lib.lax.psum(x, "i"), axis_name="i"),
            (x,),
            (lib.np.cos(x),),
        ),
        X,
    ),
    "vmap": lambda lib: (
        lib.root.vmap(lib.root.pmap(lambda x: lib.lax.psum(x, "i"), axis_name="i")),
        np.stack([X, 2 * X]),
    ),
    "static": lambda lib: (
        lambda x: lib.root.pmap(lambda x, n: x**n, static_broadcasted_argnums=1)(x, 3),
        X,
    ),
    "by name": lambda lib: (lambda x: lib.root.pmap(lambda x, y: x + y)(x, y=x), X),
    "trees": lambda lib: (
        lib.root.pmap(lambda d: {"s": d["a"].sum(), "b": d["b"]}, in_axes=({"a": 0, "b": None},)),
        {"a": X, "b": W},
    ),
    "in jit": lambda lib: (
        lib.root.jit(
            lambda x: (
                1
                + lib.root.pmap(
                    lambda x: lib.lax.ppermute(x, "i", [(j, (j + 1) % 8) for j in range(8)]),
                    axis_name="i",
                )(x)
            )
        ),
        X,
    ),
    "vmap inside": lambda lib: (
        lib.root.pmap(
            lib.root.vmap(lambda x: x * lib.lax.psum(x, ("i", "j")), axis_name="j"), axis_name="i"
        ),
        X,
    ),
    "grad of shared": lambda lib: (
        lib.root.grad(
            lambda w: lib.np.sum(
                lib.root.pmap(lambda x, w: lib.np.tanh(x @ w), in_axes=(0, None))(X, w) ** 2
            )
        ),
        W,
    ),
    "hessian": lambda lib: (lib.root.pmap(lib.root.hessian(lambda x: lib.np.prod(x))), X),
    "grad of out axes": lambda lib: (
        lib.root.grad(
            lambda x: lib.np.sum(
                lib.np.cos(lib.root.pmap(lambda x: lib.np.sin(x), in_axes=1, out_axes=1)(x))
            )
        ),
        X.T,
    ),
    "custom": lambda lib: (lib.root.pmap(lib.root.grad(_custom(lib))), X[:, 0]),
    "a custom map": lambda lib: (lib.root.grad(lambda x: lib.np.sum(_custom(lib, True)(x))), X),
    "checkpoint": lambda lib: (
        lib.root.pmap(
            lib.root.grad(lib.root.checkpoint(lambda x: lib.np.sum(lib.np.sin(lib.np.sin(x)))))
        ),
        X,
    ),
    "over rows of two": lambda lib: (
        lib.root.vmap(
            lib.root.pmap(lambda x, y: x * y, in_axes=(1, None), out_axes=1), in_axes=(None, 0)
        ),
        X.T,
        X[:2, 0],
    ),
    "no results": lambda lib: (lib.root.pmap(lambda x: ()), X),
    "a constant": lambda lib: (lib.root.pmap(lambda x: lib.np.ones(2)), X),
    "bound": lambda lib: (lib.root.pmap(functools.partial(power, n=3)), X),
    "a method": lambda lib: (lib.root.pmap(Scaling(3.0).scaled), X),
    "no elements": lambda lib: (lib.root.pmap(lambda x: (x, x.sum())), X[:, :0]),
    "other orders": lambda lib: (
        lib.root.pmap(lambda x, y: x + y),
        np.asfortranarray(X),
        np.repeat(X, 2, 0)[::2],
    ),
    "an index of it": lambda lib: (
        lib.root.grad(lambda x: lib.np.sum(lib.root.pmap(lib.np.sin)(x)[2])),
        X,
    ),
    "in a loop": lambda lib: (
        lib.root.pmap(
            lambda x: lib.lax.fori_loop(0, 3, lambda _, c: lib.np.sin(lib.lax.psum(c, "i")), x),
            axis_name="i",
        ),
        X,
    ),
}


def _custom(lib, mapped=False):
    """A function with a custom derivative, twice the usual one."""
    over = lib.root.pmap if mapped else lambda f: f
    f = lib.root.custom_vjp(lambda x: over(lib.np.sin)(x))
    back = over(lambda x, ct: 2 * ct * lib.np.cos(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (back(x, ct),))
    return f


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jax")
@pytest.mark.parametrize("case", everyday(PROGRAMS, 2))
def test_results_are_those_of_jax(case):
    (f, *args), (g, *others) = PROGRAMS[case](OURS), PROGRAMS[case](JAX)
    close(
        jax.tree.map(np.asarray, sw.tree.map(np.asarray, f(*args))),
        jax.tree.map(np.asarray, g(*others)),
        1e-5,
    )


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


def test_fewer_indices_than_given_devices():
    """The map runs on the first ones; a map in it needs none."""
    devices = sw.devices()[::-1]
    y = sw.pmap(lambda x: x * lax.psum(1, "i"), "i", devices=devices)(X[:4])
    close(y, 4 * X[:4], 0)
    assert {s.device: s.index[0].start for s in y.addressable_shards} == {
        d: i for i, d in enumerate(devices[:4])
    }
    nested = sw.pmap(sw.pmap(lambda v: lax.psum(v, ("i", "j")), "j"), "i", devices=devices)
    close(nested(X[:4]), np.full((4, 3), X[:4].sum()), 1e-6)


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


def test_a_function_that_is_mapped_again_is_not_staged_again(monkeypatch):
    """Nor if it is re-created and does the same; another axis, for example, is another program."""
    staged, module = [], importlib.import_module("shardwise._src.maps.pmap")
    real = module.over_parts
    monkeypatch.setattr(module, "over_parts", lambda *args: staged.append(1) or real(*args))

    def mapped(scale, **how):
        return sw.pmap(lambda x: lax.psum(x, "i") * scale, axis_name="i", **how)

    total = X.sum(0)
    for _ in range(3):
        close(mapped(2.0)(X)[0], 2 * total, 1e-5)
        close(mapped(2.0, in_axes=1)(X.T)[0], 2 * total, 1e-5)
        close(mapped(2.0, out_axes=None)(X), 2 * total, 1e-5)
        close(mapped(2.0, devices=sw.devices()[::-1])(X)[0], 2 * total, 1e-5)
        close(mapped(3.0)(X)[0], 3 * total, 1e-5)
        close(mapped(3.0)(X[:4])[0], 3 * X[:4].sum(0), 1e-5)
    assert len(staged) == 6


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
        "pmap of sin is inside another map, which already uses the devices: leave out `devices`."
    )


def test_a_function_has_its_lowered_program():
    run = sw.pmap(lambda x, n: x * n, static_broadcasted_argnums=1)
    assert "sdy.manual_computation" in run.lower(X, 3).as_text()
    assert run.lower(sw.device_put(X, sw.devices()[3]), 3).compile() is not None
    described = sw.core.ShapedArray(X.shape, X.dtype)
    np.testing.assert_allclose(run.lower(described, 3).compile()(X), 3 * X)


def test_static_arguments_decide_on_the_program():
    traces = []

    def f(x, how, y):
        traces.append(how)
        return x + y if how == "add" else x * y

    run = sw.pmap(f, static_broadcasted_argnums=1, in_axes=(0, None, 1))
    for _ in range(2):
        close(run(X, "add", X.T), 2 * X, 1e-6)
        close(run(X, "mul", X.T), X * X, 1e-6)
    assert traces == ["add", "mul"]


@pytest.mark.parametrize("eager", [True, False])
def test_under_disable_jit(eager):
    """Op by op with `eager_pmap`; otherwise compiled: the function runs once, for tracing."""
    calls = []

    def f(x, w):
        calls.append(x)
        return lax.psum(x * w, "i"), x - lax.pmean(x, "i"), {"n": lax.axis_index("i")}

    run = sw.pmap(f, axis_name="i", in_axes=(0, None), out_axes=(None, 1, 0))
    wanted = run(X, 2.0)
    calls.clear()
    with sw.disable_jit():
        sw.config.update("eager_pmap", eager)
        try:
            for _ in range(2):
                found = run(X, 2.0)
        finally:
            sw.config.update("eager_pmap", True)
    assert len(calls) == 2
    close(sw.tree.map(np.asarray, found), sw.tree.map(np.asarray, wanted), 1e-6)
    if eager:
        shardings = [x.sharding for x in sw.tree.leaves(found)]
        assert shardings == [x.sharding for x in sw.tree.leaves(wanted)]


def test_global_shapes_are_accepted():
    run = sw.pmap(lambda x, w: x * w, in_axes=(0, None), global_arg_shapes=((3,), None))
    close(run(X, 2.0), 2 * X, 1e-6)


def test_a_result_of_one_device_in_a_map():
    """If all values are the same; and if they differ: the value of the first device."""

    def f(x):
        inner = sw.pmap(lambda y: (lax.psum(y, "j"), y), axis_name="j", out_axes=(None, None))
        return inner(x)

    total, first = sw.pmap(f)(X)
    close(total, X.sum(1), 1e-5)
    close(first, X[:, 0], 0)


def test_with_nan():
    x = np.where(X > 1, np.nan, X).astype(np.float32)
    found = sw.pmap(lambda x: lax.pmax(x, "i"), axis_name="i")(x)
    np.testing.assert_array_equal(found, np.broadcast_to(x.max(0), x.shape))


test_errors = messages(
    """
sw.pmap(jnp.sin)(np.ones(9))
    ValueError: pmap of sin: the mapped axis has size 9, and there are 8 devices. Each index runs
    on its own device: pass fewer, or use `shardwise.vmap`, or `shardwise.jit` with shardings.
sw.pmap(jnp.sin, out_axes=3)(X)
    ValueError: pmap of sin: out_axes is 3 for result, which has 2 dimensions including the mapped
    one.
sw.pmap(jnp.add)(X, X[:4])
    ValueError: pmap of add: mapped axes must have the same size; axis 0 of x1 of type f32[8,3] has
    8, axis 0 of x2 of type f32[4,3] has 4. Pass arguments that all examples share by position,
    with None in in_axes.
sw.pmap(jnp.sin)(X[:0])
    ValueError: pmap of sin: the mapped axis has size 0; it must be at least 1, as each index runs
    on its own device.
sw.pmap(jnp.sin, devices=sw.devices()[:3])(X)
    ValueError: pmap of sin: the mapped axis has size 8, and there are 3 devices. Each index runs
    on its own device: pass fewer, or use `shardwise.vmap`, or `shardwise.jit` with shardings.
sw.pmap(jnp.sin, devices=[])
    ValueError: pmap of sin: devices is empty. Leave it out to use those of this process.
sw.pmap(jnp.sin, in_axes=2)(X)
    ValueError: pmap of sin: x is of type f32[8,3], which has no axis 2 to map over. Pass arguments
    that all examples share by position, with None in in_axes.
sw.pmap(jnp.sin, in_axes=(0, None))(X)
    ValueError: pmap of sin: in_axes has 2 entries, but the call has 1 positional argument (x); a
    tuple must have one entry for each. Arguments passed by keyword have none.
sw.pmap(jnp.sin, out_axes=(0, 1))(X)
    ValueError: pmap of sin: out_axes must be a pytree prefix of the values that it describes, with
    one entry for each value or for a whole subtree: result is a tuple of 2 in out_axes and a leaf
    in the value.
sw.pmap(jnp.sin, axis_size=4)(X)
    ValueError: pmap of sin: mapped axes must have the same size; axis_size is 4, axis 0 of x of
    type f32[8,3] has 8. Pass arguments that all examples share by position, with None in in_axes.
sw.pmap(jnp.sin, in_axes=None)(X)
    ValueError: pmap of sin needs an argument with a mapped axis, or axis_size: all in_axes are
    None.
sw.pmap(power, static_broadcasted_argnums=1)(X, [2])
    ValueError: pmap of power: static argument n is [2] of type list, which cannot be hashed.
    Static arguments are part of the cache key: use a hashable type such as a tuple, or do not mark
    it static.
sw.pmap(power, static_broadcasted_argnums=1)(X)
    ValueError: pmap of power: static_broadcasted_argnums is (1,), but the call has 1 positional
    argument. Its entries are positions of arguments.
sw.pmap(power, donate_argnums=2)(X, X)
    ValueError: pmap of power: donate_argnums is (2,), but the call has 2 positional arguments. Its
    entries are positions of arguments.
sw.pmap(jnp.sin, global_arg_shapes=((4,),))(X)
    ValueError: pmap of sin: global_arg_shapes has (4,) for x, which is of type f32[8,3]: (3,)
    without the mapped axis. It can be left out: arrays have shapes.
sw.pmap(jnp.sin, global_arg_shapes=((3,), None))(X)
    ValueError: pmap of sin: global_arg_shapes must have a shape or None for each of the 1 array of
    the call; got ((3,), None) of type tuple. It can be left out: arrays have shapes.
""",
    globals(),
)


test_errors_of_kinds = messages(
    """
sw.pmap(jnp.sin)("abc")
    TypeError: pmap of sin: x: expected an array or a scalar, got 'abc' of type str.
sw.pmap(lambda x: "a")(X)
    TypeError: pmap of <lambda>: the result: expected an array or a scalar, got 'a' of type str.
sw.pmap(jnp.sin, in_axes="a")(X)
    TypeError: pmap of sin: axes must be ints or None; got 'a' for x.
sw.pmap(jnp.sin, devices=[0, 1])(X)
    TypeError: pmap of sin: devices must be a list of devices; got (0, 1) of type tuple.
sw.pmap(power, static_broadcasted_argnums="n")
    TypeError: pmap of power: static_broadcasted_argnums takes ints; got 'n' of type str.
sw.pmap(power, static_broadcasted_argnums=1, donate_argnums=(0, 1))
    ValueError: pmap of power: argument 1 cannot be both static and donated; a static argument has
    no memory on a device.
sw.pmap(jnp.sin, axis_size="8")
    TypeError: pmap: axis_size must be an int or None; got '8' of type str.
sw.pmap(3)
    TypeError: pmap takes a function; got 3 of type int.
""",
    globals(),
)

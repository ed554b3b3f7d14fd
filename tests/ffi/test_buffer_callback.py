"""`buffer_callback`: host callbacks that write into buffers, compared with jax's."""

import threading
from itertools import product

import jax
import numpy as np
import pytest
from jax.experimental import buffer_callback as jax_buffers

import shardwise as sw
from shardwise.experimental.buffer_callback import (
    Buffer,
    ExecutionContext,
    ExecutionStage,
    buffer_callback,
)
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails, message
from tests.helpers.everyday import everyday

X = np.arange(12, dtype=np.float32).reshape(3, 4)
METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def add_one(ctx, out, x):
    np.asarray(out)[...] = np.asarray(x) + 1


def like(x):
    return sw.ShapeDtypeStruct(x.shape, x.dtype)


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit])
def test_trees(wrap):
    seen = []

    def both(ctx, out, pair, *, by):
        a, b = pair
        seen.append((type(ctx), ctx.stage, type(a), a.shape, a.dtype, a.ndim, a.writeable,
                     out["sum"].writeable))  # fmt: skip
        np.asarray(out["sum"])[...] = np.asarray(a) + np.asarray(b)
        np.asarray(out["scaled"])[...] = np.asarray(a) * np.asarray(by)

    run = buffer_callback(both, {"sum": like(X), "scaled": like(X)})
    got = wrap(lambda a, b: run((a, b), by=np.float32(3)))(X, X + 1)
    np.testing.assert_array_equal(got["sum"], 2 * X + 1)
    np.testing.assert_array_equal(got["scaled"], 3 * X)
    assert seen == [
        (ExecutionContext, ExecutionStage.EXECUTE, Buffer, (3, 4), np.float32, 2, False, True)
    ]


@pytest.mark.parametrize(("method", "axes"), everyday(product(METHODS, [(0, 0), (1, None)]), 5))
def test_vmap_as_jax(method, axes):
    found = []
    for root, buffers in ((jax, jax_buffers.buffer_callback), (sw, buffer_callback)):
        shapes = []

        def add(ctx, out, a, b, shapes=shapes):
            shapes.append((out.shape, a.shape, b.shape))
            a, b = np.asarray(a), np.asarray(b)
            np.asarray(out)[...] = a + b.reshape((1,) * (a.ndim - b.ndim) + b.shape)

        call = buffers(add, root.ShapeDtypeStruct((3,), np.float32), vmap_method=method)
        b = X.T if axes[1] == 0 else X.T[0]
        a = X.T if axes[0] == 0 else X
        got = root.vmap(lambda a, b, call=call: call(a, b), axes)(a, b)
        found.append((np.asarray(got), shapes))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_no_method_and_no_derivative():
    f = buffer_callback(add_one, like(X[0]))
    place = "buffer_callback of add_one, called at "
    text = message(NotImplementedError, sw.vmap(f), X)
    assert text.startswith(place) and "as vmap_method is None. Pass one of 'sequential'" in text
    text = message(ValueError, sw.grad(lambda x: f(x).sum()), X[0])
    assert text.startswith(place) and "in a function with `shardwise.custom_vjp` or" in text
    assert message(ValueError, buffer_callback, add_one, like(X), vmap_method="all") == (
        "buffer_callback of add_one: vmap_method must be None or one of 'sequential', "
        "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized'; got 'all'."
    )
    fails(
        TypeError,
        "buffer_callback takes a function as its first argument; got 3.",
        buffer_callback,
        3,
        like(X),
    )


def test_aliases():
    def twice(ctx, out, x):
        assert out.shape == x.shape
        np.asarray(out)[...] *= 2  # begins with the values of x

    f = buffer_callback(twice, like(X), input_output_aliases={0: 0})
    x = sw.numpy.asarray(X)
    np.testing.assert_array_equal(f(x), 2 * X)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(sw.jit(lambda x: f(x + 1))(X), 2 * (X + 1))
    assert message(ValueError, buffer_callback(twice, like(X), input_output_aliases={1: 0}), X) == (
        "buffer_callback of twice: input_output_aliases has 1: 0, but the call has 1 operand."
    )


@pytest.mark.parametrize("effect", [True, False])
def test_calls_whose_results_are_not_used(effect):
    calls = []
    run = buffer_callback(lambda ctx, out, x: calls.append(1), (), has_side_effect=effect)

    @sw.jit
    def f(x):
        run(x)
        return x

    f(X).block_until_ready()
    sw.effects_barrier()
    assert len(calls) == effect


@pytest.mark.parametrize("spec", [None, P("i"), P(None, "i")])
def test_on_several_devices_each_does_the_whole(spec):
    lock, calls = threading.Lock(), []

    def counted(ctx, out, x):
        with lock:
            calls.append(x.shape)
        add_one(ctx, out, x)

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    f = sw.jit(buffer_callback(counted, like(x)))
    if spec is not None:
        mesh = sw.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
        placed = sw.device_put(x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(f(x if spec is None else placed), x + 1)
    assert calls == [(8, 8)] * (1 if spec is None else 8)


def test_in_shard_map():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    mesh = sw.make_mesh((8,), ("i",))
    local = lambda x: buffer_callback(add_one, like(x))(x)  # noqa: E731
    f = sw.jit(sw.shard_map(local, mesh=mesh, in_specs=P("i"), out_specs=P("i")))
    np.testing.assert_array_equal(f(x), x + 1)


@pytest.mark.parametrize("count", [1, 8])
def test_errors(count):
    def wrong(ctx, out, x):
        raise KeyError("no")

    def gives(ctx, out, x):
        return 3

    mesh = sw.make_mesh((count,), ("i",), axis_types=(AxisType.Auto,))
    x = sw.device_put(np.ones(8, np.float32), NamedSharding(mesh, P("i")))
    for fun, end in (
        (wrong, "it raised KeyError: 'no'"),
        (gives, "the function returned 3; it must write its results into the buffers that it "
         "gets, and return None."),
    ):  # fmt: skip
        f = sw.jit(buffer_callback(fun, like(x)))
        text = message(sw.errors.CallbackError, lambda f=f: np.asarray(f(x)))
        assert text.startswith(f"buffer_callback of {fun.__name__}, called at ")
        assert text.endswith(end)
        np.testing.assert_array_equal(sw.jit(buffer_callback(add_one, like(x)))(x), np.full(8, 2))


def test_custom_jvp_and_export():
    @sw.custom_jvp
    def square(x):
        def write(ctx, out, x):
            np.asarray(out)[...] = np.asarray(x) ** 2

        return buffer_callback(write, like(x))(x)

    square.defjvp(lambda primals, tangents: (square(*primals), 2 * primals[0] * tangents[0]))
    np.testing.assert_array_equal(sw.grad(lambda x: square(x).sum())(X), 2 * X)
    with pytest.raises(NotImplementedError, match="calls host functions"):
        sw.export.export(sw.jit(buffer_callback(add_one, like(X))))(X)

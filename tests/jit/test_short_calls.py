"""Calls on the short paths: NumPy arguments, donated arrays, compiled programs, values that are read.

Each is called several times with the same signature, so that the later calls hit the caches.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.jit.compiled import Compiled
from shardwise._src.jit.jit import Jitted
from shardwise._src.transfers import transfer
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails

V = np.arange(6, dtype=np.float32)
MESH = sw.make_mesh((8,), ("x",))


def test_results_do_not_see_later_writes_to_numpy_arguments():
    f, host = sw.jit(lambda x: x * 2), np.arange(1 << 16, dtype=np.float32)
    for _ in range(3):
        before = host.copy()
        out = f(host)
        host[:] = -1
        np.testing.assert_array_equal(out, before * 2)
        host[:] = before + 1


def test_numpy_arguments_of_every_kind_keep_their_values_and_types():
    f = sw.jit(lambda x: x + 1)
    odd = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = [V, V.astype("d"), V[::2], odd.T, odd[:, 1:3], np.arange(6), V > 2, V.astype("e")]
    values += [np.float32(2), 2.5, 2, True, np.array(3.0), np.zeros((0, 2), "f")]
    for _ in range(3):
        for value in values:
            out = f(value)
            want = jnp.asarray(value) + 1
            assert (out.dtype, out.weak_type, out.committed) == (want.dtype, want.weak_type, False)
            np.testing.assert_array_equal(out, want)


def test_numpy_arguments_beside_arrays_in_a_pytree():
    f = sw.jit(lambda tree, y, *, scale: tree["a"] * scale + tree["b"] - y)
    for k in range(3):
        tree = {"a": V + k, "b": jnp.ones(6)}
        out = f(tree, V[::-1], scale=2.0)
        np.testing.assert_array_equal(out, (V + k) * 2 + 1 - V[::-1])
    committed = sw.device_put(V, sw.devices()[3])
    for _ in range(2):
        out = f({"a": V, "b": committed}, V, scale=1.0)
        assert out.devices() == {sw.devices()[3]}
        np.testing.assert_array_equal(out, V)


def test_a_numpy_argument_for_other_devices_by_in_shardings():
    f = sw.jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, P("x")))
    host = np.arange(16, dtype=np.float32)
    for _ in range(3):
        out = f(host)
        assert len(out.devices()) == 8
        np.testing.assert_array_equal(out, host + 1)


@pytest.mark.parametrize("devices", [1, 8])
def test_donated_state_and_a_batch_from_numpy(devices):
    step = sw.jit(lambda s, b: {k: v + b for k, v in s.items()}, donate_argnums=0)
    place = NamedSharding(MESH, P()) if devices == 8 else sw.devices()[0]
    state = sw.device_put({"a": V, "b": -V}, place)
    for k in range(4):
        old, state = state, step(state, V)
        assert all(x.is_deleted() for x in old.values())
        np.testing.assert_array_equal(state["a"], V * (k + 2))
    message = "array of type f32[6] was donated to <lambda>. Use what <lambda> returned; to keep "
    with pytest.raises(RuntimeError) as raised:
        old["a"] + 1
    assert str(raised.value).startswith(message)
    with pytest.raises(RuntimeError) as raised:
        step(old, V)
    assert str(raised.value).startswith(message)


def alone(function):
    """A function of one array, which is donated."""
    return sw.jit(function, donate_argnums=0)


def in_a_pytree(function):
    """The same as a part of a pytree that is donated."""
    jitted = sw.jit(lambda tree: {k: function(x) for k, x in tree.items()}, donate_argnums=0)
    return lambda x: jitted({"x": x, "other": x * 0})["x"]


@pytest.mark.parametrize("donating", [alone, in_a_pytree])
def test_views_of_donated_arrays_keep_their_values(donating):
    f, x = donating(lambda x: x + 1), jnp.arange(1024.0)
    x = f(f(x))  # cached from here on
    view = np.asarray(x)
    kept, y = view.copy(), f(x)
    z = f(y)
    np.testing.assert_array_equal(view, kept)
    np.testing.assert_array_equal(z, kept + 2)
    assert x.is_deleted() and y.is_deleted()


@pytest.mark.parametrize("donating", [alone, in_a_pytree])
def test_shards_of_donated_arrays_are_gone_too(donating):
    f, place = donating(lambda x: x + 1), NamedSharding(MESH, P("x"))
    x = f(f(sw.device_put(np.arange(16.0, dtype="f"), place)))
    shard = x.addressable_shards[2].data
    y = f(x)
    assert shard.is_deleted() and x.is_deleted()
    np.testing.assert_array_equal(y, np.arange(16) + 3)


def test_one_array_is_not_donated_and_used_in_one_call():
    f = sw.jit(lambda a, b: a + b, donate_argnums=0)
    f(jnp.ones(3), jnp.ones(3))
    x = jnp.ones(3)
    message = (
        "<lambda>: a and b are the same array, but a is donated: its memory will be reused. Pass a "
        "copy as one of them, or do not donate it."
    )
    with pytest.raises(RuntimeError) as raised:
        f(x, x)
    assert str(raised.value) == message
    np.testing.assert_array_equal(x, np.ones(3))


def test_compiled_programs_check_every_call():
    x, there = jnp.ones(3), sw.device_put(np.ones(3, "f"), sw.devices()[1])
    f = sw.jit(lambda x, y: x + 2 * y["b"]).lower(x, {"b": x}).compile()
    for k in range(3):
        np.testing.assert_array_equal(f(x + k, {"b": x}), np.full(3, k + 3.0))
    np.testing.assert_array_equal(f(x, {"b": np.ones(3, "f")}), np.full(3, 3.0))
    with pytest.raises(TypeError, match="must be of type f32"):
        f(x, {"b": jnp.ones(4)})
    with pytest.raises(TypeError, match="pytree structure"):
        f(x, x)
    with pytest.raises(ValueError, match="is on SingleDeviceSharding"):
        f(x, {"b": there})
    with pytest.raises(RuntimeError, match="the flag no_execution is on"), sw.no_execution(True):
        f(x, {"b": x})
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(RuntimeError, match="has been deleted"):
        f(gone, {"b": x})
    np.testing.assert_array_equal(f(x, {"b": x}), np.full(3, 3.0))


def test_compiled_programs_leave_out_unused_arguments_and_donate():
    x = jnp.ones(3)
    f = sw.jit(lambda x, unused, y: x + y, donate_argnums=0).lower(x, x, x).compile()
    for _ in range(3):
        given = jnp.full(3, 2.0)
        np.testing.assert_array_equal(f(given, x, x), np.full(3, 3.0))
        assert given.is_deleted() and not x.is_deleted()


def test_values_that_are_read_are_views_that_cannot_be_written():
    f = sw.jit(lambda x: x + 1)
    for dtype in ("f", "i", "?", "D", "e"):
        x = f(sw.device_put(np.ones((2, 3), dtype)))
        value = np.asarray(x)
        assert np.shares_memory(value, np.asarray(x))
        assert not value.flags.writeable and value.shape == (2, 3)
        x.delete()
        with pytest.raises(RuntimeError, match="has been deleted"):
            np.asarray(x)
    assert np.asarray(f(jnp.zeros((0, 2)))).shape == (0, 2)


GRID = sw.make_mesh((2, 4), ("x", "y"))
TURNED = sw.sharding.Mesh(np.array(sw.devices()[:8]).reshape(4, 2).T[::-1], ("x", "y"))
PLACES = [(MESH, P("x")), (MESH, P(None, "x")), (MESH, P()), (GRID, P("x", "y")), (GRID, P("y"))]
PLACES += [(TURNED, P("y", "x")), (TURNED, P(("y", "x"))), (TURNED, P(None, "x"))]


def arguments_of_one_type(shape, dtype):
    """Arrays of one shape and dtype, in several layouts in memory."""
    rows, columns = shape
    plain = np.arange(rows * columns).reshape(shape).astype(dtype)
    wide = np.arange(4 * rows * columns).reshape(2 * rows, 2 * columns).astype(dtype)
    return [plain, np.asfortranarray(plain), wide[::2, 1::2], plain[::-1]]


@pytest.mark.parametrize(("mesh", "spec"), PLACES, ids=str)
@pytest.mark.parametrize(("shape", "dtype"), [((16, 8), "f"), ((7, 5), "d"), ((1 << 10, 512), "i")])
def test_numpy_arguments_are_put_on_all_devices(mesh, spec, shape, dtype):
    place = NamedSharding(mesh, spec)
    f = sw.jit(lambda x, by: x * by, in_shardings=(place, None), out_shardings=place)
    for by in (2, 3):
        for host in arguments_of_one_type(shape, dtype):
            want = jnp.asarray(host * by)
            out = f(host, by)
            if host.flags.writeable:
                host[:] = -1
            assert (out.dtype, out.sharding) == (want.dtype, place)
            np.testing.assert_array_equal(out, want)
            for shard in out.addressable_shards:
                np.testing.assert_array_equal(shard.data, np.asarray(want)[shard.index])


def test_the_error_of_an_argument_that_cannot_be_put_is_raised_once():
    f, x = sw.jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, P("x"))), jnp.arange(16.0)
    f(x)
    x.delete()
    with pytest.raises(RuntimeError) as raised:
        f(x)
    assert str(raised.value) == (
        "array of type f32[16] has been deleted: `delete()` was called on it. To use it longer, "
        "make a copy beforehand: `x.copy()`."
    )
    assert raised.value.__suppress_context__


def test_unreduced_arguments_from_numpy_on_a_mesh_of_one_device():
    place = NamedSharding(sw.make_mesh((1,), ("x",)), P(unreduced={"x"}))
    f = sw.jit(lambda x: x * 2, in_shardings=place)
    for _ in range(2):
        out = f(V)
        np.testing.assert_array_equal(out.addressable_shards[0].data, V * 2)


def test_another_jit_of_a_function_takes_the_short_path_too(monkeypatch):
    def total(tree, *, scale):
        return (tree["a"] + tree["b"]) * scale

    def of(k):
        return {f"{name}"[:1]: jnp.ones(4) * k for name in ("a1", "b1")}

    sw.jit(total)(of(1), scale=2)
    again = sw.jit(total)
    again(of(2), scale=2)
    monkeypatch.setattr(type(again), "_call", None)  # the path of calls that are not cached
    np.testing.assert_array_equal(again(of(3), scale=2), np.full(4, 12.0))


def test_jitted_methods_are_bound():
    class Model:
        scale = 3

        @partial(sw.jit, static_argnums=0)
        def step(self, x):
            return x * self.scale

    model = Model()
    assert model.step.__self__ is model and model.step == model.step
    for _ in range(3):
        np.testing.assert_array_equal(model.step(V), V * 3)
    assert "multiply" in Model.step.lower(model, V).as_text()


# -- static arguments next to other values --

STATIC = {
    "a tree": ({"a": V, "b": [jnp.ones(6)]}, lambda t, n: (t["a"] * n, t["b"][0] + n)),
    "a number": (2.5, lambda x, n: x * n),
    "a NumPy array": (V, lambda x, n: x * n),
    "a NumPy number": (np.float32(3), lambda x, n: x * n),
}


@pytest.mark.parametrize("name", STATIC)
def test_static_arguments_next_to_other_values(name):
    """One program for each static value and class; later calls take the short path."""
    value, fun = STATIC[name]
    traced = []

    def noted(x, n):
        traced.append(n)
        return fun(x, n)

    f = sw.jit(noted, static_argnums=1)
    numbers = (2, 2.0, True, 0.0, -0.0, np.float32(2))
    for _ in range(3):
        for n in numbers:
            for got, want in zip(
                sw.tree.leaves(f(value, n)), sw.tree.leaves(fun(value, n)), strict=True
            ):
                np.testing.assert_array_equal(got, want)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    assert len(traced) == len(numbers)


def test_static_arguments_by_name_and_number():
    f = sw.jit(
        lambda x, n, mode="a", *, scale=1.0: (x * n + len(mode)) * scale,
        static_argnames=("n", "mode"),
    )
    for _ in range(3):
        np.testing.assert_array_equal(f(V, 2), V * 2 + 1)
        np.testing.assert_array_equal(f(V, n=2, mode="bc"), V * 2 + 2)
        np.testing.assert_array_equal(f(V, 2, "bc", scale=2.0), (V * 2 + 2) * 2)
        np.testing.assert_array_equal(f(n=3, scale=jnp.float32(2), x=V), (V * 3 + 1) * 2)
    both = sw.jit(lambda a, x, b: x * a + b, static_argnums=(0, 2))
    for a, b in [(1, 2), (2, 1), (1, 2)]:
        np.testing.assert_array_equal(both(a, V, b), V * a + b)


def test_the_error_of_an_unhashable_static_argument_is_the_same_later():
    f = sw.jit(lambda x, n: x["a"], static_argnums=1)
    f({"a": V}, 1)
    f({"a": V}, 1)
    fails(
        ValueError,
        "jit of <lambda>: static argument n is [1] of type list, which cannot be hashed. Static "
        "arguments are part of the cache key: use a hashable type such as a tuple, or do not mark "
        "it static.",
        lambda: f({"a": V}, [1]),
    )


def test_a_donated_tree_next_to_a_static_argument():
    f = sw.jit(lambda t, n: {"a": t["a"] + n}, static_argnums=1, donate_argnums=0)
    state = {"a": jnp.asarray(V)}
    for _ in range(4):
        before, state = state, f(state, 1)
        assert before["a"].is_deleted()
    np.testing.assert_array_equal(state["a"], V + 4)


# -- numbers of NumPy, and numbers that differ at each call --


def test_numbers_that_differ_at_each_call():
    f = sw.jit(lambda x, y: x + y)
    kinds = (int, float, np.int64, np.int32, np.uint8, np.float64, np.float32, np.float16, np.bool_)
    for k in range(4):
        for kind in (*kinds, jnp.bfloat16, complex, np.complex64):
            found, want = f(jnp.asarray(V), kind(k)), jnp.asarray(V) + kind(k)
            assert (found.dtype, found.weak_type) == (want.dtype, want.weak_type)
            np.testing.assert_array_equal(found, want)
    for value in (0.0, -0.0, np.float32(-0.0), np.nan, np.float64("nan"), np.float32("inf")):
        found = np.asarray(sw.jit(lambda x: x * 1)(value))
        np.testing.assert_array_equal(found, np.float32(value))
        assert np.signbit(found) == np.signbit(value)


def test_a_number_that_is_too_large():
    f = sw.jit(lambda x: x + 1)
    f(1)
    for _ in range(2):
        with pytest.raises(OverflowError, match="2147483648"):
            f(1 << 31)


def test_numbers_on_all_devices():
    f = sw.jit(lambda x, y: x * y, in_shardings=(NamedSharding(MESH, P("x")), None))
    host = np.arange(16, dtype=np.float32)
    for k in range(3):
        for value in (k, float(k), np.float32(k), np.int64(k)):
            out = f(host, value)
            assert len(out.sharding.device_set) == 8
            np.testing.assert_array_equal(out, host * np.float32(value))


# -- compiled programs with values of the host --


def compiled(fun, *args, **options):
    return sw.jit(fun, **options).lower(*args).compile()


def test_compiled_programs_take_values_of_the_host():
    f = compiled(lambda t, y: t["a"] * y, {"a": V}, 2.0)
    for k in range(3):
        for a in (V + k, jnp.asarray(V + k), (V + k)[::-1]):
            for y in (2.5 + k, np.float32(k), jnp.float32(k)):
                np.testing.assert_array_equal(f({"a": a}, y), np.asarray(a) * np.float32(y))
    host = V.copy()
    out = f({"a": host}, 1.0)
    host[:] = -1
    np.testing.assert_array_equal(out, V)


def test_compiled_programs_check_values_of_the_host_at_every_call():
    f = compiled(lambda x: x + 1, V)
    want = (
        "compiled <lambda>: x must be of type f32[6]; got {}. A compiled program runs on arguments "
        "of exactly its types: convert them, or call the jitted function, which compiles for "
        "others."
    )
    for _ in range(2):
        np.testing.assert_array_equal(f(V), V + 1)
        fails(TypeError, want.format("f32[5]"), lambda: f(V[:5]))
        fails(TypeError, want.format("i32[6]"), lambda: f(V.astype("i4")))
        with pytest.raises(TypeError, match=r"^compiled <lambda>: x: "):
            f(object())
    with sw.no_execution(), pytest.raises(RuntimeError, match="no_execution is on"):
        f(V)
    np.testing.assert_array_equal(f(V), V + 1)


def test_compiled_programs_of_many_devices_take_values_of_the_host():
    rows = NamedSharding(MESH, P("x"))
    f = compiled(lambda x, y: x + y, V[:1].repeat(16), 1.0, in_shardings=(rows, None))
    for k in range(3):
        host = np.arange(16, dtype=np.float32) + k
        for x in (host, sw.device_put(host, rows), jnp.asarray(host)):
            for y in (k / 2, np.float32(k / 2)):
                out = f(x, y)
                assert out.sharding.is_equivalent_to(rows, 1)
                np.testing.assert_array_equal(out, host + np.float32(k / 2))


def test_compiled_programs_that_donate_or_ignore_values_of_the_host():
    f = compiled(lambda x, y, z: (x + 1, z), V, 2, 3.0, donate_argnums=(0, 2))
    for k in range(3):
        x, z = f(V, k, k / 2)
        np.testing.assert_array_equal(x, V + 1)
        assert z == k / 2
        own = jnp.asarray(V)
        np.testing.assert_array_equal(f(own, k, 1.0)[0], V + 1)
        assert own.is_deleted()


def test_values_of_all_kinds_in_one_position():
    """Arrays, numbers, pytrees and None alternate, so that the kind of key changes."""
    f = sw.jit(lambda x, y: (x, y))
    values = [V, jnp.asarray(V), 2.0, 3, {"a": V}, None, (), [1, {"b": V}], np.float32(1), True]
    for _ in range(3):
        for x in values:
            for y in values[::3]:
                got, want = f(x, y), (x, y)
                assert sw.tree.structure(got) == sw.tree.structure(want)
                for a, b in zip(sw.tree.leaves(got), sw.tree.leaves(want), strict=True):
                    assert isinstance(a, sw.Array)
                    np.testing.assert_array_equal(a, b)
        got = f(y=V, x=1.0)
        np.testing.assert_array_equal(got[1], V)


def long_calls(monkeypatch, call):
    """How often a call goes the long way, by what is called."""
    found = []

    def counted(kind, name):
        whole = getattr(kind, name)

        def run(self, *args):
            found.append(name)
            return whole(self, *args)

        patch.setattr(kind, name, run)

    with monkeypatch.context() as patch:
        counted(Jitted, "_call")
        counted(Compiled, "_run")
        call()
    return found


def test_later_calls_take_the_short_path(monkeypatch):
    tree, number = {"a": V, "b": jnp.ones(6)}, np.float32(2)
    static = sw.jit(lambda t, n: sw.tree.map(lambda x: x * n, t), static_argnums=1)
    keywords = sw.jit(lambda x, n, scale: x * n * scale, static_argnames="n")
    plain, pair = sw.jit(lambda x: x + 1), sw.jit(lambda x, y: x * y)
    programs = compiled(lambda x: x + 1, V), compiled(lambda t, y: t["a"] * y, tree, number)

    def calls():
        static(tree, 2)
        static(V, 2)
        static(number, 3)
        keywords(V, n=2, scale=2.0)
        plain(V)
        plain(number)
        pair(jnp.ones(6), number)
        pair(V, 3)
        programs[0](V)
        programs[0](jnp.asarray(V))
        programs[1](tree, number)

    assert len(long_calls(monkeypatch, calls)) > 0
    calls()
    assert long_calls(monkeypatch, calls) == []


def test_numbers_are_kept_on_the_device_if_they_return():
    f, kept = sw.jit(lambda x, y: x * y), transfer._moved_scalars.entries
    x = jnp.ones(3)
    f(x, 1), f(x, 0.125)  # the programs
    before = len(kept)
    for step in range(1000, 1300):
        f(x, step)
    assert len(kept) == before
    for _ in range(3):
        f(x, 0.375), f(x, np.float32(0.375))
    assert len(kept) == before + 2

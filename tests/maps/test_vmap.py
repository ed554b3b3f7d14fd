"""`vmap`: axes in and out as prefixes of trees, sizes, nesting, shardings, errors."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.interpreters import batching
from tests.helpers.beside_jax import ours, same, sharding
from tests.helpers.errors import message, messages

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def test_axes_in():
    for axis in (0, 1, 2, -1, -3):
        same(lambda lib, n: lib.vmap(lambda x: n.sin(x).sum(0), in_axes=axis), B)  # noqa: B023
    same(lambda lib, n: lib.vmap(lambda x, y: x @ y, in_axes=(0, None)), A, A[0])
    same(lambda lib, n: lib.vmap(lambda x, y: x - y, in_axes=(1, 0)), A, A.T)
    same(lambda lib, n: lib.vmap(lambda x, y: x - y, in_axes=[1, 0]), A, A.T.copy())


def test_axes_in_of_trees():
    def f(t, y):
        return t["a"] * t["b"][0] + y

    tree = {"a": A, "b": (A[:, 0].copy(),)}
    same(lambda lib, n: lib.vmap(f, in_axes=(0, None)), tree, 2.0)
    same(lambda lib, n: lib.vmap(f, in_axes=({"a": 1, "b": None}, 0)), {"a": A.T, "b": (A[0],)}, A)
    same(lambda lib, n: lib.vmap(lambda t: t[0] + t[1], in_axes=((0, None),)), (A, 1.0))
    same(lambda lib, n: lib.vmap(f, in_axes=({"a": 0, "b": (0,)}, None)), tree, 2.0)


def test_axes_out():
    for axis in (0, 1, 2, -1):
        same(lambda lib, n: lib.vmap(lambda x: x * 2, out_axes=axis), B)  # noqa: B023
    same(
        lambda lib, n: lib.vmap(
            lambda x: (x, {"s": x.sum(), "c": 1.0}), out_axes=(-1, {"s": 0, "c": None})
        ),
        A,
    )
    same(lambda lib, n: lib.vmap(lambda x: (x, x), out_axes=1), A)


def test_what_does_not_depend_on_the_axis():
    got = same(lambda lib, n: lib.vmap(lambda x: (n.arange(2.0), 3, x)), A)
    assert got[0].shape == (3, 2) and got[1].shape == (3,)
    assert same(lambda lib, n: lib.vmap(lambda x: 1.0, out_axes=None), A) == 1.0
    same(lambda lib, n: lib.vmap(lambda: n.ones(2), axis_size=3))
    same(lambda lib, n: lib.vmap(lambda x: x, in_axes=None, axis_size=2), A)


def test_named_arguments_are_mapped_over_their_first_axis():
    same(lambda lib, n: lib.vmap(lambda x, *, k: x * k), A, k=A[:, 0].copy())
    same(lambda lib, n: lib.vmap(lambda x, *, k: x * k, in_axes=1), A, k=A[0].copy())


def test_nesting_and_closures():
    same(lambda lib, n: lib.vmap(lib.vmap(lambda x: n.sin(x).sum())), B)
    same(lambda lib, n: lib.vmap(lib.vmap(lambda x, y: x * y, (0, None)), (None, 0)), A[0], A[1])
    same(lambda lib, n: lib.vmap(lambda x: lib.vmap(lambda y: x @ y)(A)), A)
    same(lambda lib, n: lib.jit(lib.vmap(lib.jit(lambda x: x[::-1].cumsum()))), A)


def test_programs_of_many_ops():
    def f(n):
        return lambda x, i: (
            n.where(x > i, x, 0.0),
            x[i],
            x.at[i].set(9.0),
            n.sort(-x),
            n.argmax(x),
            n.concatenate([x, x[:1]]),
            x.reshape(2, 2).T,
            n.dot(x, x),
            n.linalg.norm(x),
        )

    same(lambda lib, n: lib.vmap(f(n)), A, np.array([0, 3, 1], np.int32))


def test_the_mapped_axis_may_be_sharded():
    x = ours(np.ones((8, 4), np.float32), "x")
    y = sw.jit(sw.vmap(lambda r: jnp.sin(r).sum()))(x)
    assert y.sharding == sharding("x")
    y = sw.jit(sw.vmap(lambda r: sw.with_sharding_constraint(r * 2, sharding("y"))))(x)
    assert y.sharding == sharding("x", "y")
    spmd = sw.vmap(lambda r: sw.with_sharding_constraint(r * 2, sharding(None)), spmd_axis_name="x")
    assert sw.jit(spmd)(np.ones((8, 4), np.float32)).sharding == sharding("x")


def test_size_one_and_zero():
    same(lambda lib, n: lib.vmap(lambda x: x * 2), A[:1])
    same(lambda lib, n: lib.vmap(lambda x: x.sum()), A[:0])


def f(x, y=None):
    return x


def fails(kind, expected, fun, *args, **kwargs):
    assert message(kind, lambda: fun(*args, **kwargs)) == expected


test_axes_that_do_not_exist = messages(
    """
sw.vmap(f, in_axes=(0, 2))(A, A)
    ValueError: vmap of f: y is of type f32[3,4], which has no axis 2 to map over. Pass arguments
    that all examples share by position, with None in in_axes.
sw.vmap(f, in_axes=("x",))(A)
    TypeError: vmap of f: in_axes must be an int, None, or a pytree of them; it contains 'x' of type
    str.
sw.vmap(f, in_axes={"x": 0})
    TypeError: vmap of f: in_axes must be an int, None, or a tuple with an entry for each positional
    argument; got {'x': 0} of type dict.
sw.vmap(f, out_axes=(1.5,))
    TypeError: vmap of f: out_axes must be an int, None, or a pytree of them; it contains 1.5 of
    type float.
sw.vmap(f, out_axes=2)(A)
    ValueError: vmap of f: out_axes is 2 for result, which has 2 dimensions including the mapped
    one.
sw.vmap(f, out_axes=None)(A)
    ValueError: vmap of f: out_axes is None for result, which depends on mapped arguments. Give it
    an axis.
""",
    globals(),
)


class Named:
    """An array with names of its dimensions."""

    def __init__(self, names, data):
        self.names, self.data = names, data


class At:
    """How a `Named` is mapped: the name of the dimension, and its position in results."""

    def __init__(self, name, position=0):
        self.name, self.position = name, position


def test_classes_with_rules():
    def to_elt(cont, index, x, spec):
        at = x.names.index(spec.name)
        assert index().shape == ()
        return Named([n for n in x.names if n != spec.name], cont(x.data + 1, at))

    def from_elt(cont, size, x, spec):
        names = x.names[:]
        names.insert(spec.position, spec.name)
        return Named(names, cont(size, x.data * 2, spec.position))

    named = Named(["i", "j"], jnp.asarray(A))
    batching.register_vmappable(Named, At, int, to_elt, from_elt, None)
    try:
        f = sw.vmap(
            lambda x, y: (Named(x.names, x.data - y), y), (At("i"), 0), (At("i", 1), 0), axis_size=3
        )
        for run in (f, lambda *args: (sw.jit(lambda y: f(named, y)[0].data)(args[1]), args[1])):
            out, same = run(named, jnp.arange(3.0))
            data = out.data if isinstance(out, Named) else out
            np.testing.assert_allclose(data, 2 * (A + 1 - np.arange(3.0)[:, None]).T, rtol=1e-6)
            np.testing.assert_array_equal(same, np.arange(3.0))
        out, _ = f(named, jnp.arange(3.0))
        assert out.names == ["j", "i"]
    finally:
        batching.unregister_vmappable(Named)
    assert "must be an int, None, or a tuple" in message(TypeError, sw.vmap, f, At("i"))


def test_what_is_not_mapped_stays_what_it_is():
    x = jnp.arange(3.0)
    scaled = sw.jit(lambda a, n: a * n if n != 7 else -a, static_argnums=1)
    named = sw.jit(lambda a, n: a * n, static_argnames="n")
    np.testing.assert_array_equal(sw.vmap(scaled, (0, None))(x, 2), 2 * x)
    np.testing.assert_array_equal(sw.vmap(lambda a, n: named(a, n=n), (0, None))(x, 2), 2 * x)
    np.testing.assert_array_equal(sw.jit(lambda a: sw.vmap(scaled, (0, None))(a, 7))(x), -x)
    twice = sw.vmap(sw.vmap(scaled, (0, None)), (0, None))(jnp.ones((2, 3)), 2)
    np.testing.assert_array_equal(twice, np.full((2, 3), 2.0))
    table, thing = np.arange(3.0), object()
    numbers = 2, 2.5, True, np.int8(3)
    for value in (*numbers, "mode", jnp.sin, np.dtype("int8"), jnp.int32, table, thing):
        got = []
        sw.vmap(lambda a, v: (got.append(v), a)[1], (0, None))(x, value)  # noqa: B023
        sw.vmap(lambda a, v: (got.append(v["b"]), a)[1], (0, None))(x, {"b": value})  # noqa: B023
        assert all(v is value for v in got) and len(got) == 2
    np.testing.assert_array_equal(sw.vmap(lambda a, f: f(a), (0, None))(x, jnp.cos), jnp.cos(x))
    np.testing.assert_array_equal(sw.vmap(lambda a, n: jnp.ones(n) * a, (0, None))(x, 2)[2], [2, 2])
    slope = sw.vmap(sw.grad(lambda a, mode: a * a if mode == "square" else a), (0, None))
    np.testing.assert_array_equal(slope(x, "square"), 2 * x)
    only = sw.vmap(lambda a, mode: a, (None, None), axis_size=2)(1.0, "mode")
    np.testing.assert_array_equal(only, [1, 1])


def test_what_is_not_mapped_in_results():
    x = jnp.arange(3.0)
    _, n = sw.vmap(lambda a, n: (a, n), (0, None), (0, None))(x, 2)
    assert type(n) is int and n == 2
    wide = sw.vmap(lambda a, n: n, (0, None))(x, np.arange(2.0))
    assert isinstance(wide, sw.Array) and wide.dtype == np.float32 and wide.shape == (3, 2)
    assert message(TypeError, sw.vmap(lambda a, m: m, (0, None)), x, "a") == (
        "vmap of <lambda>: the result: expected an array or a scalar, got 'a' of type str."
    )
    assert message(TypeError, sw.vmap(lambda a, m: a), x, "a") == (
        "vmap of <lambda>: m: expected an array or a scalar, got 'a' of type str."
    )
    x.delete()
    with pytest.raises(RuntimeError, match="has been deleted"):
        sw.vmap(lambda a, b: b, (None, 0))(x, jnp.ones(2))

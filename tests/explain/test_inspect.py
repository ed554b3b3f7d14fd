"""`debug.inspect_array_sharding`: of arrays, and of values as the compiler shards them."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from tests.helpers.errors import message
from tests.helpers.layouts import P, mesh

ON = mesh(4, 2)


def put(shape, spec):
    return sw.device_put(np.ones(shape, np.float32), NamedSharding(ON, spec))


@pytest.fixture
def seen():
    return []


def inspect(value, seen):
    return sw.debug.inspect_array_sharding(value, callback=seen.append)


def test_a_tree_of_arrays(seen):
    x, y = put((8, 6), P("data")), put((4,), P("model"))
    assert inspect({"a": y, "b": [x]}, seen) is None
    assert seen == [y.sharding, x.sharding]
    assert message(TypeError, inspect, 1.0, seen) == (
        "inspect_array_sharding takes a pytree of arrays; got 1.0 of type float, which is not on a "
        "device. Convert it to an array with `device_put`."
    )


def test_values_in_a_program_are_seen_when_it_is_compiled(seen):
    @sw.jit
    def f(x, w):
        y = x @ w
        inspect({"x": x, "y": y}, seen)
        inspect(y.sum(0), seen)
        return y.sum()

    x, w = put((8, 6), P("data")), put((6, 4), P(None, "model"))
    assert f(x, w) == 8 * 4 * 6
    specs = [P("data"), P("data", "model"), P("model")]
    assert [s.spec for s in seen] == specs
    assert {s.mesh for s in seen} == {ON}
    f(x, w)
    assert len(seen) == 3  # the program was cached
    f(put((8, 6), P()), w)
    assert [s.spec for s in seen[3:]] == [P(), P(None, "model"), P("model")]


def test_what_is_seen_is_what_the_value_would_have_as_a_result(seen):
    x = put((9, 6), P("data", "model"))  # uneven

    def f(x):
        return snp.sort(x, axis=1), x.T * 2, x[1:], x.sum(0)

    sw.jit(lambda x: (inspect(f(x), seen), x.sum())[1])(x)
    expected = [y.sharding for y in sw.jit(f)(x)]
    pairs = zip(seen, expected, (2, 2, 2, 1), strict=True)
    assert all(a.is_equivalent_to(b, ndim) for a, b, ndim in pairs)


def test_the_program_computes_the_same_with_and_without(seen):
    def f(x):
        inspect(x * 2, seen)
        return x.sum(), x + 1

    x = put((8, 6), P("data"))
    plain = sw.jit(lambda x: (x.sum(), x + 1)).lower(x).as_text()
    looked = sw.jit(f).lower(x).as_text()
    assert [line for line in plain.splitlines() if "= stablehlo." in line][-2:]
    assert "inspect" not in looked
    assert not seen  # lowered, not compiled
    total, more = sw.jit(f)(x)
    assert total == 48 and (np.asarray(more) == 2).all()


def test_one_device(seen):
    sw.jit(lambda x: (inspect(x * 2, seen), x)[1])(np.float32(1))
    assert seen == [SingleDeviceSharding(sw.devices()[0])]


def test_under_transforms(seen):
    x = put((8, 6), P("data"))

    def f(x):
        inspect(x, seen)
        return (x * x).sum()

    assert (np.asarray(sw.grad(f)(x)) == 2).all()
    assert [s.spec for s in seen] == [P("data")]
    assert (np.asarray(sw.jit(sw.grad(f))(x)) == 2).all()
    assert (np.asarray(sw.grad(sw.jit(f))(x)) == 2).all()
    assert (np.asarray(sw.vmap(f)(x)) == 6).all()
    assert [s.spec for s in seen] == [P("data")] * 4


def test_functions_that_are_called_in_a_program(seen):
    kept = np.ones(6, np.float32)

    @sw.jit
    def inner(x):
        y = x * kept
        inspect(y, seen)
        return y.sum()

    x = put((8, 6), P("data"))
    assert sw.jit(lambda x: inner(x) + inner(x + 1))(x) == 48 + 96
    assert [s.spec for s in seen] == [P("data")] * 2


def test_not_in_loops(seen):
    @sw.jit
    def f(xs):
        return sw.lax.scan(lambda c, x: (c, inspect(x, seen)), 0.0, xs)

    assert message(NotImplementedError, lambda: f(put((8, 6), P()))) == (
        "f: inspect_array_sharding is not supported inside a loop, a branch, a shard_map or a "
        "function with a custom derivative. Return the value from it, and inspect it outside."
    )

"""Universal functions and their methods, against NumPy."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.sharding import AxisType
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fail
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of
from tests.helpers.placed import PLACES

RNG = np.random.default_rng(3)
NAMES = """add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor logical_and
    logical_or logical_xor logaddexp logaddexp2""".split()
INTEGERS = RNG.integers(-3, 4, (7, 5)).astype(np.int32)
FLOATS = RNG.normal(size=(7, 5)).astype(np.float32)
FLOATS[2, 1], FLOATS[3, 3], FLOATS[0, 4] = np.nan, np.inf, -np.inf
TRUTHS = INTEGERS > 0


def operands(name):
    if name == "subtract":
        return [INTEGERS, FLOATS]
    if name.startswith("logadd"):
        return [INTEGERS, np.where(np.isnan(FLOATS), -np.inf, FLOATS)]
    return [INTEGERS, TRUTHS] if name.startswith("bitwise") else [INTEGERS, FLOATS, TRUTHS]


def same(got, wanted, exact_dtype=True):
    wanted = np.asarray(wanted)
    kind = {"int64": "int32", "float64": "float32"}.get(wanted.dtype.name, wanted.dtype.name)
    if exact_dtype:
        assert got.dtype.name == kind, (got.dtype, wanted.dtype)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(
        np.asarray(got).astype(np.float64), wanted.astype(np.float64), rtol=2e-5, atol=1e-6
    )


EACH = [(name, i) for name in NAMES for i in range(len(operands(name)))]
warned = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


@warned
@pytest.mark.parametrize("name,i", everyday(EACH, 4, "reduce"))
def test_reduce(name, i):
    x, ours, theirs = operands(name)[i], getattr(snp, name), getattr(np, name)
    for axis in (0, -1) if name == "subtract" else (0, -1, None, (0, 1), ()):
        if axis == () and name.startswith("logical"):
            continue  # NumPy returns booleans of another dtype
        for keepdims in (False, True):
            wanted = theirs.reduce(x, axis=axis, keepdims=keepdims)
            same(ours.reduce(x, axis=axis, keepdims=keepdims), wanted)
    start = x.dtype.type(1)
    same(ours.reduce(x, initial=start), theirs.reduce(x, initial=start))
    mask = RNG.integers(0, 2, x.shape).astype(bool)
    same(
        ours.reduce(x, where=mask, initial=start, axis=1),
        theirs.reduce(x, where=mask, initial=start, axis=1),
    )
    if theirs.identity is not None:
        same(ours.reduce(x, where=mask), theirs.reduce(x, where=mask))
        same(ours.reduce(x[:0]), theirs.reduce(x[:0]))
    for place in ("sharded", "partly replicated"):
        placed = sw.device_put(x, PLACES[place])
        same(ours.reduce(placed, axis=0), theirs.reduce(x, axis=0))
        same(ours.reduce(placed, axis=1), theirs.reduce(x, axis=1))


@warned
@pytest.mark.parametrize("name,i", everyday(EACH, 2, "accumulate"))
def test_accumulate_and_outer(name, i):
    x, ours, theirs = operands(name)[i], getattr(snp, name), getattr(np, name)
    for axis in (0, -1):
        same(ours.accumulate(x, axis=axis), theirs.accumulate(x, axis=axis))
    same(ours.accumulate(sw.device_put(x, PLACES["sharded"])), theirs.accumulate(x))
    assert ours.accumulate(x[:0]).shape == (0, 5)
    same(ours.outer(x, x[0]), theirs.outer(x, x[0]), exact_dtype=False)
    assert ours.outer(x, x[0]).shape == (7, 5, 5)


@warned
@pytest.mark.parametrize("name,i", everyday(EACH, 1 / 16, "at"))
def test_at(name, i):
    x, ours, theirs = operands(name)[i], getattr(snp, name), getattr(np, name)
    if name.startswith("logical") or (name == "subtract" and x.dtype == bool):
        return
    if name.startswith("logadd"):
        x = operands(name)[1]
    b = x[0]
    places = ([0, 3, 3, -1], (slice(None), [1, 1, 0]), 2, (np.array([1, 1]), np.array([2, 2])))
    for at in places:
        value = b[0] if isinstance(at, tuple) else b
        wanted = x.copy()
        theirs.at(wanted, at, value)
        same(ours.at(x, at, value, inplace=False), wanted)
        placed = sw.device_put(x, PLACES["partly replicated"])
        same(ours.at(placed, at, value, inplace=False), wanted)


@warned
@pytest.mark.parametrize("name,i", everyday(EACH, 1, "reduceat"))
def test_reduceat(name, i):
    x, ours, theirs = operands(name)[i], getattr(snp, name), getattr(np, name)
    if x.dtype == bool and name in ("add", "multiply"):
        x = x.astype(np.int32)  # in NumPy, booleans become integers only in `reduce`
    for at in ([0, 4, 1, 5], [2, 2, 6]):
        same(ours.reduceat(x, at), theirs.reduceat(x, at))
    same(ours.reduceat(x, [1, 3, 0], axis=1), theirs.reduceat(x, [1, 3, 0], axis=1))
    placed = sw.device_put(x, PLACES["sharded"])
    same(ours.reduceat(placed, [0, 3]), theirs.reduceat(x, [0, 3]))


def test_complex_numbers_and_dtypes():
    z = (FLOATS + 1j * INTEGERS)[4:].astype(np.complex64)
    same_complex = np.testing.assert_allclose
    same_complex(snp.maximum.accumulate(z), np.maximum.accumulate(z))
    same_complex(snp.multiply.reduce(z, axis=1), np.multiply.reduce(z, axis=1), rtol=1e-5)
    small = INTEGERS.astype(np.int8)
    assert snp.add.reduce(small, dtype=snp.int8).dtype == np.int8
    assert snp.maximum.reduce(small, dtype=snp.float32).dtype == np.float32
    assert snp.add.accumulate(small, dtype=snp.float32).dtype == np.float32
    assert snp.subtract.accumulate(small, dtype=snp.float32).dtype == np.float32
    assert snp.add.reduceat(small, [0, 2], dtype=snp.float32).dtype == np.float32


def recurrence(x, y):
    return 0.5 * x + y * y


def test_functions_of_users():
    ours, theirs = snp.frompyfunc(recurrence, 2, 1), np.frompyfunc(recurrence, 2, 1)
    x = np.where(np.isfinite(FLOATS), FLOATS, 0.25).astype(np.float32)
    wide = x.astype(np.float64)
    same(ours(x, x[0]), theirs(wide, wide[0]).astype(np.float64))
    same(ours.reduce(x, axis=1), theirs.reduce(wide, axis=1).astype(np.float64))
    same(ours.reduce(x, axis=None), np.float64(theirs.reduce(wide.ravel())))
    same(ours.accumulate(x), theirs.accumulate(wide).astype(np.float64))
    same(ours.outer(x, x[1]), theirs.outer(wide, wide[1]).astype(np.float64))
    both = snp.frompyfunc(lambda x: (x + 1, x * 2), 1, 2)(x)
    assert isinstance(both, tuple) and (both.__len__(), both[1].shape) == (2, (7, 5))
    squared = snp.frompyfunc(lambda x: x * x, 1, 1).at(x, [0, 0], inplace=False)
    same(squared, np.concatenate([x[:1] ** 4, x[1:]]))
    assert snp.frompyfunc(recurrence, 2, 1, identity=0).reduce(np.zeros(0)) == 0


def test_derivatives_and_maps():
    ours = snp.frompyfunc(recurrence, 2, 1)
    x = snp.asarray([1.0, 2.0, -1.0])
    slope = sw.grad(lambda x: ours.reduce(x))(x)
    np.testing.assert_allclose(slope, [0.25, 2, -2], rtol=1e-6)
    wanted = sw.grad(lambda x: snp.sum(x * snp.exp(x)))(x)
    got = sw.grad(lambda x: snp.logaddexp.reduce(x))(x)
    np.testing.assert_allclose(got, snp.exp(x) / snp.exp(x).sum(), rtol=1e-6)
    assert wanted.shape == got.shape
    rows = snp.asarray(FLOATS[4:])
    for fun in (ours.reduce, snp.bitwise_or.reduce, snp.subtract.accumulate):
        y = rows.astype(int) if fun.__self__ is snp.bitwise_or else rows
        mapped, looped = sw.vmap(fun)(y), snp.stack([fun(r) for r in y])
        np.testing.assert_allclose(mapped, looped, rtol=1e-6)
    assert sw.jit(snp.add)(1, 2) == 3 and sw.grad(snp.multiply)(2.0, 3.0) == 3.0


@pytest.mark.parametrize(
    "name", everyday(["add", "subtract", "bitwise_or", "maximum", "logaddexp"], 1 / 3)
)
def test_types_say_how_results_are_split(name):
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    ours, theirs = getattr(snp, name), getattr(np, name)
    x = RNG.integers(0, 9, (8, 4)).astype(np.int32 if name == "bitwise_or" else np.float32)
    with sw.set_mesh(mesh):
        y = sw.device_put(x, sw.NamedSharding(mesh, P("x", "y")))

        def check(out, wanted, *spec):
            same(out, wanted)
            assert sw.typeof(out).sharding.spec == P(*spec)

        check(ours.reduce(y), theirs.reduce(x), "y")
        check(ours.reduce(y, axis=1, keepdims=True), theirs.reduce(x, 1, keepdims=True), "x", None)
        rows = sw.device_put(x, sw.NamedSharding(mesh, P("x")))
        check(ours.accumulate(rows, axis=1), theirs.accumulate(x, axis=1), "x", None)
        check(ours.reduceat(y, [0, 3]), theirs.reduceat(x, [0, 3]), None, "y")
        wanted = x.copy()
        theirs.at(wanted, [0, 0], x[0])
        if name in ("bitwise_or", "logaddexp"):
            check(ours.at(y, [0, 0], x[0], inplace=False), wanted, "x", "y")


def test_what_they_are():
    for name in (*NAMES, "negative"):
        ours, theirs = getattr(snp, name), getattr(np, name)
        assert isinstance(ours, snp.ufunc) and repr(ours) == f"<ufunc {name!r}>"
        assert (ours.nin, ours.nout, ours.nargs) == (theirs.nin, theirs.nout, theirs.nargs)
        assert ours.identity == theirs.identity or {ours.identity, theirs.identity} <= {-1, 0, 1}
        assert ours.__module__ == "shardwise.numpy" and ours.__doc__
        assert pickle.loads(pickle.dumps(ours)) is ours
        assert {"out", "where"} <= {*inspect.signature(ours).parameters}
    made = pickle.loads(pickle.dumps(snp.frompyfunc(recurrence, 2, 1, identity=3)))
    assert made(2.0, 3.0) == 10 and made.identity == 3 and made.__name__ == "recurrence"


def test_errors():
    x = snp.ones(3)
    fail(
        """
        snp.add(x, x, out=x)
            NotImplementedError: add: `out` is not supported, as arrays are immutable. Use the
            result.
        snp.add(x, x, where=x > 0)
            NotImplementedError: add: `where` is not supported, as the other elements would have no
            value. Select with `shardwise.numpy.where`.
        snp.add(x, x, dtype=snp.int32)
            TypeError: add() got an unexpected keyword argument 'dtype'
        """,
        globals() | locals(),
    )
    assert snp.add(x, x, out=None, where=None).tolist() == [2, 2, 2]
    fail(
        """
        snp.negative.reduce(x)
            ValueError: negative.reduce is for functions of two arguments with one result; this one
            has 1 and 1.
        snp.add.at(x, 0, 1)
            NotImplementedError: add.at: arrays are immutable; pass inplace=False to get a new one.
        snp.add.at(x, 0, inplace=False)
            ValueError: add.at is for a function of 1 with one result; this one has 2 and 1.
        snp.maximum.reduce(x, where=x > 0)
            ValueError: maximum.reduce: there is no identity, so `where` needs `initial`.
        snp.subtract.reduce(x[:0])
            ValueError: subtract.reduce: there are no elements, and no identity.
        snp.add.accumulate(x, None)
            ValueError: add.accumulate works along one axis; got None.
        snp.add.reduceat(x, np.int32(0))
            ValueError: add.reduceat: indices must be a vector; got i32[].
        snp.frompyfunc(3, 1, 1)
            TypeError: frompyfunc takes a function; got 3 of type int.
        snp.frompyfunc(recurrence, 2, 2)(1.0, 2.0)
            TypeError: recurrence must return 2 results; it returned a traced ~f32[].
        snp.frompyfunc(recurrence, 2, 1)(1.0)
            TypeError: recurrence takes 2 arguments; got 1.
        """,
        globals() | locals(),
    )


def test_equal_functions_and_what_cannot_be_changed():
    def scaled(x, y):
        return 2 * x + y

    f, g = (snp.frompyfunc(scaled, 2, 1, identity=0) for _ in range(2))
    assert f == g and hash(f) == hash(g) and f != snp.frompyfunc(scaled, 2, 1) and f != snp.add
    for name in ("nin", "nout", "nargs", "identity"):
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(snp.add, name, 3)
    with sw.numpy_rank_promotion("raise"):
        assert snp.add.outer(np.ones((2, 3)), np.ones(4)).shape == (2, 3, 4)

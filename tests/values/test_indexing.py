"""`x[idx]`, `x.at[idx]`: against NumPy for random indices, jax for modes and gradients."""

import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import shardwise
import shardwise.numpy as snp
from shardwise._src.base.config import check_static_indices
from shardwise._src.base.errors import NonConcreteBooleanIndexError
from shardwise._src.running.eager import EAGER
from shardwise._src.transfers.transfer import move
from shardwise._src.transforms.stage import stage
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.errors import failing_calls, message, messages, raised
from tests.helpers.everyday import everyday
from tests.helpers.searched import searched


def array(x):
    return EAGER.array(np.asarray(x))


def staged(f, *xs):
    """`f` run as a program: a tracer receives every index."""
    program, _ = stage(lambda *ts: [f(*ts)], [x.aval for x in xs])
    return program(*xs)[0]


# -- random index expressions --


@st.composite
def index_expressions(draw):
    """A shape, and a valid index for it in NumPy."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    block = draw(st.sampled_from([(2,), (1, 2), (3,), ()]))
    items, d, masked = [], 0, False
    while d < len(shape) and draw(st.integers(0, 9)) > 0:
        n = shape[d]
        kinds = ["int", "slice", "slice", "array", "list", "new", "mask"]
        kind = draw(st.sampled_from(kinds))
        if kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            items.append(draw(st.slices(n)))
        elif kind in ("array", "list"):
            values = draw(st.lists(st.integers(-n, n - 1), min_size=6, max_size=6))
            picked = np.array(values[: int(np.prod(block))]).reshape(block)
            items.append(picked.tolist() if kind == "list" and block else picked)
        elif kind == "mask" and not masked and block in ((), (2,)):
            mask = np.zeros(n, bool)
            mask[: 2 if block else 1] = True
            if mask.sum() != (2 if block else 1):
                continue
            items.append(mask)
            masked = True
        else:
            items.append(None)
            continue
        d += 1
    if draw(st.booleans()):
        place = draw(st.integers(0, len(items)))
        tail = sum(i is not None for i in items[place:])
        if sum(i is not None for i in items[:place]) + tail <= len(shape):
            items.insert(place, Ellipsis)
            items = _fitting(items, place, shape)
    return shape, tuple(items)


def _fitting(items, place, shape):
    """Clamps items to their bounds, as items after an ellipsis index other dimensions."""
    d = len(shape)
    for k in range(len(items) - 1, place, -1):
        item = items[k]
        if item is None:
            continue
        d -= 1
        n = shape[d]
        if isinstance(item, int):
            items[k] = item % n
        elif isinstance(item, np.ndarray) and item.dtype == bool:
            items[k] = np.arange(n) < 1 if item.sum() == 1 or n < 2 else np.arange(n) < 2
        elif isinstance(item, np.ndarray | list):
            items[k] = np.asarray(item) % n
    return items


def expected(x, idx):
    try:
        return x[idx]
    except IndexError:
        return None


@pytest.mark.parametrize("group", everyday(range(4), 1))
def test_random_indices(group):
    searched(group, 12, check_random_indices, index_expressions())


def check_random_indices(case):
    shape, idx = case
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    wanted = expected(x, idx)
    if wanted is None:
        return
    for found in (array(x)[idx], staged(lambda t: t[idx], array(x))):
        np.testing.assert_array_equal(np.asarray(found), wanted)
    values = (np.arange(wanted.size, dtype=np.float32) + 100).reshape(wanted.shape)
    added = x.copy()
    np.add.at(added, idx, values)
    np.testing.assert_array_equal(np.asarray(array(x).at[idx].add(values)), added)
    changed = x.copy()
    changed[idx] = 7
    found = staged(lambda t: t.at[idx].set(7), array(x))
    np.testing.assert_array_equal(np.asarray(found), changed)
    np.testing.assert_array_equal(np.asarray(array(x).at[idx].set(7)), changed)


X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
ROWS, COLUMNS = np.array([2, 0, -1]), np.array([[1], [3]])
FORMS = [
    0,
    -1,
    slice(1, 3),
    slice(None),
    slice(None, None, -1),
    slice(5, None, -2),
    slice(2, 1),
    ...,
    None,
    (),
    (0, 1, 2),
    (..., -1),
    (None, 1, None),
    (slice(None), 2),
    (1, slice(1, 4, 2)),
    (slice(None, None, -1), slice(3, 0, -2)),
    ROWS,
    (ROWS, 1),
    (1, ROWS),
    (slice(None), ROWS),
    (ROWS, COLUMNS),
    (ROWS, slice(None), ROWS),
    (ROWS, None, ROWS),
    (0, slice(None), ROWS),
    (slice(1, 3), ROWS),
    (slice(None, None, 2), ROWS),
    (ROWS, slice(None, None, -2)),
    (slice(0, 2), ROWS, slice(4, 0, -2)),
    (None, ROWS, 1),
    (ROWS[0], ROWS),
    np.int64(2),
    np.array(1),
    np.uint8(2),
    np.array([0, 2], np.uint8),
    np.array([-1], np.int8),
    True,
    False,
    np.True_,
    (True, ROWS),
    X > 30,
    X[:, 0, 0] > 10,
    (slice(None), X[0, :, 0] > 7),
    (X[:, :, 0] > 20, 2),
    (X[:, 0, 0] > -1, ROWS),
    np.zeros(0, np.int32),
    (slice(3, 3), ROWS),
    ([0, 2],),
    (slice(None), [0, 1]),
    (slice(None), [True, False, True, True]),
]


FORMS_BY_NAME = {f"{i}-{f!r:.40}": f for i, f in enumerate(FORMS)}


@pytest.mark.parametrize("name", everyday(FORMS_BY_NAME, 3))
def test_forms(name):
    idx = FORMS_BY_NAME[name]
    for found in (array(X)[idx], staged(lambda t: t[idx], array(X))):
        np.testing.assert_array_equal(np.asarray(found), X[idx])
    values = np.full_like(X[idx], 9)
    for method, ufunc in [("set", None), ("add", np.add)]:
        changed = X.copy()
        if ufunc is None:
            changed[idx] = values
        else:
            ufunc.at(changed, idx, values)
        at = getattr(array(X).at[idx], method)
        np.testing.assert_array_equal(np.asarray(at(values)), changed)
        found = staged(lambda t, m=method: getattr(t.at[idx], m)(values), array(X))
        np.testing.assert_array_equal(np.asarray(found), changed)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
def test_lists_of_narrow_traced_indices_and_other_integers(dtype):
    """Python's integers in the list may not fit into the dtype of the traced one."""
    x, i = np.arange(1200).reshape(400, 3), np.array(1, dtype)
    a = array(x)
    for number in (300, -1, -399):
        got = shardwise.jit(lambda i, n=number: a[[i, n],])(i)
        np.testing.assert_array_equal(got, x[[1, number],])
    got = shardwise.jit(lambda i: a[[[i, 300], [2, i]], [0, i]])(i)
    np.testing.assert_array_equal(got, x[[[1, 300], [2, 1]], [0, 1]])
    got = shardwise.jit(lambda i: a.at[[i, 300],].set(-1))(i)
    x[[1, 300],] = -1
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("i", everyday([0, 2, -1, -3, 7, -9], 1))
def test_traced_scalars(i):
    forms = [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: x[i, 1:3],
        lambda x, i: x[::2, i],
        lambda x, i: x[i, i],
        lambda x, i: x[..., i],
        lambda x, i: x[[0, 1], i],
        lambda x, i: x[[[i, 0], [2, i]], :2],
    ]
    for f in forms:
        wanted = jax.jit(f)(X, np.int32(i))
        found = staged(f, array(X), array(np.int32(i)))
        np.testing.assert_array_equal(np.asarray(found), wanted)
        np.testing.assert_array_equal(np.asarray(f(array(X), array(np.int32(i)))), wanted)


def test_an_index_that_changes_nothing_gives_the_array():
    x = array(X)
    assert x[:] is x and x[...] is x and x[()] is x and x[:, 0:4] is x


def test_integers_share_one_program():
    x = array(np.arange(10.0, dtype=np.float32))
    x[0], x[1:3], x.at[0].set(1)
    before = len(EAGER.cache)
    for i in range(-5, 5):
        x[i], x[i : i + 2] if i >= 0 else None, x.at[i].set(i)
    assert len(EAGER.cache) <= before + 1  # in the last one, a Python float became an integer


def test_masks_need_no_program():
    x = array(X)
    x[X > 30]
    before = len(EAGER.cache)
    for k in range(0, 60, 7):
        np.testing.assert_array_equal(np.asarray(x[array(k < X)]), X[k < X])
    assert len(EAGER.cache) == before


PROGRAMS = [
    (lambda x: x[0], ["slice", "reshape"]),
    (lambda x: x[1:2], ["slice"]),
    (lambda x: x[:, ::-1], ["rev"]),
    (lambda x: x[None], ["reshape"]),
    (lambda x: x[...], []),
    (lambda x: x[ROWS], ["broadcast_in_dim", "gather"]),
    (lambda x: x.at[0].set(x[1]), ["slice", "reshape", "reshape", "dynamic_update_slice"]),
]


@pytest.mark.parametrize("f, ops", PROGRAMS)
def test_traces_are_short(f, ops):
    program, _ = stage(lambda x: [f(x)], [array(X).aval])
    assert [e.op.name for e in program.eqns] == ops


# -- out of bounds --

OUT = np.array([10, -10, -1])
PLACES = [10, -10, -1, OUT, (0, 1, 7), (OUT, slice(1, 3)), (slice(1, 3), OUT, 0)]
MODES = [None, "clip", "fill", "drop", "promise_in_bounds"]


@pytest.mark.parametrize(("idx", "mode"), everyday(itertools.product(PLACES, MODES), 2), ids=repr)
def test_modes(idx, mode):
    for x in (X, X.astype(np.int32)):
        a, j = array(x), jnp.asarray(x)
        np.testing.assert_array_equal(
            np.asarray(a.at[idx].get(mode=mode)), j.at[idx].get(mode=mode)
        )
        for wrap in (True, False):
            found = a.at[idx].set(99, mode=mode, wrap_negative_indices=wrap)
            wanted = j.at[idx].set(99, mode=mode, wrap_negative_indices=wrap)
            np.testing.assert_array_equal(np.asarray(found), wanted)
        found = staged(lambda t: t.at[idx].add(5, mode=mode), a)
        np.testing.assert_array_equal(np.asarray(found), j.at[idx].add(5, mode=mode))


def test_fill_value():
    found = array(X).at[OUT, 0, 0].get(mode="fill", fill_value=7)
    np.testing.assert_array_equal(np.asarray(found), [7, 7, 40])
    assert np.asarray(array(X).at[9, 0].get(mode="fill", fill_value=7)).tolist() == [7] * 5


# -- methods of at --

METHODS = ["set", "add", "subtract", "multiply", "mul", "divide", "power", "min", "max"]


@pytest.mark.parametrize("method", everyday(METHODS, 3))
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_methods(method, dtype):
    x = np.arange(1, 7).astype(dtype)
    for idx, values in [(1, 3), (slice(0, 4, 2), 2), (np.array([1, 5]), np.array([2, 3], dtype))]:
        found = getattr(array(x).at[idx], method)(values)
        wanted = getattr(jnp.asarray(x).at[idx], method)(values)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-6)


def test_apply():
    x = array(np.arange(4, dtype=np.float32))
    found = x.at[1:3].apply(lambda v: v * 10)
    np.testing.assert_array_equal(np.asarray(found), [0, 10, 20, 3])
    slope = shardwise.grad(lambda x: x.at[1:3].apply(lambda v: v * v).sum())(x)
    np.testing.assert_array_equal(np.asarray(slope), [1, 2, 4, 1])
    assert message(TypeError, array(np.arange(3)).at[0].apply, lambda v: v + 0.5) == (
        "the function of `.at[...].apply` must preserve the dtype i32[]; it returned ~f32[]."
    )


CASTS = [
    ("int32", 1.5),
    ("int32", np.float32(1.5)),
    ("float16", np.float32(2)),
    ("bool", 2),
    ("float32", 1),
    ("int8", 3),
    ("float32", np.float64(2)),
    ("complex64", 1.0),
    ("float32", np.int32(3)),
    ("uint8", np.int32(3)),
]


@pytest.mark.parametrize("dtype, value", CASTS)
def test_dtypes_of_values(dtype, value):
    x = np.zeros(3, dtype)

    def outcome(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out = x.at[1].set(value)
        return np.asarray(out), [w.category for w in caught]

    (found, ours), (wanted, theirs) = outcome(array(x)), outcome(jnp.asarray(x))
    assert found.dtype == wanted.dtype and ours == theirs
    np.testing.assert_array_equal(found, wanted)


def test_weak_types():
    for x in (2.0, np.float32(2)):
        a, j = snp.asarray(x), jnp.asarray(x)
        assert a[None].aval.weak_type == j[None].aval.weak_type
        assert a.at[()].set(1.0).aval.weak_type == j.at[()].set(1.0).aval.weak_type


# -- gradients and batching --


def test_tangents_of_what_is_filled_are_zero():
    f = lambda x: x.at[OUT].get(mode="fill", fill_value=7).sum()  # noqa: E731
    found = shardwise.jvp(f, (array(X),), (array(np.ones_like(X)),))
    wanted = jax.jvp(f, (jnp.asarray(X),), (jnp.ones_like(X),))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


DIFFERENTIABLE = [
    lambda x, y: x[1] * y[0],
    lambda x, y: x[::2, ::-1],
    lambda x, y: x[ROWS, 1:3] * 2,
    lambda x, y: x.at[1].set(y),
    lambda x, y: x.at[ROWS].add(y),
    lambda x, y: x.at[ROWS].set(y),
    lambda x, y: x.at[:, 1].multiply(y[:, 0].sum()),
    lambda x, y: x.at[0].max(y + 10),
    lambda x, y: x.at[::2].min(y),
    lambda x, y: x.at[1, 2].divide(y[0, 0] + 2),
    lambda x, y: x.at[OUT].get(mode="fill", fill_value=0),
    lambda x, y: x.at[OUT].set(y[0, 0]),
]


@pytest.mark.parametrize("f", everyday(DIFFERENTIABLE, 1))
def test_gradients(f):
    y = (np.arange(20, dtype=np.float32) / 7).reshape(4, 5)

    def loss(x, y):
        out = f(x, y)
        return (out * out * 0.5).sum()

    found = shardwise.grad(loss, argnums=(0, 1))(array(X), array(y))
    wanted = jax.grad(loss, argnums=(0, 1))(X, y)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-5)


BATCHED = [
    (lambda x, i: x[i], (0, 0)),
    (lambda x, i: x[i], (None, 0)),
    (lambda x, i: x[:, i], (0, None)),
    (lambda x, i: x[i, ::2], (0, 0)),
    (lambda x, i: x[[0, 1], i], (0, 0)),
    (lambda x, i: x.at[i].set(3), (0, 0)),
    (lambda x, i: x.at[i].add(x[0]), (None, 0)),
    (lambda x, i: x.at[:, i].max(2), (2, None)),
    (lambda x, i: x.at[i, 1:].mul(x[0, 1:]), (0, 0)),
    (lambda x, i: snp.take(x, i, axis=1), (0, 0)),
    (lambda x, i: x[1, :2], (0, None)),
]


@pytest.mark.parametrize("f, axes", everyday(BATCHED, 3))
def test_batching(f, axes):
    i = np.array([1, 0, -1], np.int32)
    found = shardwise.vmap(f, in_axes=axes)(array(X), array(i))
    size = 3 if axes[1] == 0 else X.shape[axes[0]]
    rows = []
    for k in range(size):
        x = X if axes[0] is None else np.take(X, k, axes[0])
        rows.append(np.asarray(f(array(x), array(i if axes[1] is None else i[k]))))
    np.testing.assert_array_equal(np.asarray(found), np.stack(rows))


# -- iteration, sharding --


@pytest.mark.parametrize("n", everyday([0, 1, 5, 64, 65, 150], 1))
def test_iteration(n):
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    rows = list(array(x))
    assert len(rows) == n
    assert all(row.shape == (2,) for row in rows)
    np.testing.assert_array_equal(np.array([np.asarray(r) for r in rows]).reshape(n, 2), x)
    assert float(staged(lambda t: functools.reduce(lambda a, b: a + b[1], t, 0.0), array(x))) == (
        x[:, 1].sum()
    )


def test_sharded_arrays():
    mesh = Mesh(np.array(EAGER.array(0).devices().pop().client.devices()[:4]), ("x",))
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    for spec in (PartitionSpec("x"), PartitionSpec(None, "x")):
        a = move(array(x), NamedSharding(mesh, spec))
        for idx in (0, -1, slice(1, 3), np.array([1, 5]), (slice(None), 2), (slice(2, 8, 3), 1)):
            np.testing.assert_array_equal(np.asarray(a[idx]), x[idx])
            changed = x.copy()
            changed[idx] = 5
            np.testing.assert_array_equal(np.asarray(a.at[idx].set(5)), changed)
        assert [np.asarray(r).tolist() for r in a] == x.tolist()


def test_a_committed_array_stays_where_it_is():
    device = EAGER.array(0).devices().pop().client.devices()[3]
    x = shardwise.device_put(X, device)
    for out in (x[1], x[1:2], x[:, 0], x.at[0].set(1), x[ROWS]):
        assert out.devices() == {device}


# -- messages --

ERRORS = """
[0, 1]
    TypeError: arrays cannot be indexed by a list; use x[array(sequence)] to pick elements of one
    dimension, or x[tuple(sequence)] for an index per dimension.
"a"
    TypeError: arrays cannot be indexed by strings; got 'a'.
1.0
    TypeError: an index must be of integer or boolean type; got 1.0.
np.array([1.0], np.float32)
    TypeError: an index must be of integer or boolean type; got f32[1].
(0, 0, 0, 0)
    IndexError: too many indices: the array is 3-dimensional, but 4 were given.
(..., ...)
    IndexError: an index can only have a single ellipsis ('...')
object
    IndexError: an index must consist of integers, slices, ..., None and arrays of integers or
    booleans; got <class 'object'>.
np.array([True, False])
    IndexError: a boolean index must have the shape of what it indexes; got bool[2] at position 0
    for dimensions of sizes (3,).
(ROWS, ROWS[:2])
    IndexError: the arrays of an index must broadcast together; got shapes [(3,), (2,)].
slice(None, None, 0)
    ValueError: slice step cannot be zero
"""


@failing_calls(ERRORS)
def test_errors(call, error):
    index = eval(call)
    assert raised(lambda: array(X)[index]) == error


@failing_calls(ERRORS)
def test_errors_of_writes(call, error):
    kind, _, text = error.partition(": ")
    assert raised(array(X).at[eval(call)].set, 0) == f"{kind}: .at[...].set: {text}"


NOTHING = array(np.zeros((0, 3)))
test_errors_of_elements = messages(
    """
array(X).at[0].set(np.zeros(3))
    ValueError: .at[...].set: values of shape (3,) cannot be broadcast to the shape (4, 5) of the
    elements that the index selects.
NOTHING[0]
    IndexError: index 0 is out of bounds for dimension 0 with size 0.
NOTHING[np.array([0])]
    IndexError: an index is out of bounds for dimension 0 with size 0.
array(np.zeros(2, bool)).at[0].add(True)
    TypeError: .at[...].add: `.at[...]` does not support arithmetic (add) on boolean arrays; got
    bool[2].
""",
    globals(),
)


def test_errors_of_traced_indices():
    x = array(X)
    assert message(IndexError, lambda: staged(lambda t, i: t[i : i + 2], x, array(1))).startswith(
        "the parts of a slice must be concrete integers; got slice("
    )
    found = message(
        NonConcreteBooleanIndexError, lambda: staged(lambda t, m: t[m], x, array(X > 3))
    )
    assert found.startswith(
        "a boolean index must be concrete, since the result's shape depends on it; got a traced "
        "bool[3,4,5], which is not known while tracing (jit of f, called at "
    )
    assert found.endswith(
        "). Use `shardwise.numpy.where(mask, x, other)` to keep the shape, or "
        "`shardwise.numpy.nonzero(mask, size=n)` for a fixed number of indices."
    )


def test_fill_values_that_are_zeros_of_either_sign():
    x, out = snp.ones(3), snp.array([7])
    for value in (0.0, -0.0, 0.0):
        for found in (
            x.at[out].get(mode="fill", fill_value=value),
            snp.take(x, out, mode="fill", fill_value=value),
        ):
            assert np.signbit(np.asarray(found)).tolist() == [bool(np.signbit(value))]


def test_values_fit_in_strict_promotion_too():
    x, v = array(np.ones(3, np.float32)), array(np.ones((), np.int8))
    for mode in ("standard", "strict", "standard"):
        with shardwise.numpy_dtype_promotion(mode):
            assert x.at[0].set(v).dtype == np.float32


def test_integers_out_of_bounds_can_be_errors():
    x = snp.arange(6).reshape(2, 3)
    assert int(x[5, -7]) == 3  # clamped
    with check_static_indices(True):
        for read in (
            lambda x: x[2],
            lambda x: x[..., -4],
            lambda x: x[:5, 3],
            lambda x: x[[0, 1], 3, None],
            lambda x: x.at[2].get(),
        ):
            for f in (read, shardwise.jit(read)):
                with pytest.raises(IndexError, match="out of bounds for dimension"):
                    f(x)
        assert x[-2].shape == (3,) and x.at[7].set(0).sum() == 15
        assert x.at[7].get(mode="clip").tolist() == [3, 4, 5]

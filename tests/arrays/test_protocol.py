"""Arrays in Python protocols, and foreign objects in the place of arrays."""

import operator

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise._src.arrays.array import Array
from shardwise._src.running.eager import EAGER, Eager
from shardwise._src.runtime import buffers
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, DTYPES, PLACES, ROWS, placed, values

EVERYWHERE = [(p, r) for p in PLACES for r in ROWS]


# ------------------------------------------------------------------- length, iteration, elements


@pytest.mark.parametrize("place, rows", everyday(EVERYWHERE, 3))
def test_length_and_iteration(place, rows):
    host, x = placed(place, rows)
    assert len(x) == len(host)
    found = list(x)
    assert len(found) == len(host)
    for mine, theirs in zip(found, host, strict=True):
        assert isinstance(mine, Array) and mine.devices() == x.devices()
        np.testing.assert_array_equal(mine, theirs)
    assert [float(a) for a, _ in x] == [float(a) for a, _ in host]
    for mine, theirs in zip(reversed(x), host[::-1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("place", everyday(["one", "replicated", "sharded"], 2))
def test_iteration_runs_a_program_for_many_rows_and_leaves_the_host_out(place, monkeypatch):
    x = sw.device_put(np.arange(200, dtype=np.float32).reshape(200, 1), PLACES[place])
    list(x)  # fills the caches: the programs, and the start indices of chunks
    for name in ("fetch_one", "put"):
        monkeypatch.setattr(buffers, name, None)
    monkeypatch.setattr(Array, "_fetch", None)
    launches = []
    run = EAGER.call
    monkeypatch.setattr(Eager, "call", lambda self, *a: launches.append(a) or run(*a))
    rows = list(x)
    monkeypatch.undo()
    assert len(launches) == 4  # of up to 64 rows each
    assert [float(r[0]) for r in rows] == list(range(200))


@pytest.mark.parametrize("place", ["one", "sharded"])
def test_bytes_are_those_of_all_elements(place):
    """Python 3.11 would interpret the elements as bytes."""
    for dtype in ("int32", "float32", "bfloat16", "bool"):
        sharding = NamedSharding(sw.make_mesh((8,), ("x",)), P("x")) if place == "sharded" else None
        x = sw.device_put(np.arange(8).astype(snp.dtype(dtype)), sharding)
        assert bytes(x) == np.asarray(x).tobytes(), dtype
    with pytest.raises(TypeError, match=r"^an array of keys, key<fry>\[\], cannot become bytes"):
        bytes(sw.random.key(0))


def test_without_dimensions_there_is_nothing_to_iterate():
    for x in (snp.asarray(1), sw.random.key(0), sw.device_put(np.float32(1), PLACES["replicated"])):
        assert message(TypeError, iter, x) == ("iteration over a 0-d array. Use x.item() or x[()].")
        assert message(TypeError, len, x) == "len() of a 0-d array; its size is 1."


INDICES = [
    0,
    -1,
    2,
    np.int32(1),
    slice(1, 3),
    slice(None, None, -1),
    slice(-2, None),
    (1, 1),
    (..., 0),
    None,
    (slice(None), None, 1),
    [0, 2],
    np.array([2, 0, -1]),
    (np.array([0, 1]), np.array([1, 0])),
    (slice(0, 2), np.array([1])),
    (),
]


@pytest.mark.parametrize(
    "place, rows",
    everyday(
        [("one", "few"), ("replicated", "even"), ("sharded", "uneven"), ("reversed", "few")], 1
    ),
)
def test_indexing(place, rows):
    host, x = placed(place, rows)
    for index in INDICES:
        if isinstance(index, list):
            index = np.array(index)
        np.testing.assert_array_equal(x[index], host[index], err_msg=str(index))
    mask = host > 1
    np.testing.assert_array_equal(x[mask], host[mask])
    np.testing.assert_array_equal(x[mask[:, 0]], host[mask[:, 0]])


WRITES = {
    "set": lambda at: at.set(7),
    "add": lambda at: at.add(2),
    "subtract": lambda at: at.subtract(1),
    "multiply": lambda at: at.multiply(3),
    "mul": lambda at: at.mul(3),
    "divide": lambda at: at.divide(2),
    "power": lambda at: at.power(2),
    "min": lambda at: at.min(1),
    "max": lambda at: at.max(2),
    "apply": lambda at: at.apply(lambda v: v * v + 1),
    "get": lambda at: at.get(),
    "sorted": lambda at: at.add(1, indices_are_sorted=True),
    "unique": lambda at: at.set(1, unique_indices=True),
    "set clip": lambda at: at.set(7, mode="clip"),
    "get clip": lambda at: at.get(mode="clip"),
    "set drop": lambda at: at.set(7, mode="drop"),
    "add fill": lambda at: at.add(7, mode="fill"),
    "get fill": lambda at: at.get(mode="fill", fill_value=9),
    "get promised": lambda at: at.get(mode="promise_in_bounds"),
}
PLACES_TO_WRITE = [0, slice(1, 3), np.array([0, 2]), (np.array([0, 1]), 1)]
OUTSIDE = [np.array([0, 20]), np.array([-30, 1])]


@pytest.mark.parametrize("write", everyday(WRITES, 1))
def test_at_as_jax_has_it(write):
    host, x = placed("sharded", "uneven")
    theirs = jnp.asarray(host)
    for index in OUTSIDE if " " in write and "promised" not in write else PLACES_TO_WRITE:
        mine, wanted = WRITES[write](x.at[index]), WRITES[write](theirs.at[index])
        np.testing.assert_allclose(mine, wanted, rtol=1e-6, err_msg=f"{write} {index}")
        assert mine.dtype == wanted.dtype
    np.testing.assert_array_equal(x, host)


def test_at_on_every_dtype():
    for dtype in DTYPES:
        host = values(8, dtype)
        expected = host.copy()
        expected[2:4] = host[:2]
        # On CPU devices XLA has no sum of 2-bit integers, to which it lowers the write.
        for place in ("one",) if dtype.name in ("int2", "uint2") else ("one", "sharded"):
            x = sw.device_put(host, PLACES[place])
            assert np.asarray(x.at[2:4].set(x[:2])).tobytes() == expected.tobytes()


# ----------------------------------------------------------------------------------- operators

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    divmod,
]


@pytest.mark.parametrize("op", everyday(BINARY, 1), ids=lambda op: op.__name__)
@pytest.mark.parametrize("place, rows", [("replicated", "even"), ("sharded", "uneven")])
def test_operators_of_placed_arrays(place, rows, op):
    host, x = placed(place, rows)
    theirs = jnp.asarray(host)
    for mine, wanted in (
        (op(x, x), op(theirs, theirs)),
        (op(x, 2), op(theirs, 2)),
        (op(2.0, x), op(2.0, theirs)),
        (op(host, x), op(host, theirs)),
        (op(np.float32(2), x), op(np.float32(2), theirs)),
    ):
        pairs = zip(mine, wanted, strict=True) if op is divmod else [(mine, wanted)]
        for a, b in pairs:
            assert isinstance(a, Array) and a.dtype == b.dtype and a.devices() == x.devices()
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_arrays_come_before_numpys_and_are_not_hashed():
    x = snp.ones(2)
    assert x.__array_priority__ == 100
    for bad in (hash, lambda v: {v}, lambda v: {v: 1}):
        with pytest.raises(TypeError, match="unhashable type: 'Array'"):
            bad(x)


@pytest.mark.parametrize("dtype", everyday(DTYPES, 5), ids=str)
def test_byteswap(dtype):
    host = values(8, dtype)
    for place in ("one", "sharded"):
        x = sw.device_put(host, PLACES[place])
        assert x.byteswap().dtype == dtype and x.byteswap().tobytes() == host.byteswap().tobytes()
    assert snp.asarray(host[0, 0]).byteswap().tobytes() == host[:1, :1].byteswap().tobytes()


def test_writing_in_place_says_what_to_write():
    x = snp.ones(2)
    with pytest.raises(TypeError) as caught:
        x[0] = 1
    assert str(caught.value) == (
        "Array cannot be changed in place. For a new array with the elements changed, write "
        "x = x.at[idx].set(value)."
    )


def test_nothing_of_jaxs_arrays_is_missing():
    theirs = {n for n in dir(jax.Array) if not n.startswith("_")}
    theirs |= {n for n in dir(jnp.ones(2)) if not n.startswith("_")}
    internal = {"clone", "traceback", "unsafe_raw_buffer"}  # of the C++ class
    assert theirs - set(dir(snp.ones(2))) <= internal | {"flat"}


# ------------------------------------------------------------------------------ foreign objects

NUMBERS = np.arange(4, dtype=np.float32) + 1


class ByMethod:
    def __jax_array__(self):
        return snp.asarray(NUMBERS)


class Proxy:
    """Has all attributes of an array, traced or not."""

    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "value"), name)


class Around(Proxy):
    """Like Flax's variables."""

    def __jax_array__(self):
        return self.value


class ByNumPy:
    def __array__(self, dtype=None, copy=None):
        return NUMBERS.astype(dtype or np.float32)


class ByDLPack:
    def __dlpack__(self, **how):
        return NUMBERS.copy().__dlpack__(**how)

    def __dlpack_device__(self):
        return (1, 0)


class Unreadable(ByDLPack):
    """Like a torch tensor of bfloat16, or one on a GPU."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert")


class LikeTorch(ByDLPack):
    """Has its own kinds of dtype and truth value."""

    dtype, shape, ndim = "torch.float32", NUMBERS.shape, 1

    def __init__(self, values=NUMBERS):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return self.values if dtype is None else self.values.astype(dtype)

    def __bool__(self):
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")


FOREIGN = {
    "__jax_array__": ByMethod(),
    "__array__": ByNumPy(),
    "__dlpack__": ByDLPack(),
    "both": Unreadable(),
    "torch": LikeTorch(),
    "jax": jnp.asarray(NUMBERS),
}
ROW = NamedSharding(sw.sharding.Mesh(np.array(DEVICES[:4]), ("x",)), P("x"))
TAKEN = {
    "asarray": snp.asarray,
    "array": snp.array,
    "float16": snp.float16,
    "add": lambda o: snp.add(o, 1),
    "sum": snp.sum,
    "sin": snp.sin,
    "reshape": lambda o: snp.reshape(o, (2, 2)),
    "where": lambda o: snp.where(o, o, 0),
    "concatenate": lambda o: snp.concatenate([o, o]),
    "stack": lambda o: snp.stack([o, o]),
    "dot": lambda o: snp.dot(o, o),
    "einsum": lambda o: snp.einsum("i,i->", o, o),
    "sort": snp.sort,
    "cumsum": snp.cumsum,
    "transpose": snp.transpose,
    "take": lambda o: snp.take(o, np.array([0])),
    "broadcast_to": lambda o: snp.broadcast_to(o, (2, 4)),
    "compress": lambda o: snp.compress(o, snp.ones(4)),
    "extract": lambda o: snp.extract(o, o),
    "delete": lambda o: snp.delete(o, 0),
    "insert": lambda o: snp.insert(snp.ones(3), 0, o),
    "place": lambda o: snp.place(snp.ones(4), o, o, inplace=False),
    "put": lambda o: snp.put(snp.ones(4), np.arange(2), o, inplace=False),
    "fill_diagonal": lambda o: snp.fill_diagonal(snp.ones((4, 4)), o, inplace=False),
    "trim_zeros": snp.trim_zeros,
    "isscalar": snp.isscalar,
    "zeros_like": snp.zeros_like,
    "full_like": lambda o: snp.full_like(o, 2),
    "shape": snp.shape,
    "ndim": snp.ndim,
    "size": snp.size,
    "pad": lambda o: snp.pad(o, 1),
    "clip": lambda o: snp.clip(o, 0, 1),
    "astype": lambda o: snp.astype(o, int),
    "interp": lambda o: snp.interp(o, o, o),
    "nonzero": snp.nonzero,
    "unique": snp.unique,
    "norm": lambda o: snp.linalg.norm(o),
    "lax.add": lambda o: lax.add(o, o),
    "lax.sin": lax.sin,
    "lax.dot": lambda o: lax.dot(o, o),
    "lax.reduce_sum": lambda o: lax.reduce_sum(o, axes=(0,)),
    "lax.broadcast": lambda o: lax.broadcast(o, (2,)),
    "lax.exp": lambda o: lax.exp(o),
    "scan": lambda o: lax.scan(lambda c, v: (c + v, c), 0.0, o),
    "device_put": sw.device_put,
    "to a device": lambda o: sw.device_put(o, DEVICES[1]),
    "to a sharding": lambda o: sw.device_put(o, ROW),
    "tree": lambda o: sw.device_put({"a": [o]}),
    "jit": sw.jit(lambda a: a + 1),
    "jit of a tree": lambda o: sw.jit(lambda t: t["a"] + 1)({"a": o}),
    "inside jit": lambda o: sw.jit(lambda a: snp.add(a, o))(1.0),
    "grad": sw.grad(lambda a: (a * a).sum()),
    "vmap": sw.vmap(lambda a: a + 1),
    "jvp": lambda o: sw.jvp(snp.sin, (o,), (o,)),
    "x + o": lambda o: snp.ones(4) + o,
    "o * x": lambda o: snp.asarray(NUMBERS).__rmul__(o),
    "at": lambda o: snp.zeros(4).at[:].set(o),
    "list": lambda o: snp.array([o, o]),
    "typeof": lambda o: sw.typeof(o).shape,
    "callback": lambda o: sw.make_array_from_callback(
        (4,), ROW, lambda i: np.asarray(snp.asarray(o))[i]
    ),
}


@pytest.mark.parametrize("use", everyday(TAKEN, 54))
@pytest.mark.parametrize("protocol", FOREIGN)
def test_objects_of_other_libraries_are_taken(protocol, use):
    found, wanted = TAKEN[use](FOREIGN[protocol]), TAKEN[use](NUMBERS)
    mine, expected = sw.tree.leaves(found), sw.tree.leaves(wanted)
    assert len(mine) == len(expected)
    for a, b in zip(mine, expected, strict=True):
        assert type(a) is type(b) and isinstance(a, Array | int | tuple)
        np.testing.assert_array_equal(a, b)


def test_objects_around_arrays():
    x = snp.arange(4.0)
    uses = [
        lambda o: x + o,
        lambda o: x @ o,
        snp.sum,
        lambda o: snp.concatenate([x, o]),
        lambda o: snp.einsum("i,i->", x, o),
        lambda o: x.at[1:].add(Around(o.value[1:])),
    ]
    for use in uses:
        for _ in range(2):
            np.testing.assert_array_equal(use(Around(x)), use(x) if use is not uses[-1] else x + x)
        found = sw.grad(lambda v, use=use: use(Around(v)).sum())(x)
        assert found.shape == (4,) and found[3] != 0
        assert sw.jit(lambda v, use=use: use(Around(v)))(x).shape == use(Around(x)).shape


def test_objects_with_every_attribute_have_their_own_operators():
    class Cursor(Proxy):
        def __radd__(self, other):
            return "own"

    assert snp.arange(4.0) + Cursor(snp.asarray(NUMBERS)) == "own"


def test_arrays_of_other_libraries_are_indices():
    x, places = snp.arange(5.0) * 2, LikeTorch(np.array([3, 1]))
    assert x[places].tolist() == [6, 2]
    assert x[LikeTorch(np.array([True, False, True, False, False]))].tolist() == [0, 4]
    assert sw.jit(lambda x: x[places])(x).tolist() == [6, 2]
    assert x.at[places].set(9.0).tolist() == [0, 9, 4, 9, 8]
    assert (
        message(TypeError, lambda: x[LikeTorch()])
        == "an index must be of integer or boolean type; got f32[4]."
    )


def test_strangers_are_refused():
    class Stranger:
        def __repr__(self):
            return "Stranger()"

    assert message(TypeError, snp.asarray, Stranger()) == (
        "asarray: array elements must be numbers or booleans; got Stranger() of type Stranger."
    )
    assert message(TypeError, sw.device_put, Stranger()) == (
        "device_put: x: expected an array or a scalar, got Stranger() of type Stranger. If it "
        "contains arrays, register its class: `shardwise.tree_util.register_pytree_node_class`."
    )


def test_operands_are_read_before_their_owner_can_change_them():
    host = np.zeros(2**20 + 16, np.float32)
    host = host[(-host.ctypes.data % 64) // 4 :][: 2**20]

    class Owner(ByDLPack):
        def __dlpack__(self, **how):
            return host.__dlpack__(**how)

    total = snp.add(Owner(), 0)
    host[:] = 1
    assert float(total.sum()) == 0


def test_promotion_knows_foreign_types():
    class Half:
        def __array__(self, dtype=None, copy=None):
            return np.ones(2, ml_dtypes.bfloat16)

    assert snp.result_type(Half(), snp.ones(2, np.int8)) == ml_dtypes.bfloat16
    assert snp.add(Half(), 1.0).dtype == ml_dtypes.bfloat16


def test_an_array_as_a_dtype():
    x = snp.ones(3, "int16")
    if np.lib.NumpyVersion(np.__version__) < "2.4.0":
        assert np.dtype(x) == "int16"  # pyright: ignore
        return
    with pytest.warns(DeprecationWarning, match="pass x.dtype"):
        assert np.dtype(x) == "int16"  # pyright: ignore

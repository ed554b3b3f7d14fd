"""Deleted arrays: every use raises, wherever they are passed; only their types can be read."""

import contextlib
import inspect
import operator
import traceback

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax, nn, random
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import COPY, donated, message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, PLACES

GONE = "array of type {} has been deleted: `delete()` was called on it. " + COPY

# Uses that could return the array itself, or a value that was read before.
AS_IT_IS = {
    "x[:]": lambda x: x[:],
    "x[...]": lambda x: x[...],
    "x[()]": lambda x: x[()],
    "iter": iter,
    "asarray": snp.asarray,
    "asarray, dtype": lambda x: snp.asarray(x, x.dtype),
    "array": lambda x: snp.array(x, copy=False),
    "astype": lambda x: x.astype(x.dtype),
    "view": lambda x: x.view(),
    "device_put": sw.device_put,
    "device_put there": lambda x: sw.device_put(x, x.sharding),
    "device_put tree": lambda x: sw.device_put({"a": x}),
    "to_device": lambda x: x.to_device(x.sharding),
    "convert": lambda x: lax.convert_element_type(x, x.dtype),
    "new_ref": sw.new_ref,
    "expand_dims": lambda x: lax.expand_dims(x, ()),
    "squeeze": lambda x: lax.squeeze(x, ()),
    "vmap": sw.vmap(lambda x: x),
    "jvp": lambda x: sw.jvp(lambda a: a, (x,), (x,)),
    "vjp": lambda x: sw.vjp(lambda a: a, x),
    "grad": sw.grad(lambda x: 1.0),
    "asarray of NumPy": np.asarray,
    "tolist": lambda x: x.tolist(),
    "bytes": lambda x: x.tobytes(),
    "mask": lambda x: x[np.ones(x.shape, bool)],
    "format": lambda x: f"{x:s}",
    "ufunc": lambda x: np.add(x, 1),
    "callback": lambda x: sw.pure_callback(np.copy, x, x),
}
INTEGER = {
    "int": int,
    "float": float,
    "complex": complex,
    "bool": bool,
    "index": operator.index,
    "hex": hex,
    "oct": oct,
    "round": round,
    "range": range,
    "item": lambda i: i.item(),
    "as an index": lambda i: snp.ones(9)[i],
    "in a slice": lambda i: snp.ones(9)[:i],
    "in at": lambda i: snp.ones(9).at[i].set(0),
    "index of NumPy": lambda i: np.ones(9)[i],
    "a size": snp.zeros,
    "a length": snp.arange,
    "switch": lambda i: lax.switch(i, [int, int]),
    "cond": lambda i: lax.cond(i, lambda: 0, lambda: 1),
    "seed": random.key,
    "text": "{:d}".format,
    "fori_loop": lambda i: lax.fori_loop(0, i, lambda k, x: x, 0.0),
    "in a list": lambda i: snp.array([i, 1]),
    "take": lambda i: snp.take(snp.ones(9), i),
    "start": lambda i: lax.dynamic_slice(snp.ones(9), (i,), (2,)),
}


def by_delete(x):
    x.delete()
    return GONE.format(x.aval.str_short(True))


def by_donation(x):
    sw.jit(lambda a: a + 1, donate_argnums=0)(x)
    told = f"array of type {x.aval.str_short(True)} was donated to <lambda>. "
    return told + donated("<lambda>")


def by_another(x):
    devices = DEVICES if len(x.devices()) > 1 else DEVICES[:1]
    sw.device_put(x, NamedSharding(Mesh(np.array(devices), "z"), P(*"z"[: x.ndim]))).delete()
    return (
        f"array of type {x.aval.str_short(True)} has been deleted, through another array that "
        "shared its memory. " + COPY
    )


@pytest.mark.parametrize("way", [by_delete, by_donation, by_another])
@pytest.mark.parametrize("place", ["one", "sharded"])
def test_what_could_give_the_array_itself(place, way):
    for name, use in AS_IT_IS.items():
        x = sw.device_put(np.arange(1.0, 9.0, dtype=np.float32), PLACES[place])
        np.asarray(x)  # caches the host value, which must not be returned any more
        expected = way(x)
        assert message(RuntimeError, use, x) == expected, name


@pytest.mark.parametrize("way", [by_delete, by_donation, by_another])
def test_integers_that_say_something(way):
    for name, use in INTEGER.items():
        i = snp.array(1)
        use(i)
        expected = way(i)
        assert message(RuntimeError, use, i) == expected, name


def test_types_and_places_can_be_read():
    x = sw.device_put(np.ones((8, 2), np.float32), PLACES["sharded"])
    x.delete()
    assert (x.shape, x.dtype, x.size, x.nbytes, len(x)) == ((8, 2), np.float32, 16, 64, 8)
    assert x.sharding is PLACES["sharded"] and x.devices() == set(DEVICES) and x.committed
    assert sw.typeof(x) is x.aval and sw.eval_shape(lambda a: a + 1, x).shape == (8, 2)
    assert snp.shape(x) == (8, 2) and snp.result_type(x) == np.float32
    assert repr(x).startswith("Array(deleted, shape=(8, 2), dtype=float32") and str(x) == f"{x}"
    assert sw.tree.map(lambda leaf: leaf, [x])[0] is x
    for y in (snp.zeros_like(x), lax.full_like(x, 0)):
        np.testing.assert_array_equal(y, np.zeros((8, 2)))


@pytest.mark.parametrize("way", [by_delete, by_another])
def test_the_runtime_is_not_heard(way):
    """The traceback does not contain jaxlib's message about the failed call."""
    for use in (lambda x: x + 1, sw.jit(lambda x: x * 2), sw.jit(lambda x: (x, x * 2))):
        x = snp.arange(8.0)
        use(x)
        way(x)
        with pytest.raises(RuntimeError) as caught:
            use(x)
        text = "".join(traceback.format_exception(caught.value))
        assert "execute_sharded" not in text and text.count("Traceback") == 1, text


# -- every public function --

ROOMS = {"numpy": snp, "lax": lax, "nn": nn, "random": random, "linalg": snp.linalg}
FUNCTIONS = [
    (room, name)
    for room, module in ROOMS.items()
    for name in sorted(dir(module))
    if not name.startswith("_")
    and callable(getattr(module, name))
    and not inspect.isclass(getattr(module, name))
    and name not in ("save", "savez", "set_printoptions")  # write files, or affect other tests
    and name not in ("Key", "stop_gradient", "create_token")  # a type; these read no value
]
# These only read the type of an array.
OF_THE_TYPE = {
    "zeros_like",
    "ones_like",
    "empty_like",
    "full_like",
    "diag_indices_from",
    "tril_indices_from",
    "triu_indices_from",
}
MADE = {
    "v": lambda: snp.arange(1.0, 9.0),
    "m": lambda: snp.arange(16.0).reshape(4, 4) + 1,
    "i": lambda: snp.arange(8),
    "s": lambda: snp.array(1.0),
    "n": lambda: snp.array(1),
    "b": lambda: snp.ones(8, bool),
    "c": lambda: snp.arange(4) + 1j,
    "k": lambda: random.key(0),
}
RESTS = [(), (0,), (1,), ((0,),), ((8,),), ((),), (np.float32,), (0, 0), (0, 1), (None,)]
CALLS = [
    *[(k, *rest) for k in MADE for rest in RESTS],
    *[(k, k) for k in "vmicsb"],
    *[(k, k, k) for k in "vmsn"],
    ("k", "v"),
    ("k", (8,)),
    (0.0, "v"),
    (True, "v"),
    (2, "v"),
]
CALLS_EACH = 2  # of the calls that a function accepts


def made(call):
    """The arguments of a call, and the arrays among them."""
    args = [MADE[a]() if isinstance(a, str) else a for a in call]
    return args, [a for a in args if isinstance(a, sw.Array)]


@pytest.mark.parametrize("room, name", everyday(FUNCTIONS, 17))
@pytest.mark.filterwarnings("ignore")
def test_functions(room, name):
    function, done = getattr(ROOMS[room], name), 0
    for call in CALLS:
        args, arrays = made(call)
        try:
            function(*args)
        except Exception:
            continue  # not a valid call of this function
        for k in range(len(arrays)):
            args, arrays = made(call)
            arrays[k].delete()
            with contextlib.suppress(TypeError, ValueError):  # about shapes: the others are new
                try:
                    result = function(*args)
                except RuntimeError as error:
                    assert str(error) == GONE.format(arrays[k].aval.str_short(True))
                    continue
                given = [x for x in sw.tree.leaves(result) if isinstance(x, sw.Array)]
                assert name in OF_THE_TYPE or not given, call
        done += 1
        if done == CALLS_EACH:
            return

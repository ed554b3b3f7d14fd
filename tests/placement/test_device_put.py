"""`device_put` in all its forms: trees of options, aliasing, donation, host and traced values."""

import gc
import itertools
import weakref

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax, random
from shardwise.sharding import (
    AxisType,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
    Tiling,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import donated, messages
from tests.helpers.errors import message as refused
from tests.helpers.meshes import BACK, DEVICES, MESH, SHUFFLED

ROWS = NamedSharding(MESH, P("x"))
PLACES = {
    "one": SingleDeviceSharding(DEVICES[0]),
    "another": SingleDeviceSharding(DEVICES[5]),
    "replicated": NamedSharding(MESH, P()),
    "rows": ROWS,
    "columns": NamedSharding(MESH, P(None, "y")),
    "both": NamedSharding(MESH, P("y", "x")),
    "all": NamedSharding(MESH, P(("x", "y"))),
    "shuffled": NamedSharding(SHUFFLED, P(("z", "x"), "y")),
    "back": NamedSharding(BACK, P("x", "y")),
    "back, replicated": NamedSharding(BACK, P()),
    "three": NamedSharding(Mesh(DEVICES[2:5], ("i",)), P(None, "i")),
    "no mesh": GSPMDSharding(DEVICES[:2], Tiling((2, 1), (2,), (0,), False, assignment=(1, 0))),
}


def numbers(*shape):
    return np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def pointer(x):
    return (
        x.__array_interface__["data"][0]
        if isinstance(x, np.ndarray)
        else (x.unsafe_buffer_pointer())
    )


def pointers(x):
    return [pointer(s.data) for s in x.addressable_shards]


def aligned(values):
    """The values at an address divisible by 64, where a device can alias them."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    start = -pointer(memory) % 64
    out = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out


# ------------------------------------------------------------------------------- between shardings


@pytest.mark.parametrize("name", PLACES)
def test_uneven_arrays_go_from_every_place_to_every_other(name):
    values = numbers(7, 5)
    source = sw.device_put(values, PLACES[name])
    for target in PLACES.values():
        moved = sw.device_put(source, target)
        assert moved.sharding is target and moved.committed
        np.testing.assert_array_equal(np.asarray(moved), values)
        for shard in moved.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), values[shard.index])


def test_keys_go_from_every_place_to_every_other():
    keys = random.split(random.key(1), (4, 6))
    data = np.asarray(random.key_data(keys))
    places = [PLACES[n] for n in ("one", "rows", "both", "shuffled", "back")]
    for here, there in itertools.product(places, places):
        moved = sw.device_put(sw.device_put(keys, here), there)
        assert moved.sharding is there and moved.dtype == keys.dtype
        np.testing.assert_array_equal(np.asarray(random.key_data(moved)), data)


# --------------------------------------------------------------------------------------- aliasing


def test_by_default_arrays_in_place_are_shared_and_host_values_are_copied():
    host = aligned(numbers(8, 8))
    for place in (DEVICES[0], ROWS, PLACES["replicated"]):
        x = sw.device_put(host, place)
        assert pointer(host) not in pointers(x)
        y = sw.device_put(x, place)
        assert pointers(y) == pointers(x)
    same = NamedSharding(MESH, P("x", None))
    x = sw.device_put(host, ROWS)
    assert pointers(sw.device_put(x, same)) == pointers(x)


def test_may_alias_lets_the_result_share_the_memory_of_numpy():
    host = aligned(numbers(16, 16))
    x = sw.device_put(host, DEVICES[0], may_alias=True)
    assert pointers(x) == [pointer(host)] and x.committed
    y = sw.device_put(host, NamedSharding(MESH, P("x")), may_alias=True)
    assert pointers(y) == [pointer(host) + 256 * i for i in (0, 0, 1, 1, 2, 2, 3, 3)]
    z = sw.device_put(host, may_alias=True)
    assert pointers(z) == [pointer(host)] and not z.committed
    for a in (x, y, z):
        np.testing.assert_array_equal(np.asarray(a), host)
        np.testing.assert_array_equal(np.asarray(a + a), host + host)
    kept = weakref.ref(host.base)
    del host
    gc.collect()
    assert kept() is not None  # the arrays keep it alive
    before = np.asarray(x).copy()
    doubled = sw.jit(lambda a: a * 2, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(doubled), before * 2)
    np.testing.assert_array_equal(np.asarray(z), before)  # the donated memory was not written to


@pytest.mark.parametrize("what", ["order", "alignment", "dtype", "uneven", "empty", "list"])
def test_what_cannot_be_shared_is_copied(what):
    values = {
        "order": aligned(numbers(8, 8)).T,
        "alignment": aligned(numbers(65))[1:],
        "dtype": aligned(np.ones((8, 8))),
        "uneven": aligned(numbers(7, 8)),
        "empty": np.ones((0, 8), np.float32),
        "list": numbers(8),
    }[what]
    x = sw.device_put(values, NamedSharding(MESH, P("x")), may_alias=True)
    np.testing.assert_array_equal(np.asarray(x), values)
    y = sw.device_put([3, values], DEVICES[1], may_alias=True)
    assert int(y[0]) == 3
    np.testing.assert_array_equal(np.asarray(y[1]), values)


def test_may_alias_false_shares_nothing():
    values = numbers(8, 8)
    source = sw.device_put(values, ROWS)
    free = lax.add(values, 1.0)
    cases = [
        (source, ROWS),
        (source, NamedSharding(MESH, P("x", None))),
        (source, None),
        (source, NamedSharding(Mesh(DEVICES[::-1].reshape(4, 2), ("x", "y")), P())),
        (free, None),
        (free, DEVICES[0]),
    ]
    for x, place in cases:
        y = sw.device_put(x, place, may_alias=False)
        assert not set(pointers(x)) & set(pointers(y))
        assert y.committed == (x.committed or place is not None)
        assert y.sharding == (x.sharding if place is None else sw.device_put(x, place).sharding)
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x))


def test_may_alias_may_be_a_prefix():
    x, y = (sw.device_put(numbers(4), DEVICES[0]) for _ in range(2))
    out = sw.device_put({"a": [x], "b": y}, DEVICES[0], may_alias={"a": False, "b": None})
    assert pointers(out["a"][0]) != pointers(x) and out["b"] is y


# --------------------------------------------------------------------------------------- donation


def test_donated_memory_is_free_at_once():
    for place in (DEVICES[3], PLACES["columns"], PLACES["back"]):
        x = sw.device_put(numbers(8, 8), ROWS)
        memory = weakref.ref(x._impl)
        y = sw.device_put(x, place, donate=True)
        sw.block_until_ready(y)
        assert memory() is None and x.is_deleted()
        np.testing.assert_array_equal(np.asarray(y), numbers(8, 8))


def test_donated_memory_is_reused_where_nothing_moves():
    for place in (ROWS, NamedSharding(MESH, P("x", None)), None):
        x = sw.device_put(numbers(8, 8), ROWS)
        held = pointers(x)
        y = sw.device_put(x, place, donate=True)
        assert pointers(y) == held and x.is_deleted() and not y.is_deleted()
        message = "array of type f32[8,8] was donated to device_put. " + donated("device_put")
        for use in (
            lambda x=x: x + 1,
            lambda x=x: np.asarray(x),
            lambda x=x: sw.jit(lambda a: a)(x),
            lambda x=x: sw.device_put(x, DEVICES[1]),
        ):
            assert refused(RuntimeError, use).endswith(message)


def test_donate_may_be_a_prefix_and_other_leaves_live_on():
    x, y, z = (sw.device_put(numbers(4), DEVICES[0]) for _ in range(3))
    out = sw.device_put(
        {"a": [x, y], "b": z, "c": numbers(2)},
        DEVICES[2],
        donate={"a": [True, False], "b": True, "c": True},
    )
    assert [a.is_deleted() for a in (x, y, z)] == [True, False, True]
    assert {d for a in (*out["a"], out["b"], out["c"]) for d in a.devices()} == {DEVICES[2]}


def test_an_array_that_occurs_twice_is_donated_once():
    x = sw.device_put(numbers(4), DEVICES[0])
    first, second = sw.device_put([x, x], [DEVICES[1], DEVICES[2]], donate=True)
    assert x.is_deleted()
    np.testing.assert_array_equal(np.asarray(first), numbers(4))
    np.testing.assert_array_equal(np.asarray(second), numbers(4))


# ---------------------------------------------------------------------------------- wrong arguments


TREE = {"a": 1.0, "b": [2, 3]}


@pytest.mark.parametrize("option", ["device", "src", "donate", "may_alias"])
def test_options_are_prefixes_and_mismatches_name_the_path(option):
    leaf = DEVICES[0] if option in ("device", "src") else True
    start = (
        f"device_put: {option} must be a pytree prefix of the values that it describes, with one "
        "entry for each value or for a whole subtree: "
    )
    wrong = {
        "only the value has x['b'].": {"a": leaf},
        "only the value has x['b'][1].": {"a": leaf, "b": [leaf]},
        f"x['a'] is a list of 1 in {option} and a leaf in the value.": {"a": [leaf], "b": leaf},
    }
    for message, value in wrong.items():
        assert refused(ValueError, lambda v=value: sw.device_put(TREE, **{option: v})) == (
            start + message
        )


test_other_mistakes = messages(
    """
sw.device_put(TREE, donate={"a": 1, "b": True})
    TypeError: device_put: donate must be True or False; got 1.
sw.device_put(TREE, may_alias="no")
    TypeError: device_put: may_alias must be True or False; got 'no'.
sw.device_put(TREE, donate=True, may_alias=True)
    ValueError: device_put: donate and may_alias are both True. Donated memory belongs to the
    result alone: leave out may_alias.
sw.device_put(TREE, device="cpu")
    TypeError: device_put takes shardings, devices, PartitionSpecs or None; got 'cpu' of type str.
sw.device_put(TREE, device=P("x"))
    ValueError: device_put: a bare P('x') needs a mesh in scope. Use NamedSharding(mesh, P('x')),
    or enter `with shardwise.set_mesh(mesh):`.
sw.device_put(TREE, device=ROWS)
    ValueError: device_put: x['a']: P('x') over Mesh('x': 4, 'y': 2) has 1 entry, but the array has
    only 0 dimensions. Remove entries from the end of the spec.
""",
    globals(),
)


NO_ARRAYS = {
    "text": ("abc", TypeError, "expected an array or a scalar, got 'abc' of type str."),
    "set": ({1}, TypeError, "expected an array or a scalar, got {1} of type set."),
    "texts": (
        np.array(["a"]),
        TypeError,
        "dtype <U1 is not supported: it holds text. Arrays "
        "hold booleans, integers, floating-point or complex numbers. Encode it as integers "
        "first.",
    ),
    "bytes": (
        np.arange(3, dtype=">f4"),
        TypeError,
        "dtype >f4 is not supported: its bytes are not "
        "in this machine's order. Convert it with x.astype('float32').",
    ),
    "mask": (
        np.ma.masked_array([1.0, 2.0], [0, 1]),
        ValueError,
        "masked arrays of NumPy are not supported, as their masks would be ignored. Pass "
        "x.filled(...), or x.data and x.mask.",
    ),
}


@pytest.mark.parametrize("name", NO_ARRAYS)
@pytest.mark.parametrize("place", [None, DEVICES[1], ROWS])
def test_what_is_no_array_is_refused_with_advice(name, place):
    value, error, message = NO_ARRAYS[name]
    assert refused(error, lambda: sw.device_put(value, place)) == f"device_put: x: {message}"
    tree = {"w": [np.ones(4, np.float32), value]}
    assert refused(error, lambda: sw.device_put(tree, place)) == f"device_put: x['w'][1]: {message}"


# -------------------------------------------------------------------------------------- host values


@pytest.mark.parametrize("name", ["one", "rows", "both", "replicated"])
def test_host_values_of_any_kind(name):
    read_only = numbers(8, 8)
    read_only.flags.writeable = False
    sources = [
        read_only,
        numbers(8, 8)[::-1, ::-1],
        numbers(16, 8)[::2],
        np.asfortranarray(numbers(8, 8)),
        np.broadcast_to(np.float32(3), (8, 8)),
        np.ones((8, 8), bool),
        np.ones((0, 8), np.int8),
        numbers(8, 8).astype(ml_dtypes.bfloat16),
        numbers(8, 8) * 1j,
    ]
    for source in sources:
        x = sw.device_put(source, PLACES[name])
        assert x.sharding is PLACES[name] and x.shape == source.shape
        np.testing.assert_array_equal(np.asarray(x), np.asarray(source, x.dtype))


def test_objects_of_other_libraries():
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return numbers(8)

    x = sw.device_put({"a": Foreign()}, ROWS.with_spec(P("x")))["a"]
    assert x.sharding is ROWS
    np.testing.assert_array_equal(np.asarray(x), numbers(8))

    class Exported:
        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **options):
            return self.values.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    for place in (None, DEVICES[2], ROWS):
        x = sw.device_put(Exported(numbers(8)), place)
        assert x.committed == (place is not None) and x.devices() == (
            {DEVICES[0]} if place is None else set(ROWS.devices) if place is ROWS else {place}
        )
        np.testing.assert_array_equal(np.asarray(x), numbers(8))
    x = sw.make_array_from_callback((8,), ROWS, lambda i: Exported(numbers(8)[i]))
    np.testing.assert_array_equal(np.asarray(x), numbers(8))
    got = sw.device_get({"a": Foreign(), "k": random.key(0), "n": np.float32(2), "i": 3})
    assert type(got["a"]) is np.ndarray and type(got["n"]) is np.ndarray and got["i"] == 3
    assert got["k"].__class__ is sw.Array  # NumPy has no keys


def test_device_get_starts_all_copies_first(monkeypatch):
    seen = []
    start, fetch = sw.Array.copy_to_host_async, sw.Array._value
    monkeypatch.setattr(sw.Array, "copy_to_host_async", lambda x: seen.append("start") or start(x))
    monkeypatch.setattr(sw.Array, "_value", lambda x: seen.append("fetch") or fetch(x))
    sw.device_get([sw.device_put(numbers(8), ROWS) for _ in range(3)])
    assert seen == ["start"] * 3 + ["fetch"] * 3


# ------------------------------------------------------------------------------------ traced values


def there(place):
    return lambda a: (sw.device_put(a * 2, place) ** 2).sum()


@pytest.mark.parametrize("name", ["another", "rows", "back", "no mesh"])
@pytest.mark.parametrize("home", ["one", "rows"])
def test_gradients_come_back_to_where_the_argument_is(name, home):
    place = PLACES[name]
    x = sw.device_put(numbers(8, 2), PLACES[home])
    value, gradient = sw.value_and_grad(there(place))(x)
    assert value.devices() == set(place.devices)
    assert gradient.sharding.is_equivalent_to(x.sharding, 2)
    np.testing.assert_allclose(np.asarray(gradient), 8 * numbers(8, 2))
    both = sw.grad(lambda a: there(place)(a) + (a**3).sum().astype(np.float32))
    if home == name:
        np.testing.assert_allclose(np.asarray(both(x)), 8 * numbers(8, 2) + 3 * numbers(8, 2) ** 2)


def test_a_value_used_here_and_there_has_one_gradient():
    x = sw.device_put(numbers(4), DEVICES[3])

    def f(a):
        there = (sw.device_put(a, DEVICES[5]) ** 2).sum()
        return sw.device_put(there, DEVICES[3]) + a.sum()

    gradient = sw.grad(f)(x)
    assert gradient.devices() == {DEVICES[3]}
    np.testing.assert_allclose(np.asarray(gradient), 2 * numbers(4) + 1)
    second = sw.grad(lambda a: sw.grad(f)(a).sum())(x)
    assert second.devices() == {DEVICES[3]} and np.asarray(second).tolist() == [2] * 4


def test_tangents_go_along():
    x = sw.device_put(numbers(8), DEVICES[3])
    out, tangent = sw.jvp(lambda a: sw.device_put(a, ROWS) * 3, (x,), (x,))
    assert out.sharding == tangent.sharding == ROWS
    np.testing.assert_array_equal(np.asarray(tangent), 3 * numbers(8))


def test_src_says_where_cotangents_go():
    place = NamedSharding(MESH, P(None, "x"))
    f = sw.jit(sw.grad(lambda a: (sw.device_put(a, place, src=ROWS) ** 2).sum()))
    gradient = f(sw.device_put(numbers(8, 8), PLACES["columns"]))
    assert gradient.sharding == ROWS
    np.testing.assert_array_equal(np.asarray(gradient), 2 * numbers(8, 8))


def test_mapped_values_go_to_devices_too():
    x = sw.device_put(numbers(3, 8), DEVICES[3])
    for place in (ROWS, SingleDeviceSharding(DEVICES[5]), PLACES["no mesh"]):
        if place is PLACES["no mesh"]:
            place = GSPMDSharding(DEVICES[:2], Tiling((2,), (2,), (0,), False))
        y = sw.vmap(lambda a, place=place: sw.device_put(a, place) * 2)(x)
        assert y.devices() == set(place.devices)
        assert y.sharding.shard_shape((3, 8))[1] == place.shard_shape((8,))[0]
        np.testing.assert_array_equal(np.asarray(y), 2 * numbers(3, 8))
        z = sw.vmap(lambda a, place=place: sw.device_put(a, place) * 2, 1, 1)(x.T)
        np.testing.assert_array_equal(np.asarray(z), 2 * numbers(3, 8).T)


def test_specs_and_explicit_axes_under_transforms():
    x = sw.device_put(numbers(8), ROWS)
    with MESH:
        gradient = sw.grad(lambda a: (sw.device_put(a, P(("x", "y"))) ** 2).sum())(x)
    assert gradient.sharding == ROWS
    mesh = Mesh(DEVICES.reshape(4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None))
    f = sw.jit(lambda a: (sw.typeof(sw.device_put(a, whole)).str_short(True), a)[1])
    assert sw.typeof(f(sw.device_put(numbers(8), split))).str_short(True) == "f32[8@x]"
    g = sw.jit(lambda a: sw.device_put(a, whole) + 1)
    assert sw.typeof(g(sw.device_put(numbers(8), split))).str_short(True) == "f32[8]"


def test_a_program_has_one_set_of_devices():
    x = sw.device_put(numbers(8), ROWS)
    message = refused(ValueError, lambda: sw.jit(lambda a: sw.device_put(a, DEVICES[5]))(x))
    assert message == (
        "<lambda> runs on one set of devices: a of type f32[8] is on devices [0, 1, 2, 3, 4, 5, 6, "
        "7], but a result or intermediate value must be on device 5 "
        f"({SingleDeviceSharding(DEVICES[5])}). Use `device_put` outside of it."
    )
    one = sw.device_put(numbers(8), DEVICES[3])
    assert refused(ValueError, lambda: sw.jit(lambda a: sw.device_put(a, DEVICES[5]))(one)) == (
        "<lambda> runs on one set of devices: a of type f32[8] is on device 3, but a result or "
        f"intermediate value must be on device 5 ({SingleDeviceSharding(DEVICES[5])}). Use "
        "`device_put` outside of it."
    )
    free = sw.jit(lambda a: sw.device_put(a, DEVICES[5]))(numbers(8))
    assert free.devices() == {DEVICES[5]}


# -------------------------------------------------------------------- conversions move nothing (J8)


CONVERSIONS = {
    "astype": lambda x: x.astype(np.int32),
    "convert_element_type": lambda x: lax.convert_element_type(x, np.float16),
    "bitcast": lambda x: lax.bitcast_convert_type(x, np.int32),
    "asarray": lambda x: snp.asarray(x, np.complex64),
    "same": lambda x: x.astype(x.dtype),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_move_nothing(name):
    for place in (DEVICES[3], ROWS, PLACES["shuffled"].with_spec(P("z"))):
        x = sw.device_put(numbers(8), place)
        with sw.default_device(DEVICES[6]):
            y = CONVERSIONS[name](x)
        assert y.sharding.is_equivalent_to(x.sharding, 1) and y.committed
    with sw.default_device(DEVICES[4]):
        free = lax.add(numbers(8), 1.0)
    moved = CONVERSIONS[name](free)
    assert moved.devices() == {DEVICES[4]} and not moved.committed


def test_an_array_that_stays_there_and_is_donated_later() -> None:
    device = sw.devices()[0]
    x = sw.device_put(np.ones(4, np.float32), device)
    first, second = sw.device_put([x, x], device, donate=True)
    assert x.is_deleted() and first.tolist() == second.tolist() == [1.0] * 4


def test_numbers_that_are_too_large_are_named() -> None:
    error = refused(OverflowError, lambda: sw.device_put({"a": 1, "b": [2**70]}))
    assert error.startswith("device_put: x['b'][0]: ")

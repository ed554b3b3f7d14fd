"""Arrays made from shards: callbacks, process-local data, single-device arrays."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from benchmarks.child import PEAK_BYTES, run_child
from shardwise import lax, random
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    GSPMDSharding,
    Mesh,
    NamedSharding,
    SingleDeviceSharding,
    Tiling,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import holds
from tests.helpers.errors import message as refused
from tests.helpers.everyday import everyday
from tests.helpers.meshes import DEVICES, MESH, SHUFFLED

PLACES = {
    "one": SingleDeviceSharding(DEVICES[3]),
    "replicated": NamedSharding(MESH, P()),
    "rows": NamedSharding(MESH, P("x")),
    "columns": NamedSharding(MESH, P(None, "y")),
    "both": NamedSharding(MESH, P("y", "x")),
    "all": NamedSharding(MESH, P(("y", "x"))),
    "shuffled": NamedSharding(SHUFFLED, P(("z", "x"), "y")),
    "no mesh": GSPMDSharding(DEVICES[:2], Tiling((2, 1), (2,), (0,), False, assignment=(1, 0))),
}
SHAPES = [(8, 8), (7, 5), (3, 1), (9, 2), (0, 4), (5, 0)]


def numbers(shape, dtype=np.float32):
    return np.arange(1, 1 + math.prod(shape)).reshape(shape).astype(dtype)


def check(x, sharding, values):
    assert x.sharding is sharding and x.committed and x.shape == values.shape
    holds(x, values)
    assert np.array_equal(np.asarray(x + x), values + values)  # the buffers are valid


def distinct(sharding, shape):
    return list(dict.fromkeys(map(str, sharding.indices(shape))))


# ------------------------------------------------------------------------- make_array_from_callback


@pytest.mark.parametrize("shape", everyday(SHAPES, 7))
@pytest.mark.parametrize("name", PLACES)
def test_a_callback_is_asked_once_for_each_part(name, shape):
    values, asked = numbers(shape), []
    x = sw.make_array_from_callback(shape, PLACES[name], lambda i: asked.append(i) or values[i])
    check(x, PLACES[name], values)
    parts_with_data = [
        i for i in distinct(PLACES[name], shape) if values.size == 0 or values[eval(i)].size
    ]  # an index as a string
    assert list(map(str, asked)) == parts_with_data


def test_a_bare_spec_and_a_device_are_places():
    values = numbers((8, 8))
    with MESH:
        check(
            sw.make_array_from_callback((8, 8), P("x"), lambda i: values[i]), PLACES["rows"], values
        )
    check(
        sw.make_array_from_callback((8, 8), DEVICES[3], lambda i: values[i]), PLACES["one"], values
    )


def test_results_of_a_callback_may_be_anything_like_an_array():
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.asarray([1.0, 2.0], dtype)

    place = PLACES["rows"].with_spec(P("x"))
    for result in (
        Foreign(),
        [1.0, 2.0],
        np.array([1.0, 2.0]),
        lax.add(np.array([0.0, 1.0]), 1.0),
        np.array([2.0, 1.0])[::-1],
    ):
        x = sw.make_array_from_callback((8,), place, lambda i, r=result: r)
        assert x.dtype == np.float32 and np.asarray(x).tolist() == [1, 2] * 4


def test_scalars_make_arrays_without_dimensions():
    x = sw.make_array_from_callback((), PLACES["replicated"], lambda i: 2.5)
    assert i_am(x) == "f32[]" and float(x) == 2.5
    y = sw.make_array_from_callback((), PLACES["one"], lambda i: True)
    assert i_am(y) == "bool[]" and bool(y)


def i_am(x):
    return x.aval.str_short(True)


def test_dtype_converts_the_parts():
    for result in ([1, 2], np.array([1.0, 2.0]), lax.add(np.array([0.0, 1.0]), 1.0)):
        place = PLACES["rows"].with_spec(P("x"))
        x = sw.make_array_from_callback((8,), place, lambda i, r=result: r, np.int8)
        assert x.dtype == np.int8 and np.asarray(x).tolist() == [1, 2] * 4


NAMES = ["bool", "int4", "uint8", "bfloat16", "float8_e4m3fn", "complex64"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(8,), (7,)])
def test_parts_of_every_dtype(name, shape):
    values = np.array([1, 0, 1, 1, 0, 1, 0, 1][: shape[0]]).astype(getattr(ml_dtypes, name, name))
    x = sw.make_array_from_callback(shape, NamedSharding(MESH, P("x")), lambda i: values[i])
    assert x.dtype == values.dtype and np.asarray(x).tobytes() == values.tobytes()


@pytest.mark.parametrize("shape", [(8,), (7,)])
def test_parts_may_be_keys(shape):
    keys = random.split(random.key(3), shape[0])
    place = NamedSharding(MESH, P("x"))
    for dtype in (None, keys.dtype):
        x = sw.make_array_from_callback(shape, place, lambda i: keys[i], dtype)
        assert x.dtype == keys.dtype and x.sharding is place
        np.testing.assert_array_equal(random.key_data(x), random.key_data(keys))
    with pytest.raises(TypeError) as caught:
        sw.make_array_from_callback((4,), place, lambda i: [0], keys.dtype)
    assert str(caught.value) == (
        "make_array_from_callback: the callback returned int32 for index (slice(0, 1, None),); "
        "expected key<fry>. All parts of an array must have the same dtype."
    )


def test_an_array_on_the_right_device_is_not_copied():
    values = numbers((8, 8))
    made = iter(DEVICES)
    given = []

    def part(index):
        given.append(sw.device_put(values[index], next(made)))
        return given[-1]

    x = sw.make_array_from_callback((8, 8), NamedSharding(MESH, P("x", "y")), part)
    check(x, NamedSharding(MESH, P("x", "y")), values)
    assert [s.data.unsafe_buffer_pointer() for s in x.addressable_shards] == [
        g.unsafe_buffer_pointer() for g in given
    ]


@pytest.mark.sweep
def test_an_array_elsewhere_is_brought_to_its_devices():
    values = numbers((8, 8))
    there = sw.device_put(values, DEVICES[6])
    spread = sw.device_put(values, PLACES["columns"])
    for source, name in itertools.product((there, spread), PLACES):
        x = sw.make_array_from_callback((8, 8), PLACES[name], lambda i, s=source: s[i])
        check(x, PLACES[name], values)


def test_a_callback_may_use_its_memory_again():
    for n in (8, 1 << 19):  # small shards are put together, large ones one by one
        scratch = np.zeros(n // 8, np.float32)

        def part(index, scratch=scratch):
            scratch[:] = index[0].start
            return scratch

        x = sw.make_array_from_callback((n,), NamedSharding(MESH, P(("x", "y"))), part)
        assert np.asarray(x)[:: n // 8].tolist() == [i * (n // 8) for i in range(8)]


def test_large_parts_go_one_by_one_and_replicas_of_them_are_right():
    values = numbers((1 << 10, 1 << 10))
    for name in ("rows", "replicated", "both"):
        x = sw.make_array_from_callback(values.shape, PLACES[name], lambda i: values[i])
        check(x, PLACES[name], values)
    ragged = values[:-3, :-1]
    x = sw.make_array_from_callback(ragged.shape, PLACES["both"], lambda i: ragged[i])
    check(x, PLACES["both"], ragged)
    y = sw.jit(lambda a: a + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(y), ragged + 1)


def test_what_a_callback_must_not_give():
    def make(part, **options):
        place = NamedSharding(MESH, P("x"))
        return lambda: sw.make_array_from_callback((8,), place, part, **options)

    assert refused(ValueError, make(lambda i: np.zeros(3))) == (
        "make_array_from_callback: the callback returned shape (3,) for index (slice(0, 2, "
        "None),); expected (2,)."
    )
    types = iter([np.int8, np.float32])
    assert refused(TypeError, make(lambda i: np.zeros(2, next(types)))) == (
        "make_array_from_callback: the callback returned float32 for index (slice(2, 4, None),); "
        "expected int8. All parts of an array must have the same dtype."
    )
    message = refused(
        UnexpectedTracerError,
        lambda: sw.jit(lambda x: make(lambda i: x)())(np.zeros(2, np.float32)),
    )
    assert message == (
        "make_array_from_callback: the part at index (slice(0, 2, None),) is a jit tracer f32[2]. "
        "Arrays are created from concrete values: call it outside of jit, grad and vmap, or "
        "compute the parts with NumPy."
    )
    assert refused(TypeError, make(lambda i: np.array(["a", "b"]))).startswith(
        "dtype <U1 is not supported: it holds text."
    )


def test_a_place_must_be_known():
    def part(index):
        raise AssertionError("not asked")

    make = sw.make_array_from_callback
    assert refused(TypeError, lambda: make((8,), None, part)) == (
        "make_array_from_callback: a sharding is required; got None. Pass a sharding or a device."
    )
    nowhere = NamedSharding(AbstractMesh((4, 2), ("x", "y")), P("x"))
    assert refused(ValueError, lambda: make((8,), nowhere, part)).endswith(
        "is over a mesh without devices, and the value is not on a mesh of this shape. Enter one "
        "with `set_mesh`, or use a sharding over a Mesh."
    )
    assert refused(ValueError, lambda: make((8,), PLACES["both"], part)) == (
        "P('y', 'x') over Mesh('x': 4, 'y': 2) has 2 entries, but the array has only 1 dimension. "
        "Remove entries from the end of the spec."
    )


def test_addends_have_no_index():
    mesh = Mesh(DEVICES[:2], ("i",), axis_types=AxisType.Explicit)
    place = NamedSharding(mesh, P(None, unreduced={"i"}))
    message = refused(ValueError, lambda: sw.make_array_from_callback((2,), place, numbers))
    assert message == (
        f"make_array_from_callback: {place} is unreduced: each device holds a partial sum, "
        "and an index does not identify which one. Use "
        "make_array_from_single_device_arrays."
    )
    addends = [
        sw.device_put(numbers((2,)) * k, d) for k, d in zip((1, 10), mesh.flat_devices, strict=True)
    ]
    x = sw.make_array_from_single_device_arrays((2,), place, addends)
    total = sw.sharding.reshard(x, NamedSharding(mesh, P(None)))
    assert np.asarray(total).tolist() == [11, 22]


def test_concrete_parts_make_a_constant_inside_jit():
    values = numbers((8, 8))
    make, place = sw.make_array_from_callback, PLACES["rows"]
    f = sw.jit(lambda a: a + make((8, 8), place, values.__getitem__))
    np.testing.assert_array_equal(np.asarray(f(sw.device_put(values, PLACES["rows"]))), 2 * values)


# ------------------------------------------------------------------------------- batched callbacks


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PLACES)
def test_a_batched_callback_is_called_once_for_all_devices(name, shape):
    values, calls = numbers(shape), []

    def all_parts(indices):
        calls.append(indices)
        return [values[i] for i in indices]

    x = sw.make_array_from_batched_callback(shape, PLACES[name], all_parts)
    check(x, PLACES[name], values)
    assert calls == [list(PLACES[name].indices(shape))]


@pytest.mark.parametrize("name", PLACES)
def test_a_batched_callback_with_devices_reads_replicas_once(name):
    values, calls = numbers((8, 8)), []

    def all_parts(groups):
        calls.append(groups)
        return [sw.device_put(values[i], d) for i, devices in groups for d in devices]

    x = sw.make_array_from_batched_callback_with_devices((8, 8), PLACES[name], all_parts)
    check(x, PLACES[name], values)
    ((groups),) = calls
    assert [str(i) for i, _ in groups] == distinct(PLACES[name], (8, 8))
    held = PLACES[name].devices_indices_map((8, 8))
    assert {d: i for i, devices in groups for d in devices} == dict(held)


def test_a_batched_callback_must_give_a_part_for_each_device():
    make, place = sw.make_array_from_batched_callback, PLACES["rows"]
    assert refused(ValueError, lambda: make((8,), place, lambda indices: [1, 2])) == (
        "make_array_from_batched_callback: the callback must return a list of 8 parts, one for "
        "each device of this process; got 2."
    )
    assert refused(ValueError, lambda: make((8,), place, lambda indices: None)) == (
        "make_array_from_batched_callback: the callback must return a list of 8 parts, one for "
        "each device of this process; got a NoneType."
    )


# ------------------------------------------------------------ make_array_from_single_device_arrays


@pytest.mark.parametrize("shape", everyday(SHAPES, 8))
@pytest.mark.parametrize("name", PLACES)
def test_shards_in_any_order_make_the_array_again(name, shape):
    values = numbers(shape)
    pieces = [s.data for s in sw.device_put(values, PLACES[name]).addressable_shards]
    for order in (pieces, pieces[::-1]):
        x = sw.make_array_from_single_device_arrays(shape, PLACES[name], order)
        check(x, PLACES[name], values)


def pointers(arrays):
    return [a.unsafe_buffer_pointer() for a in arrays]


def test_single_device_arrays_are_not_copied():
    values = numbers((8, 8))
    pieces = [
        sw.device_put(values[i], d) for d, i in PLACES["both"].devices_indices_map((8, 8)).items()
    ]
    x = sw.make_array_from_single_device_arrays((8, 8), PLACES["both"], pieces)
    assert pointers(s.data for s in x.addressable_shards) == pointers(pieces)
    uneven = sw.device_put(numbers((7,)), NamedSharding(MESH, P("x")))
    pieces = [s.data for s in uneven.addressable_shards]
    y = sw.make_array_from_single_device_arrays((7,), uneven.sharding, pieces)
    full = slice(0, 6)  # two devices have the last shard, which is short and is padded again
    assert pointers(s.data for s in y.addressable_shards)[full] == pointers(pieces)[full]
    x.delete()
    assert refused(RuntimeError, lambda: np.asarray(sw.device_put(x, DEVICES[0]))).startswith(
        "array of type f32[8,8] has been deleted"
    )


def test_keys_and_layouts_are_put_together_too():
    keys = random.split(random.key(0), 8)
    place = NamedSharding(MESH, P("x"))
    pieces = [s.data for s in sw.device_put(keys, place).addressable_shards]
    x = sw.make_array_from_single_device_arrays((8,), place, pieces)
    np.testing.assert_array_equal(random.key_data(x), random.key_data(keys))


@pytest.mark.parametrize(
    "wrong",
    [
        "tracer",
        "no sequence",
        "no array",
        "dtype",
        "asked dtype",
        "number",
        "spread",
        "devices",
        "shape",
        "ragged",
    ],
)
def test_single_device_arrays_are_checked(wrong):
    values = numbers((4,))
    place = NamedSharding(Mesh(DEVICES[:2], ("i",)), P("i"))
    one, two = (sw.device_put(values[2 * i : 2 * i + 2], DEVICES[i]) for i in range(2))
    make = sw.make_array_from_single_device_arrays
    start = "make_array_from_single_device_arrays: "
    where = "NamedSharding(mesh=Mesh('i': 2), spec=P('i'))"
    cases = {
        "tracer": (
            ValueError,
            lambda: sw.jit(lambda a: make((4,), place, [a, two]))(one),
            "arrays[0] is a jit tracer f32[2]. Arrays are created from concrete values: "
            "call it outside of jit, grad and vmap, or compute the parts with NumPy.",
        ),
        "no sequence": (
            TypeError,
            lambda: make((4,), place, one),
            "arrays must be a list or tuple of arrays; got Array.",
        ),
        "no array": (
            TypeError,
            lambda: make((4,), place, [one, values[2:]]),
            "arrays[1] is a ndarray, not an array on a device. Put it there with "
            "`device_put`, or use make_array_from_callback.",
        ),
        "dtype": (
            TypeError,
            lambda: make((4,), place, [one, two.astype(np.int8)]),
            "arrays[1] is i8[2], of dtype int8, but arrays[0] is float32. All parts of an "
            "array must have the same dtype: convert them with `astype`.",
        ),
        "asked dtype": (
            TypeError,
            lambda: make((4,), place, [one, two], dtype=np.int8),
            "arrays[0] is f32[2], of dtype float32, but dtype is int8. All parts "
            "of an array must have the same dtype: convert them with `astype`.",
        ),
        "number": (
            ValueError,
            lambda: make((4,), place, [one]),
            f"got 1 array for an array of shape (4,), but {where} has 2 devices of this "
            "process. Pass one array for each.",
        ),
        "spread": (
            ValueError,
            lambda: make((4,), place, [one, sw.device_put(values[:2], place)]),
            "arrays[1] of type f32[2] is on 2 devices; each part must be on one. Pass the "
            "data of its `addressable_shards`.",
        ),
        "devices": (
            ValueError,
            lambda: make((4,), place, [one, sw.device_put(two, DEVICES[5])]),
            f"the arrays are on devices [0, 5], but {where} has devices [0, 1] of this "
            "process. Move them with `device_put`, one to each device.",
        ),
        "shape": (
            ValueError,
            lambda: make((8,), place, [one, two]),
            "the array on device 0 has shape (2,); the shard of an array of shape (8,) "
            f"there has shape (4,), under {where}.",
        ),
        "ragged": (
            ValueError,
            lambda: make((3,), place, [one, two]),
            "the array on device 1 has shape (2,); the shard of an array of shape (3,) "
            f"there has shape (1,), the end of an uneven dimension, under {where}.",
        ),
    }
    error, fun, message = cases[wrong]
    assert refused(error, fun) == start + message


# ------------------------------------------------------------- make_array_from_process_local_data


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PLACES)
def test_all_data_of_a_single_process(name, shape):
    values = numbers(shape)
    for asked in (None, shape, (None, shape[1])):
        check(
            sw.make_array_from_process_local_data(PLACES[name], values, asked), PLACES[name], values
        )


def test_trees_of_local_data_with_prefixes():
    tree = {"a": numbers((8, 8)), "b": [numbers((4,)), np.int32(3)]}
    place = {"a": PLACES["both"], "b": NamedSharding(MESH, P())}
    x = sw.make_array_from_process_local_data(place, tree, {"a": (8, 8), "b": None})
    check(x["a"], place["a"], tree["a"])
    check(x["b"][0], place["b"], tree["b"][0])
    assert x["b"][1].sharding is place["b"] and int(x["b"][1]) == 3
    y = sw.make_array_from_process_local_data(place["b"], sw.device_put(tree["a"], DEVICES[2]))
    check(y, place["b"], tree["a"])


def test_messages_name_the_leaf():
    data = {"a": numbers((4,)), "b": numbers((3,))}
    make, place = sw.make_array_from_process_local_data, PLACES["replicated"]
    assert refused(ValueError, lambda: make(place, data, {"a": None, "b": (4,)})) == (
        "make_array_from_process_local_data: local_data['b'] of shape (3,): dimension 0 has size "
        "3; expected 4, the global size, or 4, what the devices of this process hold under "
        f"{place}."
    )
    traced = sw.jit(lambda a: make(place, [a]))
    assert refused(UnexpectedTracerError, lambda: traced(data["a"])).startswith(
        "make_array_from_process_local_data: local_data[0] is a jit tracer f32[4]. Arrays are "
        "created from concrete values"
    )


# --------------------------------------------------------------------------------- older spellings


def test_device_put_sharded_stacks_a_part_of_each_device():
    devices = list(DEVICES[2:5])
    trees = [{"a": numbers((2, 3)) + i, "b": i} for i in range(3)]
    x = sw.device_put_sharded(trees, devices)
    np.testing.assert_array_equal(np.asarray(x["a"]), np.stack([t["a"] for t in trees]))
    assert np.asarray(x["b"]).tolist() == [0, 1, 2]
    assert [s.device for s in x["a"].addressable_shards] == devices
    there = [sw.device_put(t["a"], d) for t, d in zip(trees, devices, strict=True)]
    np.testing.assert_array_equal(np.asarray(sw.device_put_sharded(there, devices)), x["a"])
    assert np.asarray(sw.device_put_sharded([1.5], devices[:1])).tolist() == [1.5]


def test_device_put_sharded_wants_one_tree_for_each_device():
    put, devices = sw.device_put_sharded, list(DEVICES[:2])
    assert refused(ValueError, lambda: put([1], devices)) == (
        "device_put_sharded: shards must be a list with a pytree for each of the 2 devices; got 1."
    )
    assert refused(ValueError, lambda: put([1, (1,)], devices)) == (
        "device_put_sharded: shards[1] has the structure (*,), but shards[0] has *. All must have "
        "the same structure."
    )
    assert refused(ValueError, lambda: put([np.ones(2), np.ones(3)], devices)) == (
        "device_put_sharded: shards[1] has shape (3,), but shards[0] has shape (2,). All must have "
        "the same shape."
    )


def test_device_put_replicated_gives_all_to_each():
    devices = list(DEVICES[2:5])
    x = sw.device_put_replicated({"a": numbers((2, 3)), "b": 2.5}, devices)
    np.testing.assert_array_equal(np.asarray(x["a"]), np.stack([numbers((2, 3))] * 3))
    assert np.asarray(x["b"]).tolist() == [2.5] * 3
    assert [s.device for s in x["a"].addressable_shards] == devices
    assert x["a"].addressable_data(1).shape == (1, 2, 3)
    key = sw.random.key(3)
    keys = sw.random.key_data(sw.device_put_replicated(key, devices))
    np.testing.assert_array_equal(keys, np.stack([sw.random.key_data(key)] * 3))


# ------------------------------------------------------------------------------------- all of them


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(sorted(PLACES)),
    st.sampled_from([np.float32, np.int8, bool]),
    st.booleans(),
)
def test_every_way_makes_the_same_array(shape, name, dtype, on_device):
    values, place = numbers(shape, dtype), PLACES[name]
    source = sw.device_put(values, DEVICES[1]) if on_device else values
    x = sw.make_array_from_callback(shape, place, lambda i: source[i])
    pieces = [s.data for s in x.addressable_shards]
    made = [
        x,
        sw.make_array_from_single_device_arrays(shape, place, pieces[::-1]),
        sw.make_array_from_batched_callback(shape, place, lambda all: [source[i] for i in all]),
        sw.make_array_from_process_local_data(place, source),
        sw.device_put(source, place),
    ]
    for y in made:
        assert y.aval is x.aval and y.sharding is place and y.committed
        np.testing.assert_array_equal(np.asarray(y), values)


# ------------------------------------------------------------------------------------------ memory


@pytest.mark.sweep
def test_the_peak_is_the_array_and_one_part():
    peak = run_child("peak_callback", "shardwise")
    assert 1 < peak / PEAK_BYTES < 1.15  # the array and one of eight shards: 1 + 1/8

"""DLPack and the CUDA array interface, both ways, with NumPy, jax and (if installed) PyTorch."""

import ctypes

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.runtime import host
from shardwise.dlpack import from_dlpack
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, DTYPES, PLACES, placed, values

SUBBYTE = {"int2", "int4", "uint2", "uint4", "float4_e2m1fn"}
WHOLE = [d for d in DTYPES if d.name not in SUBBYTE]
KNOWN_TO_NUMPY = [d for d in WHOLE if d.isbuiltin == 1]


def aligned(array, offset=0):
    """A copy of an array that starts this many bytes after a multiple of 64."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class Given:
    """An object to import; `make` is a capsule, or a function from keywords to a capsule."""

    def __init__(self, make, device=(1, 0)):
        self.make, self.device, self.asked = make, device, {}

    def __dlpack__(self, **how):
        self.asked = how
        return self.make(**how) if callable(self.make) else self.make

    def __dlpack_device__(self):
        return self.device


# ------------------------------------------------------------------------------------- to others


@pytest.mark.parametrize("dtype", everyday(KNOWN_TO_NUMPY, 2), ids=str)
def test_numpy_reads_our_memory(dtype):
    for shape in ((), (0,), (3,), (8, 2), (2, 0, 3)):
        x = snp.ones(shape, dtype)
        view = np.from_dlpack(x)
        assert view.dtype == dtype and view.shape == shape and not view.flags.writeable
        np.testing.assert_array_equal(view, np.ones(shape, dtype))
        if x.size:
            assert view.ctypes.data == x.unsafe_buffer_pointer()
    x = placed("another", "even", dtype)[1]
    np.testing.assert_array_equal(np.from_dlpack(x), values(8, dtype))


def capsule_name(capsule):
    function = ctypes.pythonapi.PyCapsule_GetName
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return function(capsule)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_capsules_have_versions_where_those_are_known(dtype):
    x = sw.device_put(values(8, dtype))
    assert capsule_name(x.__dlpack__()) == b"dltensor"
    assert capsule_name(x.__dlpack__(max_version=(0, 8))) == b"dltensor"
    versioned = b"dltensor_versioned" if host.EXPORTS_VERSIONS else b"dltensor"
    for version in ((1, 0), (1, 1), (2, 0)):
        capsule = x.__dlpack__(max_version=version)
        assert capsule_name(capsule) == versioned
        np.testing.assert_array_equal(from_dlpack(Given(capsule)), x)
    np.testing.assert_array_equal(from_dlpack(Given(x.__dlpack__())), x)


def test_what_numpy_is_given_outlives_the_array():
    for end in (lambda x: x.delete(), sw.jit(lambda a: a * 2, donate_argnums=0)):
        x = snp.arange(1000.0)
        view = np.from_dlpack(x)
        end(x)
        np.testing.assert_array_equal(view, np.arange(1000.0))


def test_copies_for_others():
    x = snp.arange(8.0)
    copied = np.from_dlpack(x, copy=True)
    assert copied.ctypes.data != x.unsafe_buffer_pointer()
    for how in ({}, {"max_version": (1, 0)}):
        again = from_dlpack(Given(x.__dlpack__(copy=True, **how)))
        assert again.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
        same = from_dlpack(Given(x.__dlpack__(copy=False, **how)), copy=False)
        assert same.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
        np.testing.assert_array_equal(again, x)


def test_where_arrays_say_they_are():
    for place in ("one", "another"):
        x = placed(place, "even")[1]
        assert x.__dlpack_device__() == (1, 0)
        assert x.__dlpack__(dl_device=(1, 0)) is not None
    assert message(BufferError, snp.ones(2).__dlpack__, dl_device=(2, 0)) == (
        "array of type f32[2] is on the DLPack device (1, 0), not on (2, 0). Use `device_put` "
        "first, or `numpy.asarray` for the host."
    )


@pytest.mark.parametrize("place", ["replicated", "partly replicated", "sharded", "reversed"])
def test_arrays_over_many_devices_are_refused(place):
    x = placed(place, "uneven")[1]
    for use, what in (
        (np.from_dlpack, "DLPack device"),
        (lambda v: v.__dlpack__(), "DLPack device"),
        (lambda v: v.__dlpack_device__(), "DLPack device"),
        (lambda v: v.unsafe_buffer_pointer(), "single address"),
    ):
        assert message(BufferError, use, x) == (
            f"array of type f32[9,2] is sharded over 8 devices, so it has no {what}. Take one of "
            "its `addressable_shards`, or gather it with `device_put`."
        )
    shard = x.addressable_data(0)
    np.testing.assert_array_equal(np.from_dlpack(shard), np.asarray(shard))


def test_what_dlpack_has_no_form_for():
    for name in sorted(SUBBYTE):
        assert message(BufferError, snp.ones(3, getattr(ml_dtypes, name)).__dlpack__) == (
            f"DLPack does not support elements of {name}, of less than a byte. Convert the array "
            "with `astype` first."
        )
    assert message(BufferError, sw.random.key(0).__dlpack__) == (
        "DLPack does not support keys; got an array of type key<fry>[]. Use "
        "shardwise.random.key_data(x) for the underlying integers."
    )


def test_the_interface_of_cuda_is_not_there_on_the_cpu():
    x = snp.ones(2)
    assert not hasattr(x, "__cuda_array_interface__")
    with pytest.raises(AttributeError):
        _ = x.__cuda_array_interface__


# ----------------------------------------------------------------------------------- from others


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_aligned_memory_of_numpy_is_taken_as_it_is(dtype):
    for shape in ((8, 2), (0, 3), ()):
        source = aligned(np.ones(shape, dtype))
        x = from_dlpack(source)
        assert x.dtype == dtype and x.shape == shape
        np.testing.assert_array_equal(x, source)
        if x.size:
            assert x.unsafe_buffer_pointer() == source.ctypes.data
        assert from_dlpack(source, copy=False).shape == shape
        copied = from_dlpack(source, copy=True)
        assert not x.size or copied.unsafe_buffer_pointer() != source.ctypes.data


def test_memory_stays_while_it_is_used():
    source = aligned(np.arange(1000, dtype=np.float32))
    expected = source.copy()
    x = from_dlpack(source)
    del source
    np.empty(1000, np.float32)[:] = -1
    np.testing.assert_array_equal(x, expected)


STRIDED = {
    "behind": (lambda a: aligned(a, 16), "at an address that is not a multiple of 64 bytes"),
    "transposed": (lambda a: aligned(a).T, "with strides (4, 8), not in row-major order"),
    "every other": (lambda a: aligned(a)[::2], "with strides (16, 4), not in row-major order"),
    "backwards": (lambda a: aligned(a)[::-1], "with strides (-8, 4), not in row-major order"),
    "broadcast": (
        lambda a: np.broadcast_to(aligned(a[0]), (8, 2)),
        "with strides (0, 4), not in row-major order",
    ),
    "wide": (lambda a: a.astype(np.float64), "of dtype float64, and 64-bit types are disabled"),
}


@pytest.mark.parametrize("kind", STRIDED)
def test_other_memory_is_copied_once(kind):
    make, why = STRIDED[kind]
    source = make(values(8))
    x = from_dlpack(source)
    np.testing.assert_array_equal(x, source)
    assert x.dtype == np.float32 and x.unsafe_buffer_pointer() != source.ctypes.data
    assert message(BufferError, from_dlpack, source, copy=False) == (
        f"from_dlpack: the data is {why}; it must be copied, which copy=False forbids."
    )
    if source.flags.writeable:
        source[...] = 0
        assert float(x.sum()) > 0


def test_64_bits_where_they_are_on():
    source = aligned(np.arange(3.0))
    with sw.enable_x64(True):
        x = from_dlpack(source)
        assert x.dtype == np.float64 and x.unsafe_buffer_pointer() == source.ctypes.data


def test_read_only_memory_and_old_capsules():
    source = aligned(values(8))
    source.flags.writeable = False
    if host.EXPORTS_VERSIONS:
        assert from_dlpack(source, copy=False).unsafe_buffer_pointer() == source.ctypes.data
    source.flags.writeable = True

    class Old:
        def __dlpack__(self, stream=None):
            return source.__dlpack__()

        def __dlpack_device__(self):
            return 1, 0

    assert from_dlpack(Old(), copy=False).unsafe_buffer_pointer() == source.ctypes.data


def test_places_for_what_is_imported():
    source = aligned(values(8))
    x = from_dlpack(source)
    assert x.devices() == {DEVICES[0]} and not x.committed
    for name, place in PLACES.items():
        y = from_dlpack(source, device=place)
        assert y.committed and y.sharding is place, name
        np.testing.assert_array_equal(y, source)
    assert from_dlpack(source, device=DEVICES[3]).devices() == {DEVICES[3]}
    with sw.default_device(DEVICES[2]):
        assert from_dlpack(source).devices() == {DEVICES[2]}
    assert message(BufferError, from_dlpack, source, device=PLACES["sharded"], copy=False) == (
        f"from_dlpack: the data is on the host, not on {PLACES['sharded']}; it must be copied, "
        "which copy=False forbids."
    )


def test_our_own_arrays_are_given_back():
    x = snp.ones(3)
    assert from_dlpack(x) is x
    assert from_dlpack(x, copy=True).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    assert from_dlpack(x, device=DEVICES[1]).devices() == {DEVICES[1]}
    assert snp.from_dlpack is from_dlpack


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_between_jax_and_us(dtype):
    theirs = jnp.asarray(values(8, dtype))
    mine = from_dlpack(theirs)
    assert type(mine) is sw.Array and mine.dtype == dtype
    assert mine.unsafe_buffer_pointer() == theirs.unsafe_buffer_pointer()
    assert mine.tobytes() == theirs.tobytes()
    x = sw.device_put(values(8, dtype))
    back = jnp.from_dlpack(x)
    assert back.dtype == dtype and back.tobytes() == x.tobytes()


def test_what_cannot_be_imported():
    assert message(TypeError, from_dlpack, 3.0) == (
        "from_dlpack takes an object with `__dlpack__` and `__dlpack_device__`; got one of type "
        "float. Bare capsules, the older protocol, do not specify their device."
    )
    assert message(BufferError, from_dlpack, Given(None, (10, 0))) == (
        "from_dlpack takes arrays on devices of this process; got one on a DLPack device of kind "
        "10, number 0. Copy it to the CPU first."
    )


def relabelled(array, code, bits, lanes=1):
    capsule = array.__dlpack__()
    tensor = host._tensor(capsule)
    tensor.code, tensor.bits, tensor.lanes = code, bits, lanes
    return capsule


@pytest.mark.parametrize("code, bits, lanes", [(17, 4, 1), (2, 32, 2), (3, 64, 1), (0, 4, 1)])
def test_types_that_are_not_known_are_refused(code, bits, lanes):
    assert message(
        BufferError, from_dlpack, Given(relabelled(aligned(values(8)), code, bits, lanes))
    ) == (
        f"DLPack elements with type code {code}, {bits} bits and {lanes} lanes have no "
        "corresponding dtype."
    )


# --------------------------------------------------------------------------------------- PyTorch


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_between_torch_and_us(torch, dtype):
    if not hasattr(torch, dtype.name):
        pytest.skip(f"torch has no {dtype}")
    x = sw.device_put(values(64, dtype))
    tensor = torch.from_dlpack(x)
    assert tensor.dtype is getattr(torch, dtype.name)
    assert tensor.data_ptr() == x.unsafe_buffer_pointer() and tuple(tensor.shape) == (64, 2)
    mine = from_dlpack(tensor.clone())
    assert mine.dtype == dtype and mine.tobytes() == x.tobytes()
    own = tensor.clone()
    if own.data_ptr() % 64 == 0:
        assert from_dlpack(own, copy=False).unsafe_buffer_pointer() == own.data_ptr()
    np.testing.assert_array_equal(snp.asarray(own), x)
    np.testing.assert_array_equal(sw.jit(lambda a: a)(own), x)


def test_tensors_that_torch_does_not_give(torch):
    for tensor in (torch.ones(3, requires_grad=True), torch.ones(3, 3).to_sparse()):
        with pytest.raises(BufferError, match="Can't export"):
            from_dlpack(tensor)
    strided = torch.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(from_dlpack(strided), strided.numpy())

"""Arrays as buffers: `memoryview` and readers of bytes. Python classes support it since 3.12."""

from __future__ import annotations

import hashlib
import sys

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp

NEW = pytest.mark.skipif(sys.version_info < (3, 12), reason="Python asks no classes for buffers")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="arrays are buffers")
def test_older_pythons_have_no_buffers_of_classes():
    with pytest.raises(TypeError) as caught:
        memoryview(jnp.ones(3))  # pyright: ignore[reportArgumentType] (what is tested)
    assert str(caught.value) == "memoryview: a bytes-like object is required, not 'Array'"


@NEW
def test_memory_is_shared_and_read_only():
    x = sw.device_put(X, sw.devices()[0])
    view = memoryview(x)
    assert view.readonly and view.c_contiguous and view.tolist() == X.tolist()
    flat = np.frombuffer(x, np.float32)
    np.testing.assert_array_equal(flat, X.ravel())
    assert flat.ctypes.data == x.unsafe_buffer_pointer() and not flat.flags.writeable
    assert bytes(x) == X.tobytes()
    assert hashlib.sha256(x).digest() == hashlib.sha256(X).digest()
    x.delete()
    assert view.tolist() == X.tolist()


@NEW
def test_donation_leaves_views_as_they_are():
    x = jnp.asarray(X)
    view = memoryview(x)
    sw.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert view.tolist() == X.tolist()


@NEW
@pytest.mark.parametrize(
    "dtype, format",
    [
        ("float32", "f"),
        ("float16", "e"),
        ("int8", "b"),
        ("uint16", "H"),
        ("bool", "?"),
        ("complex64", "Zf"),
    ],
)
def test_formats(dtype, format):
    view = memoryview(jnp.ones((2, 0), dtype))
    assert (view.format, view.shape) == (format, (2, 0))
    view = memoryview(jnp.ones((), dtype))
    assert (view.format, view.shape) == (format, ())


@NEW
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4])
def test_numpy_reads_what_has_no_format(dtype):
    x = jnp.ones(3, dtype)
    with pytest.raises(BufferError) as caught:
        memoryview(x)
    bits = {"bfloat16": 16, "float8_e5m2": 8}.get(x.dtype.name)
    assert str(caught.value) == (
        "the buffer protocol does not support elements of int4, of less than a byte. Convert the "
        "array with `astype` first."
        if bits is None
        else f"the buffer protocol has no format for elements of {x.dtype}. Use `x.view('uint{bits}')` "
        "for their bits, or `numpy.asarray(x)`."
    )
    assert np.asarray(x).dtype == dtype
    if bits is not None:
        assert memoryview(x.view(f"uint{bits}")).itemsize == bits // 8


@NEW
def test_what_has_no_buffer():
    count = len(sw.devices())
    mesh = sw.make_mesh((count,), ("x",))
    spread = sw.device_put(
        np.arange(2.0 * count, dtype=np.float32),
        sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec("x")),
    )
    gone = jnp.ones(3)
    gone.delete()
    rows = [
        (
            sw.random.key(0),
            BufferError,
            "the buffer protocol does not support keys; got an array of type key<fry>[]. Use "
            "shardwise.random.key_data(x) for the underlying integers.",
        ),
        (
            gone,
            RuntimeError,
            "array of type f32[3] has been deleted: `delete()` was called on it. To use it longer, "
            "make a copy beforehand: `x.copy()`.",
        ),
    ]
    if count > 1:
        rows.append(
            (
                spread,
                BufferError,
                f"array of type f32[{2 * count}@x] is sharded over {count} devices, so it has no "
                "single buffer. Take one of its `addressable_shards`, or gather it with `device_put`.",
            )
        )
    for x, kind, message in rows:
        with pytest.raises(kind) as caught:
            memoryview(x)
        assert str(caught.value) == message
    np.testing.assert_array_equal(np.asarray(spread), np.arange(2.0 * count))

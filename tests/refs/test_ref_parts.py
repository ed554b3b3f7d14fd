"""Parts of parts, and refs with another shape, order of dimensions or dtype."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise.kernels import call, ds
from tests.helpers.errors import message

X = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)


def rows():
    return jnp.arange(3) * 2


def packed(x, dtype):
    """NumPy's bits of rows: those of several narrow rows are one wide row, the lowest first."""
    ratio = np.dtype(dtype).itemsize / x.dtype.itemsize
    if ratio < 1:
        parts = x[..., None].view(dtype)  # [rows, columns, parts]
        return np.moveaxis(parts, -1, -2).reshape(-1, x.shape[-1])
    split = x.reshape(-1, int(ratio), x.shape[-1])
    return np.ascontiguousarray(np.moveaxis(split, -2, -1)).view(dtype)[..., 0]


# The same view of a ref and of an array, and the index that is read and written.
VIEWS = {
    "parts": (lambda r: r.at[2:7].at[1], lambda x: x[2:7][1], ...),
    "steps": (lambda r: r.at[1::2].at[ds(1, 3)], lambda x: x[1::2][1:4], (slice(None), 2)),
    "part of rows": (lambda r: r.at[rows()].at[:, 1:3], lambda x: x[[0, 2, 4]][:, 1:3], 1),
    "rows of a part": (lambda r: r.at[1:].at[rows()], lambda x: x[1:][[0, 2, 4]], ...),
    "reshape": (lambda r: r.reshape(4, -1), lambda x: x.reshape(4, 12), (slice(1, 3), 5)),
    "reshaped part": (lambda r: r.at[2:4].reshape((12,)), lambda x: x[2:4].reshape(12), 7),
    "part of an image": (lambda r: r.reshape(48).at[5:9], lambda x: x.reshape(48)[5:9], 2),
    "transpose": (lambda r: r.transpose(1, 0).at[2], lambda x: x.T[2], ds(3, 2)),
    "T": (lambda r: r.T, lambda x: x.T, 4),
    "narrower": (lambda r: r.bitcast("int16"), lambda x: packed(x, "int16"), (slice(2, 5), 1)),
    "wider": (
        lambda r: r.bitcast("int16").bitcast("int32"),
        lambda x: packed(packed(x, "int16"), "int32"),
        3,
    ),
    "same width": (lambda r: r.bitcast("int32"), lambda x: x.view(np.int32), 0),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("in_kernel", [False, True])
def test_views_are_read_and_written_like_arrays(name, in_kernel):
    view, wanted, index = VIEWS[name]
    is_slice = hasattr(index, "stride")
    known = slice(index.start, index.start + index.size) if is_slice else index
    before = wanted(X)
    after = np.array(before)
    after[known] += before.dtype.type(1)

    def use(ref):
        at = view(ref)
        assert (at.shape, at.dtype, at.ndim, at.size) == (
            before.shape,
            before.dtype,
            before.ndim,
            before.size,
        )
        read = at[...]
        at[index] = at[index] * at.dtype.type(1)
        at[index] += at.dtype.type(1)
        return read

    if in_kernel:

        def body(x, read, last):
            last[...] = x[...]
            read[...] = use(last)

        out = [sw.ShapeDtypeStruct(before.shape, before.dtype), X]
        read, last = call(body, out)(X)
    else:
        ref = sw.new_ref(X)
        read = use(ref)
        last = ref[...]
    np.testing.assert_array_equal(read, before)
    np.testing.assert_array_equal(wanted(np.asarray(last)), after)
    assert (np.asarray(last) != X).sum() <= after[known].size


def test_kernels_slice_with_steps_from_traced_starts():
    def body(start, x, out):
        out[...] = x[ds(start[0], 3, 2), ds(None)] + x[ds(3)]

    found = call(body, sw.ShapeDtypeStruct((3, 6), "float32"))(jnp.array([1]), X)
    np.testing.assert_array_equal(found, X[1:6:2] + X[:3])


def copy_from(view):
    return lambda: call(lambda x, out: view(x)[...], X)(X)


MISTAKES = [
    (
        copy_from(lambda x: x.reshape(5, -1)),
        ValueError,
        "reshape: Ref{f32[8,6]} has 48 elements, which is not a [5, -1].",
    ),
    (
        copy_from(lambda x: x.transpose(0, 2)),
        ValueError,
        "transpose: expected the numbers of the 2 dimensions of Ref{f32[8,6]} in some order; got "
        "(0, 2).",
    ),
    (
        copy_from(lambda x: x.at[0].bitcast("int16")),
        ValueError,
        "bitcast: elements of int16 have another size than those of Ref{f32[6]}, which needs rows to "
        "split or combine: a last dimension but one.",
    ),
    (
        copy_from(lambda x: x.at[:3].bitcast("int16").at[1:].bitcast("float32")),
        ValueError,
        "bitcast: 2 rows become one of float32, but Ref{i16[5,6]} has 5 rows.",
    ),
    (
        copy_from(lambda x: x.at[ds(0, 4, 0)]),
        IndexError,
        "Ref{f32[8,6]}: the size of a slice is an integer, and its stride at least 1; got "
        "Slice(start=0, size=4, stride=0). Mask the elements beyond a traced size.",
    ),
]


@pytest.mark.parametrize("f, kind, text", MISTAKES)
def test_mistakes(f, kind, text):
    assert message(kind, f) == text


def test_one_kind_of_slices():
    assert kernels.ds is sw.ds

"""The messages of the library's functions for wrong arguments."""

import numpy as np

import shardwise as sw
from shardwise.kernels import library
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import messages


def in_ring(f, *shapes):
    """Traces a function over a ring of two devices."""
    args = [sw.ShapeDtypeStruct(shape, np.dtype("float32")) for shape in shapes]
    mesh = sw.make_mesh((2,), ("i",), devices=sw.devices()[:2])
    sw.eval_shape(sw.shard_map(f, mesh=mesh, in_specs=(P(),) * len(args), out_specs=P()), *args)


NAMES = {
    "lib": library,
    "sw": sw,
    "np": np,
    "in_ring": in_ring,
    "f": lambda *shape: np.zeros(shape, np.float32),
    "n": lambda *shape: np.zeros(shape, np.int32),
    "x": np.ones((3, 4), np.float32),
    "y": np.ones((4, 5), np.float32),
    "i": np.zeros(4, np.int32),
}

test_messages = messages(
    """
    lib.softmax(1.0)
        ValueError: softmax: x is ~f32[], which has no axis.
    lib.softmax(x, blocks=(8, 0))
        ValueError: softmax: blocks is 2 positive integers, (rows, columns); got (8, 0) of type
        tuple. Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    lib.log_softmax(x, blocks=8)
        ValueError: log_softmax: blocks is 2 positive integers, (rows, columns); got 8 of type int.
        Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    sw.jit(lambda x: lib.softmax(x, check=True))(x)
        ValueError: kernel softmax: check=True runs the kernel step by step or several times, so
        that it cannot be traced. Check it outside of `jit` and other transforms, or with the
        function around it: `kernels.checked(f)`.
    lib.layer_norm(i)
        TypeError: layer_norm: x is i32[4]; expected floats. Cast it.
    lib.rms_norm(x, np.ones(3, np.float32))
        ValueError: rms_norm: weight is f32[3]; expected the shape [4], since x is f32[3,4].
    lib.layer_norm(x, blocks=True)
        ValueError: layer_norm: blocks is a positive integer, (rows); got True of type bool.
        Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    lib.cumsum(x + 1j)
        TypeError: cumsum: x is c64[3,4]; expected floats or integers.
    lib.cumsum(x > 0)
        TypeError: cumsum: x is bool[3,4]; expected floats or integers.
    lib.matmul(x, y[0])
        ValueError: matmul: y is f32[5]; expected a matrix. Use `vmap` for more dimensions.
    lib.matmul(x, x)
        ValueError: matmul: x, f32[3,4], has 4 columns, and y, f32[3,4], has 3 rows; they must be
        equal.
    lib.matmul(x + 1j, y)
        TypeError: matmul: x is c64[3,4]; expected floats or integers.
    lib.matmul(x, y, bias=x[0])
        ValueError: matmul: bias is f32[4]; expected the shape [5] for a result of shape [3, 5].
    lib.matmul(x, y, x_scale=y[0])
        ValueError: matmul: x_scale is f32[5]; expected the shape [3] for a result of shape [3, 5].
    lib.matmul(x, y, residual=x)
        ValueError: matmul: residual is f32[3,4]; expected the shape [3, 5] for a result of shape
        [3, 5].
    lib.matmul(x, y, blocks=(8, 8))
        ValueError: matmul: blocks is 3 positive integers, (rows, columns, inner); got (8, 8) of
        type tuple. Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    lib.histogram(x, 3)
        TypeError: histogram: indices is f32[3,4]; expected integers.
    lib.histogram(i, 3.0)
        ValueError: histogram: length is the size of the result, an integer; got 3.0 of type float.
    lib.histogram(i, 3, x)
        ValueError: histogram: weights is f32[3,4]; expected the shape of the indices, [4].
    lib.scatter_add(1.0, i, x)
        ValueError: scatter_add: x is ~f32[], which has no rows.
    lib.scatter_add(x, i, x)
        ValueError: scatter_add: updates is f32[3,4]; expected the shape [4, 4]: that of indices,
        and that of a row of x, f32[3,4].
    lib.flash_attention(f(4, 2, 8), f(4, 2, 8), f(4, 2, 8))
        ValueError: flash_attention: the arguments must be (B, T, N, H), (B, S, K, H) and
        (B, S, K, H); got f32[4,2,8], f32[4,2,8], f32[4,2,8].
    lib.flash_attention(f(1, 4, 2, 8), f(1, 4, 2, 8), n(1, 4, 2, 8))
        ValueError: flash_attention: the arguments must be of one floating-point dtype; got
        f32[1,4,2,8], f32[1,4,2,8], i32[1,4,2,8].
    lib.flash_attention(f(1, 4, 3, 8), f(1, 4, 2, 8), f(1, 4, 2, 8))
        ValueError: flash_attention: the arguments must be of a number of query heads that the key
        heads divide; got f32[1,4,3,8], f32[1,4,2,8], f32[1,4,2,8].
    lib.flash_attention(*[f(1, 4, 2, 8)] * 3, window=-1)
        ValueError: flash_attention: window is a number of positions, or a pair of them, to the left
        and to the right; got -1 of type int.
    lib.flash_attention(*[f(1, 4, 2, 8)] * 3, lengths=n(2))
        ValueError: flash_attention: lengths must be integers of shape (1,); got i32[2].
    lib.flash_attention(*[f(1, 4, 2, 8)] * 3, segment_ids=f(1, 4))
        ValueError: flash_attention: segment_ids must be integers of shape (1, 4); got f32[1,4].
    lib.flash_attention(*[f(1, 4, 2, 8)] * 3, blocks=16)
        ValueError: flash_attention: blocks is 2 positive integers, (queries, keys); got 16 of type
        int. Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    lib.grouped_matmul(f(4, 5), f(2, 6, 7), n(2))
        ValueError: grouped_matmul: the arguments must be floats (m, k) and (g, k, n) of one dtype,
        and integers (g,); got f32[4,5], f32[2,6,7], i32[2].
    lib.grouped_matmul(f(4, 6), f(2, 6, 7), n(2), blocks=(16, 0, 16))
        ValueError: grouped_matmul: blocks is 3 positive integers, (rows, columns, inner); got
        (16, 0, 16) of type tuple. Compilers of GPUs take powers of two; those of TPUs multiples of
        8 and 128.
    lib.paged_attention(f(4, 8), f(2, 9, 16, 8), f(2, 9, 16, 8), n(4), n(4, 3))
        ValueError: paged_attention: the arguments must be (B, N, H), twice (K, pages, page size,
        H), and integers (B,) and (B, P); got f32[4,8], f32[2,9,16,8], f32[2,9,16,8], i32[4], i32[4,3].
    lib.paged_attention(f(4, 3, 8), f(2, 9, 16, 8), f(2, 9, 16, 8), n(4), n(4, 3))
        ValueError: paged_attention: the arguments must be of a number of query heads that the key
        heads divide; got f32[4,3,8], f32[2,9,16,8], f32[2,9,16,8].
    in_ring(lambda x: lib.ring_all_gather(x, "i", tiled=True), ())
        ValueError: ring_all_gather: a scalar cannot be concatenated; pass `tiled=False`.
    in_ring(lambda x: lib.ring_reduce_scatter(x, "i"), (3, 4))
        ValueError: ring_reduce_scatter: the first dimension must be 2, the size of 'i'; got
        f32[3,4].
    in_ring(lambda x: lib.ring_reduce_scatter(x, "i", tiled=True), (3, 4))
        ValueError: ring_reduce_scatter: the first dimension must be a multiple of 2, the size of
        'i'; got f32[3,4].
    in_ring(lambda x, w: lib.collective_matmul(x, w, "i"), (3, 4), (5, 4))
        ValueError: collective_matmul: x and w must be floats (m, k) and (k, n) of one dtype; got
        f32[3,4] and f32[5,4].
    """,
    NAMES,
)

"""The messages of the library's functions for wrong arguments."""

import numpy as np

import shardwise as sw
from shardwise.kernels import library
from tests.helpers.errors import messages

NAMES = {
    "lib": library,
    "sw": sw,
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
    """,
    NAMES | {"np": np},
)

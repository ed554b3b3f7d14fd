"""What kernels for GPUs cannot do: the message says why, where, and what to write instead."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise.kernels import VMEM, Block, CompilerParams, atomic_add, atomic_max, call, ds
from tests.helpers.errors import line
from tests.helpers.targets import compiled, needs_cuda
from tests.kernels.kernels import like, matmul

X = np.ones((32, 32), np.float32)
GPUS = "cannot be compiled for GPUs:"
ELSE = "or use another function on GPUs: `lax.platform_dependent`."


def lowered(f, *args):
    """Lowers for GPUs, which needs none, and no compiler for them."""
    return sw.jit(f).trace(*args).lower(lowering_platforms=("cuda",))


def of(f, x: Any = X, dtype: Any = np.float32, shape=None):
    """Lowers the launch of a function of one block."""

    def body(x, out):
        out[...] = f(x)

    lowered(call(body, like(*(shape or x.shape), dtype=dtype)), x)


def ref(body, dtype: Any = np.float32, **options):
    """Lowers the launch of a body of two refs."""
    return lowered(call(body, like(32, 32, dtype=dtype), **options), X.astype(dtype))


def printing(x, out):
    sw.debug.print("{}", x[0, 0])
    out[...] = x[...]


def scattering(x, out):
    out[jnp.arange(4) * 3] = x[:4]


def rising(x, out):
    atomic_max(out, ..., x[...])


def adding(x, out):
    atomic_add(out, ..., x[...])


def copying(x, out, semaphore):
    copy = kernels.make_async_copy(x, out, semaphore)
    copy.start()
    copy.wait()


def product(size, *blocks, **params):
    a, b, c = blocks
    f = call(
        matmul,
        like(size, size),
        grid=(("i", size // a), ("j", size // b), ("k", size // c)),
        in_specs=[Block((a, c), lambda i, j, k: (i, k)), Block((c, b), lambda i, j, k: (k, j))],
        out_specs=Block((a, b), lambda i, j, k: (i, j)),
        scratch=[VMEM((a, b), np.float32)],
        parallel=("i", "j"),
        params=CompilerParams(**params),
    )
    x = np.ones((size, size), np.float32)
    return f, x, x


def traced_grid():
    def f(n, x):
        return call(lambda x, out: out.set(x[...]), like(32, 32), grid=(n,), name="f")(x)

    lowered(f, np.int32(3), X)


MISTAKES = {
    "an op without a form": (
        lambda: of(lambda x: jnp.sort(x[...])),
        f"kernel body {GPUS} the op sort is not supported by Triton. Sort outside of the "
        f"kernel, {ELSE}",
    ),
    "a function of matrices": (
        lambda: of(lambda x: jnp.linalg.inv(x[...])),
        f"kernel body {GPUS} the op lu is not supported by Triton. Compute it outside of the "
        f"kernel, and pass the result, {ELSE}",
    ),
    "printing": (
        lambda: ref(printing),
        f"kernel printing {GPUS} the op debug_callback is not supported by Triton. Write the "
        f"values to a result, and print that, {ELSE}",
    ),
    "copies": (
        lambda: ref(copying, scratch=[kernels.SemaphoreType.DMA]),
        f"kernel copying {GPUS} the op kernel_copy is not supported by Triton. Asynchronous "
        "copies and semaphores are for TPUs; read refs, which loads in loops prefetch, " + ELSE,
    ),
    "a product of large and small matrices": (
        lambda: of(lambda x: lax.dot(x[:8], jnp.tile(x[...], (1, 4))), shape=(8, 128)),
        f"kernel body {GPUS} dot_general of [8,32] and [32,128]: tensor cores multiply matrices "
        "whose sizes are at least 16, and other products are for at most 16384 pairs of elements. "
        "Use larger blocks.",
    ),
    "batched products": (
        lambda: of(
            lambda x: jnp.matmul(x[...].reshape(2, 16, 32), x[...].reshape(2, 32, 16)).reshape(
                32, 16
            ),
            shape=(32, 16),
        ),
        f"kernel body {GPUS} dot_general with batch dimensions. Make the batch an axis of the grid, "
        "with blocks of one element along it (`None`), or use `vmap` of the launch.",
    ),
    "products of int32": (
        lambda: of(lambda x: lax.dot(x[...], x[...]), X.astype(np.int32), np.int32),
        f"kernel body {GPUS} dot_general of int32: tensor cores multiply integers of dtype int8.",
    ),
    "an algorithm of products": (
        lambda: of(
            lambda x: lax.dot(x[...], x[...], precision=lax.DotAlgorithmPreset.BF16_BF16_F32_X9)
        ),
        f"kernel body {GPUS} dot_general with the algorithm BF16_BF16_F32_X9. Use a Precision, such "
        "as HIGHEST.",
    ),
    "a reshape": (
        lambda: of(lambda x: x[...].reshape(24, 20), X[:20, :24], shape=(24, 20)),
        f"kernel body {GPUS} reshape from [20, 24] to [24, 20]: sizes that are merged or split must "
        "be powers of two, except for the first.",
    ),
    "a complex argument": (
        lambda: of(lambda x: x[...], X.astype(np.complex64), np.complex64),
        f"kernel body {GPUS} argument x is c64[32,32], and Triton has no values of its dtype. "
        "Convert it outside of the kernel.",
    ),
    "a value of another dtype": (
        lambda: of(lambda x: x[...].astype(ml_dtypes.int4).astype(np.float32)),
        f"kernel body {GPUS} a value of type i4[32,32] is not supported by Triton. Convert to "
        "another dtype outside of the kernel.",
    ),
    "other bits": (
        lambda: of(lambda x: lax.bitcast_convert_type(x[...], np.int16)[..., 0].astype("float32")),
        f"kernel body {GPUS} bitcast_convert_type to a dtype with another number of bits.",
    ),
    "a value without elements": (
        lambda: of(lambda x: x[ds(0, 0)].sum() + x[...]),
        f"kernel body {GPUS} the op kernel_load has a result without elements, f32[0,32].",
    ),
    "an atomic extremum of floats": (
        lambda: ref(rising, name="f"),
        f"kernel f {GPUS} atomic_max on out, f32[32,32]: GPUs have atomic operations on "
        "integers of 32 and 64 bits, and the sum of floats. Use such a dtype.",
    ),
    "an atomic sum of bytes": (
        lambda: ref(adding, np.int8, name="f"),
        f"kernel f {GPUS} atomic_add on out, i8[32,32]: GPUs have atomic operations on "
        "integers of 32 and 64 bits, and the sum of floats. Use such a dtype.",
    ),
    "writing at an array of indices": (
        lambda: ref(scattering),
        f"kernel scattering {GPUS} the op scatter is supported by Triton only at arrays of indices "
        "for every dimension of a ref. Use `ds` for the others, or loop over them.",
    ),
    "reading at two arrays of indices": (
        lambda: of(lambda x: (x[...] + 1)[jnp.arange(4), jnp.arange(4)], shape=(4,)),
        f"kernel body {GPUS} indices that are arrays are supported along one dimension, as a vector "
        "of valid indices. Read slices in a loop, `ref[ds(i, n)]`, or index outside of the kernel.",
    ),
    "a grid of a traced size": (
        traced_grid,
        "kernel f: its grid has a size that is traced. GPUs are launched with fixed sizes: launch "
        "the largest grid, pass the size as a prefetched argument, and skip the programs beyond it "
        "with `when`.",
    ),
    "warps": (
        lambda: ref(lambda x, out: out.set(x[...]), params=CompilerParams(num_warps=3), name="f"),
        "kernel f: num_warps must be a power of two up to 32, and num_stages at least 1; got 3 and "
        "3.",
    ),
    "scratch memory": (
        lambda: lowered(*product(1024, 512, 512, 16)),
        "kernel matmul: its scratch memory, and the blocks of results that it adds to, are 1.0 MiB "
        "in registers, and a GPU's core has 256.0 KiB. Use smaller blocks.",
    ),
    "shared memory": (
        lambda: lowered(*product(1024, 128, 256, 128)),
        "kernel matmul: a product keeps 384.0 KiB of its operands in shared memory, with "
        "num_stages=3, and no GPU has more than 227.0 KiB. Use smaller blocks, or fewer stages: "
        "`params=CompilerParams(num_stages=2)`.",
    ),
    "a large block": (
        lambda: of(lambda x: x[...], np.ones((2048, 1024), np.float32)),
        "kernel body: a value has type f32[2048,1024], and Triton's tensors have at most 1,048,576 "
        "elements, with sizes rounded up to powers of two. Use smaller blocks, or slices in a loop: "
        "`ref[ds(i * n, n)]`.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    run, text = MISTAKES[name]
    with pytest.raises((NotImplementedError, ValueError)) as caught:
        run()
    assert str(caught.value) == text


def test_errors_name_the_line_of_the_op():
    with pytest.raises(NotImplementedError) as caught:
        of(lambda x: jnp.sort(x[...]) + 1)  # this line
    (note,) = caught.value.__notes__
    assert note == f"The op was called at {__file__}:{line('# this line')} (<lambda>)"


@needs_cuda
def test_shared_memory_of_the_machine():
    f, x, _ = product(1024, 64, 64, 64, num_stages=8)
    with pytest.raises(RuntimeError) as caught:
        compiled(f, "h100", x, x)
    assert str(caught.value) == (
        "RESOURCE_EXHAUSTED: matmul does not fit 'h100:1': a kernel needs 240.0 KiB of shared "
        "memory, and 227.0 KiB are available. Use smaller blocks, or fewer stages: "
        "`params=CompilerParams(num_stages=2)`."
    )

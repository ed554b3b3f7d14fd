"""Errors of kernels that cannot be compiled for TPUs. They need no compiler."""

import re

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise._src.kernels.on_tpu.mosaic_limits import too_large
from shardwise._src.running.program_out_of_memory import ProgramTooLarge
from shardwise._src.runtime.compiler.mosaic import failure_in
from shardwise._src.targets.tpus import TPUS
from shardwise._src.types.array_type import array_type
from shardwise.kernels import ANY, SMEM, VMEM, Block, CompilerParams, call, ds, program_id
from tests.helpers.errors import line
from tests.helpers.mosaic import kernels_in
from tests.helpers.targets import compiled, needs_tpu
from tests.kernels.kernels import like, normal
from tests.kernels.mosaic_cases import BF16

X = normal(16, 128)


def copy(x, out):
    out[...] = x[...]


def blocks(shape, block, index=lambda i: (i, 0), grid=2, dtype=np.float32, space=None, **p):
    """A launch that copies an array block by block."""
    b = Block(block, index, space)
    f = call(copy, like(*shape, dtype=dtype), grid=grid, in_specs=[b], out_specs=b, **p)
    return f, np.zeros(shape, dtype)


def rejected(f, *args):
    with pytest.raises(NotImplementedError) as caught:
        kernels_in(f, *args)
    return str(caught.value), getattr(caught.value, "__notes__", [])


TILES = [
    (
        ((16, 128), (4, 128)),
        "kernel copy: the block of argument 0, f32[16,128], has the shape (4, 128), with 4 elements "
        "along dimension 0. TPUs copy tiles of 8 x 128 elements of f32: a block has a multiple of 8 "
        "there, or the array's size 16. Use a size of 8.",
    ),
    (
        ((16, 200), (8, 100), lambda i: (0, i)),
        "kernel copy: the block of argument 0, f32[16,200], has the shape (8, 100), with 100 "
        "elements along dimension 1. TPUs copy tiles of 8 x 128 elements of f32: a block has a "
        "multiple of 128 there, or the array's size 200. Use a size of 128.",
    ),
    (
        ((8, 5, 128), (8, None, 128), lambda i: (0, i, 0), 5),
        "kernel copy: the block of argument 0, f32[8,5,128], has the shape (8, None, 128), with one "
        "element along dimension 1. TPUs copy tiles of 8 x 128 elements of f32: a block has a "
        "multiple of 8 there, or the array's size 5. Use a size of 5, or transpose the array so "
        "that this dimension comes before the last two.",
    ),
    (
        ((64, 128), (8, 128), lambda i: (i, 0), 8, np.int8),
        "kernel copy: the block of argument 0, i8[64,128], has the shape (8, 128), with 8 elements "
        "along dimension 0. TPUs copy tiles of 32 x 128 elements of i8: a block has a multiple of "
        "32 there, or the array's size 64. Use a size of 32.",
    ),
    (
        ((256,), (64,), lambda i: (i,), 4),
        "kernel copy: the block of argument 0, f32[256], has the shape (64,), with 64 elements "
        "along dimension 0. TPUs copy tiles of 128 elements of f32: a block has a multiple of 128 "
        "there, or the array's size 256. Use a size of 128.",
    ),
    (
        ((16, 128), (8, 128), lambda i: (i, 0), 2, np.float16),
        "kernel copy: argument 0 has the dtype f16, which kernels on TPUs cannot have. Use "
        "bfloat16.",
    ),
    (
        ((16, 128), (8, 128), lambda i: (i, 0), 2, np.float32, ANY),
        "kernel copy: the block of argument 0, f32[16,128], is a part of the array in ANY, and "
        "refs there are whole arrays. Use `Block(space=ANY)` and copy parts of the ref.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("args", "message"), TILES, ids=range(len(TILES)))
def test_blocks_and_dtypes(args, message):
    f, x = blocks(*args)
    assert rejected(f, x) == (message, [])


def stored(compute):
    """A kernel that stores a function of its argument."""

    def body(x, out):
        out[...] = compute(x)

    return call(body, like(16, 128))


OPS = [
    (
        lambda x: jnp.sort(x[...]),  # sorted
        "kernel body: [sort] is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Compute it outside of the kernel and pass the result as an argument.",
    ),
    (
        lambda x: jnp.repeat(x[...][::2], 2, 0),  # every second
        "kernel body: [slice] with strides is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Slice a ref: `ref[ds(start, size, stride)]`.",
    ),
    (
        lambda x: lax.scan(lambda c, v: (c + v, None), jnp.zeros((16, 128)), x[...][:, None])[0],
        "kernel body: [scan] over arrays is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Use `fori_loop`, and index refs: `ref[i]`, "
        "`ref[ds(i * 8, 8)]`.",
    ),
    (
        lambda x: jnp.argmax(x[...].astype(np.int32), 1)[:, None] + x[...],  # of integers
        "kernel body: [argmax] of the dtype int32 is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Convert to float32 before.",
    ),
    (
        lambda x: lax.dot_general(x[...], x[...], (((0, 1), (0, 1)), ((), ()))) + x[...],  # all
        "kernel body: [dot_general] of f32[16,128] and f32[16,128] over 2 dimensions and with 0 "
        "batch dimensions is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Products are of two matrices of one dtype, with at most one batch "
        "dimension.",
    ),
    (
        lambda x: x[jnp.arange(16) // 2],  # gathered
        "kernel body: [gather] is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Index refs by integers, slices and `ds`; blocks may be chosen by "
        "prefetched indices: `Block(shape, lambda i, rows: (rows[i], 0))`.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("compute", "message"), OPS, ids=range(len(OPS)))
def test_ops_without_a_form(compute, message):
    text, notes = rejected(stored(compute), X)
    assert text == message
    place = compute.__code__.co_firstlineno
    assert notes == [f"The op was called at {__file__}:{place} (<lambda>)"]


def test_refs_in_other_spaces():
    def far(x, out):
        out[...] = x[...]  # far

    f = call(far, like(16, 128), in_specs=[Block(space=ANY)])
    assert rejected(f, X) == (
        "kernel far: [kernel_load] of a ref in ANY is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "Give it a block in VMEM, or copy it there "
        "with `make_async_copy`.",
        [f"The op was called at {__file__}:{line('# far')} (far)"],
    )

    def scalars(s, x, out):
        out[...] = x[...] * s[...]

    f = call(scalars, like(16, 128), in_specs=[Block(space=SMEM), Block()])
    assert rejected(f, np.ones((128,), np.float32), X)[0] == (
        "kernel scalars: [kernel_load] of [128] elements of a ref in SMEM is not supported by Mosaic, "
        "the compiler of kernels for TPUs. "
        "SMEM is for scalars: "
        "`ref[i, j]`."
    )


def test_wide_counters():
    def summed(x, out):
        def step(i, total):  # with int64
            return total + x[ds(i * 8, 8)]

        out[...] = lax.fori_loop(0, 2, step, jnp.zeros((8, 128), np.float32))

    with sw.enable_x64(True):
        found = rejected(call(summed, like(8, 128)), X)
    assert found == (
        "kernel summed: a value has the dtype i64, which kernels on TPUs cannot have. Use int32.",
        [f"The op was called at {__file__}:{line('# with int64') + 3} (summed)"],
    )


def test_aliases_that_are_read():
    def added(x, out):
        out[...] += x[...]

    b, other = Block((8, 128), lambda i: (i, 0)), Block((8, 128), lambda i: (1 - i, 0))
    f = call(added, like(16, 128), grid=2, in_specs=[other], out_specs=b, aliases={0: 0})
    assert rejected(f, X)[0] == (
        "kernel added: result 0 begins with the values of argument 0, and the kernel may read it "
        "before writing it. On TPUs both need the same blocks then, whose indices are indices of "
        "programs or constants. Write the result first, or read from the argument instead."
    )


def memory(machine, f, *args):
    """Why a kernel does not fit a machine."""
    (kernel,) = kernels_in(f, *args)
    _, prefetched, _ = kernel.launch.parts(args)
    types = [array_type(x.shape, x.dtype) for x in prefetched]
    return too_large(kernel.launch, kernel.kernel.scoped, types, TPUS[machine], machine)


def test_memory():
    large = blocks((4096, 1280), (1024, 1280), grid=4)
    assert memory("tpu-v5e", *large) == (
        "kernel copy needs 20.0 MiB of VMEM, and kernels have 16.0 MiB on 'tpu-v5e': 10.0 MiB for "
        "two blocks of argument 0, f32[1024,1280]; 10.0 MiB for two blocks of result 0, "
        "f32[1024,1280]. Use smaller blocks, or raise the limit, up to 128.0 MiB: "
        "`params=CompilerParams(vmem_limit_bytes=20971520)`."
    )
    assert memory("tpu-v6e", *large) == ""
    raised = CompilerParams(vmem_limit_bytes=20971520)
    assert memory("tpu-v5e", *blocks((4096, 1280), (1024, 1280), grid=4, params=raised)) == ""
    huge = blocks((32768, 1280), (8192, 1280), grid=4)
    assert memory("tpu-v5p", *huge).endswith("f32[8192,1280]. Use smaller blocks.")

    def added(s, x, out, held):
        out[...] = x[...] + s[program_id(0), 0].astype(np.float32)

    scratch = [VMEM((8, 128), np.float32)]
    f = call(added, like(16, 128), grid=2, in_specs=[Block((8, 128), lambda i, s: (i, 0))],
             out_specs=Block((8, 128), lambda i, s: (i, 0)), scratch=scratch, prefetch=1)  # fmt: skip
    assert memory("tpu-v5e", f, np.zeros((2048, 3), np.int32), X) == (
        "kernel added needs 1.0 MiB of SMEM, and kernels have 1.0 MiB on 'tpu-v5e': 1.0 MiB for "
        "prefetched argument 0, i32[2048,3]. Pass large arrays in VMEM, or in parts by blocks."
    )


def test_what_the_compiler_says():
    """Its messages without what users do not know: only the reason, and the user's line."""
    message = (
        "INTERNAL: Mosaic failed to compile TPU kernel: E2003: CompileTimeMosaicUnproven: cannot "
        "statically prove that index in dimension 0 is a multiple of 8 See https://openxla.org/x "
        'for more details.\n\nat location: loc("a.py":21:0)\n\nThe MLIR operation involved:\n...'
    )
    reason, place = failure_in(message)
    assert reason == (
        "cannot statically prove that index in dimension 0 is a multiple of 8. Along the last two "
        "dimensions, what is loaded, stored or copied begins at tiles. If a traced start does so, "
        "use `ds(multiple_of(start, n), size)`: `experimental.pallas.multiple_of`."
    )
    assert place == "a.py:21"
    assert failure_in("Mosaic failed to compile TPU kernel: Bad thing.\nmore") == ("Bad thing.", "")
    assert failure_in("RESOURCE_EXHAUSTED: out of memory") is None


@needs_tpu
def test_starts_between_tiles():
    def rows(start, x, out):
        out[...] = x[ds(start[0], 16)]  # between tiles

    f = call(rows, like(16, 128, dtype=BF16), in_specs=[Block(space=SMEM), Block()])
    with pytest.raises(NotImplementedError) as caught:
        compiled(f, "tpu-v5e", like(1, dtype=np.int32), like(64, 128, dtype=BF16))
    assert str(caught.value) == (
        "a kernel cannot be compiled for TPUs. Mosaic's error: cannot "
        "statically prove that index in dimension 0 is a multiple of 8. Along the last two "
        "dimensions, what is loaded, stored or copied begins at tiles. If a traced start does so, "
        "use `ds(multiple_of(start, n), size)`: `experimental.pallas.multiple_of`."
    )
    assert caught.value.__notes__ == [f"The op was called at {__file__}:{line('# between tiles')}"]


@needs_tpu
def test_memory_of_values():
    """What only the compiler knows: how much memory the values of a body need."""

    def squared(x, out):
        out[...] = (x[...] @ x[...].T) @ x[...]

    b = Block((960, 1024), lambda i: (i, 0))
    f = call(squared, like(1920, 1024), grid=2, in_specs=[b], out_specs=b)
    with pytest.raises(ProgramTooLarge) as caught:
        compiled(f, "tpu-v5e", like(1920, 1024))
    text = re.sub(r"[\d.]+ MiB", "N MiB", str(caught.value))
    assert text == (
        "RESOURCE_EXHAUSTED: squared does not fit 'tpu-v5e:1x1': a kernel needs N MiB of VMEM with "
        "the values of its body, and kernels have N MiB. Use smaller blocks, or raise the limit: "
        "`params=CompilerParams(vmem_limit_bytes=…)`."
    )

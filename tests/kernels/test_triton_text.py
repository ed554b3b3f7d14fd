"""The text of kernels for GPUs: entire texts of some, and what others must contain.

Regenerate the files in tests/kernels/golden_triton that changed on purpose with

    SHARDWISE_UPDATE_GOLDENS=1 pytest tests/kernels/test_triton_text.py

and review their diff.
"""

from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise._src.runtime.compiler.triton_modules import serialized
from shardwise._src.runtime.platforms import ROCM
from shardwise.experimental.pallas.triton import elementwise_inline_asm
from shardwise.kernels import Block, CompilerParams, Element, call, ds, program_id, when
from tests.helpers.errors import fails
from tests.helpers.triton_numpy import OutsideError, kernel_of, triton_values
from tests.kernels.kernels import CASES, like
from tests.kernels.test_triton_values import flash, product
from tests.test_goldens import UPDATE, difference

FOLDER = Path(__file__).parent / "golden_triton"
ROWS = Block((4,), lambda i: (i,))


def ones(*shape):
    return np.ones(shape, np.float32)


TEXTS = {
    "softmax": (CASES["softmax"].launch, CASES["softmax"].args),
    "matmul": (lambda: product(40, 64, 64, (16, 32, 32)), (ones(40, 64), ones(64, 64))),
    "attention": (lambda: flash(True, 16), (ones(2, 64, 16),) * 3),
}


@pytest.mark.parametrize("name", TEXTS)
def test_golden(name):
    launch, args = TEXTS[name]
    new, path = kernel_of(launch(), *args).text, FOLDER / f"{name}.mlir"
    if UPDATE:
        path.write_text(new)
    old = path.read_text()
    assert new == old, difference(name, old, new)


def test_the_first_and_last_turns_are_outside_of_the_loop():
    f = product(32, 32, 64, (16, 16, 16))
    x, y = ones(32, 64), ones(64, 32)
    for g, args in (
        (f, (x, y)),
        (sw.vmap(f), (x[None], y[None])),
        (lambda *xs: sw.jvp(f, xs, xs)[1], (x, y)),
    ):
        text = kernel_of(g, *args).text
        assert "scf.for" in text and "scf.if" not in text


def test_grids():
    def launch(*grid, **options):
        f = call(lambda out: out.set(jnp.zeros(4)), like(4), grid=grid, **options)
        return kernel_of(f).grid

    assert launch(3, 4, parallel=(0, 1)) == (4, 3, 1)
    assert launch(3, 4, 1, parallel=(0, 2)) == (3, 1, 1)
    assert launch(2, 3, 4, 5, parallel=range(4)) == (120, 1, 1)
    assert launch(2, 70000, 3, parallel=range(3)) == (420000, 1, 1)
    assert launch() == (1, 1, 1)


def test_axes_that_are_proven_to_be_independent_are_parallel():
    f = call(lambda x, out: out.set(x[...]), like(8), grid=2, in_specs=ROWS, out_specs=ROWS)
    kernel = kernel_of(f, ones(8))
    assert kernel.grid == (2, 1, 1) and "scf.for" not in kernel.text


def test_parameters():
    f = call(
        lambda x, out: out.set(x[...]), like(8), params=CompilerParams(num_warps=2, num_stages=1)
    )
    kernel = kernel_of(f, ones(8))
    assert (kernel.num_warps, kernel.num_stages) == (2, 1)


def test_barriers_are_between_writes_and_reads_of_memory():
    def body(x, out):
        out[...] = x[...]
        out[:4] = out[ds(4, 4)] * 2

    assert kernel_of(call(body, like(8)), ones(8)).text.count("gpu.barrier") == 2

    def once(x, out):
        @when(program_id(0) > 0)
        def _():
            out[...] = x[...]

    f = call(once, like(8), grid=2, in_specs=ROWS, out_specs=ROWS)
    assert "gpu.barrier" not in kernel_of(f, ones(8)).text


def test_barriers_after_loops_and_branches_that_may_not_run():
    def looping(n, x, out, total):
        out[...] = x[...]
        total[0] = lax.fori_loop(0, n[0], lambda i, t: t + out[ds(4, 4)].sum(), 0.0)
        total[1] = out[ds(2, 4)].sum()

    def branching(n, x, out, total):
        out[...] = x[...]

        @when(n[0] > 0)
        def _():
            total[0] = out[ds(4, 4)].sum()

        total[1] = out[ds(2, 4)].sum()

    for body in (looping, branching):
        text = kernel_of(call(body, (like(8), like(2))), np.ones(1, np.int32), ones(8)).text
        inside, _, after = text.rpartition("\n    }\n")
        assert inside.count("gpu.barrier") == 1 and after.count("gpu.barrier") == 1


def test_large_arrays_have_offsets_of_64_bits():
    big = sw.ShapeDtypeStruct((1 << 18, 1 << 14), np.float32)
    rows = Block((2, 1024), lambda i: (i, 0))
    f = call(lambda x, out: out.set(x[...]), like(2, 1024), grid=4, in_specs=rows, parallel=[0])
    text = kernel_of(f, big).text
    assert "arith.extsi" in text and "!tt.ptr<f32>, i64" in text


def test_functions_of_each_platform():
    f = call(lambda x, out: out.set(jnp.tanh(x[...])), like(8))
    assert "__nv_tanhf" in kernel_of(f, ones(8)).text
    kernel = kernel_of(f, ones(8), platform=ROCM)
    assert "__ocml_tanh_f32" in kernel.text and serialized(kernel.text)
    lowered = sw.jit(f).trace(ones(8)).lower(lowering_platforms=("rocm",)).as_text()
    assert "__gpu$xla.gpu.triton" in lowered


def test_accesses_outside_are_found():
    block = Block((Element(4),), lambda i: (4 * i + 1,))
    f = call(lambda x, out: out.set(x[...]), like(8), grid=2, in_specs=block, out_specs=ROWS)
    with pytest.raises(
        OutsideError, match=r"program \(1, 0, 0\) accesses element 8 of 8: .*tt.load"
    ):
        triton_values(f, ones(8))


def test_texts_are_verified():
    with pytest.raises(ValueError, match=r"the module in Triton's dialect is not valid: .*"):
        serialized("module { tt.func @f(%x: i32) { tt.return %x : i32 } }")


PRECISIONS = {None: "tf32", "high": "tf32x3", "highest": "ieee", "BF16_BF16_F32_X3": "bf16x3"}


@pytest.mark.parametrize("name", PRECISIONS)
def test_precisions_of_products(name):
    f = call(lambda x, out: out.set(lax.dot(x[...], x[...], precision=name)), like(32, 32))
    assert f"inputPrecision = {PRECISIONS[name]} :" in kernel_of(f, ones(32, 32)).text


def test_assembly():
    """Its text is as the user wrote it; other platforms have an error."""
    asm = "tanh.approx.f32 $0, $2;\n\tmov.f32 $1, $2;"

    def body(x, first, second):
        first[...], second[...] = elementwise_inline_asm(
            asm, args=[x[...]], constraints="=f,=f,f", pack=1, result_shape_dtypes=[like(16)] * 2
        )

    f = call(body, (like(16), like(16)), name="assembly")
    text = kernel_of(f, ones(16)).text
    serialized(text)
    assert 'tt.elementwise_inline_asm "tanh.approx.f32 $0, $2;\\0A\\09mov.f32 $1, $2;"' in text
    assert '{constraints = "=f,=f,f", packed_element = 1 : i32, pure = true}' in text
    with pytest.raises(NotImplementedError, match="cannot be compiled for 'cpu'"):
        f(ones(16))
    with pytest.raises(ValueError, match=r"arrays of one shape; got f32\[16\], f32\[8\]\.$"):
        options = {"constraints": "=f,f", "pack": 1, "result_shape_dtypes": [like(8)]}
        elementwise_inline_asm(asm, args=[ones(16)], **options)
    with pytest.raises(ValueError, match=r"expected at least one result; got none\.$"):
        elementwise_inline_asm(
            asm, args=[ones(16)], constraints="f", pack=1, result_shape_dtypes=[]
        )


def test_assembly_without_arguments_and_with_any_characters():
    def body(out, shape=()):
        code = '// "name", a\\b, ±\nmov.u32 $0, %laneid;'
        integer = [sw.ShapeDtypeStruct(shape, np.int32)]
        options = {"constraints": "=r", "pack": 1, "result_shape_dtypes": integer}
        (found,) = elementwise_inline_asm(code, args=[], **options)
        out[...] = jnp.full(16, found)

    text = kernel_of(call(body, sw.ShapeDtypeStruct((16,), np.int32), name="lanes")).text
    serialized(text)
    code = r"// \22name\22, a\5Cb, \C2\B1\0Amov.u32 $0, %laneid;"
    options = '{constraints = "=r", packed_element = 1 : i32, pure = true}'
    assert f'tt.elementwise_inline_asm "{code}" {options} -> i32' in text
    fails(
        ValueError,
        "elementwise_inline_asm: the results of code without arguments are scalars; got i32[16]. "
        "Pass an array of that shape.",
        lambda: body(None, (16,)),
    )

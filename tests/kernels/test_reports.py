"""Reports of launches: counts against a loop over the grid and by hand, texts, advice, messages."""

import itertools
import json
import math

import numpy as np
import pytest

import shardwise as sw
from shardwise import explain, kernels, lax, nn
from shardwise import numpy as jnp
from shardwise._src.explain.hlo import read
from shardwise._src.explain.work import CallWork, work_of
from shardwise._src.jit.costs import with_stated_costs
from shardwise._src.kernels import launch_work
from shardwise._src.runtime.platforms import CPU, CUDA
from shardwise.experimental import pallas
from shardwise.kernels import (
    ANY,
    VMEM,
    Block,
    CostEstimate,
    Element,
    SemaphoreType,
    call,
    ds,
    make_async_copy,
    program_id,
    run_scoped,
    when,
)
from tests.helpers.errors import message
from tests.helpers.targets import needs_cuda, needs_tpu, on
from tests.kernels.kernels import CASES, gather_rows, like, matmul, matmul_in_blocks

F32 = 4  # bytes


def of(f, *args, machine="cpu"):
    (found,) = kernels.report(f, machine=machine)(*args)
    return found


def case(name, machine="cpu"):
    return of(CASES[name].launch(), *CASES[name].args, machine=machine)


# -- blocks --

INDICES = {
    "rows": ((4, 3), (6, 9), (2, 3), lambda i, j: (i, 0)),
    "columns": ((4, 3), (6, 9), (2, 3), lambda i, j: (0, j)),
    "all": ((2, 3), (6, 9), (3, 3), lambda i, j: (i, j)),
    "ragged": ((2, 3), (5, 7), (3, 3), lambda i, j: (i, j)),
    "there and back": ((6,), (12,), (4,), lambda i: (i % 3,)),
    "halved": ((6,), (12,), (4,), lambda i: (i // 2,)),
    "windows": ((3,), (24,), (Element(10, padding=(1, 1)),), lambda i: (8 * i - 1,)),
    "one": ((3,), (8,), (8,), lambda i: (0,)),
    "squeezed": ((5, 3), (5, 10), (None, 4), lambda i, j: (i, j)),
}


@pytest.mark.parametrize("name", INDICES)
def test_blocks_are_counted_like_in_a_loop_over_the_grid(name):
    grid, shape, block, index = INDICES[name]
    f = call(
        lambda x, out: None, like(1), grid=grid, in_specs=Block(block, index), out_specs=Block()
    )
    found = of(f, np.zeros(shape, np.float32)).operands[0]
    moved = reused = size = 0
    before = None
    for ids in itertools.product(*map(range, grid)):
        at = index(*ids)
        if at == before:
            reused += 1
            continue
        moved, before = moved + 1, at
        ends = []
        for i, n, entry in zip(at, shape, block, strict=True):
            is_element = isinstance(entry, Element)
            width = entry.block_size if is_element else entry or 1
            start = i if is_element else i * width
            ends.append(min(start + width, n) - max(start, 0))
        size += math.prod(ends) * F32
    assert (found.moved, found.reused, found.bytes) == (moved, reused, size)


def test_a_product_moves_the_blocks_of_its_operands_for_each_program():
    found = case("matmul")
    assert [(o.moved, o.reused, o.blocks) for o in found.operands] == [
        (24, 0, 8),
        (24, 0, 12),
        (6, 18, 6),
    ]
    assert found.bytes == (24 + 24 + 6) * 8 * 8 * F32


def test_a_mapped_launch_is_another_axis_of_the_grid():
    case = CASES["matmul"]
    x, y = case.args
    found = of(sw.vmap(case.launch(), in_axes=(0, None)), np.stack([x] * 3), y)
    assert found.grid == {"0": 3, "i": 2, "j": 3, "k": 4}
    assert [o.moved for o in found.operands] == [72, 72, 18]
    assert found.flops == {"f32": 3 * 2 * 16 * 32 * 24}


def test_prefetched_arrays_decide_which_blocks_are_moved():
    rows = np.array([2, 2, 0, 0], np.int32)
    x = np.zeros((3, 8), np.float32)
    found = of(lambda x: gather_rows()(rows, x), x)
    assert [(o.moved, o.reused) for o in found.operands] == [(2, 2), (4, 0)]
    assert of(lambda rows: gather_rows()(2 - rows, x), rows).operands[0].moved == 2
    unknown = of(gather_rows(), like(4, dtype=np.int32), like(3, 8))
    assert [(o.moved, o.reused) for o in unknown.operands] == [(4, 0), (4, 0)]
    assert unknown.notes == (launch_work.UNKNOWN,) and not found.notes


def test_the_grid_may_be_known_by_its_arguments_only():
    def f(n, x):
        rows = Block((2,), lambda i: (i,))
        return call(lambda x, out: None, like(8), grid=n, in_specs=rows, out_specs=rows)(x)

    x = np.zeros(8, np.float32)
    known, unknown = of(f, np.int32(3), x), of(f, like(dtype=np.int32), x)
    assert known.grid == {"0": 3} and known.operands[0].moved == 3 and not known.notes
    assert unknown.grid == {"0": 1} and unknown.notes == (launch_work.UNKNOWN,)


def test_large_grids_are_counted_by_their_beginning(monkeypatch):
    monkeypatch.setattr(launch_work, "MOST_PROGRAMS", 6)
    found = case("matmul")
    assert found.notes == ("in proportion to the first 6 programs of the grid",)
    assert found.flops == {"f32": 2 * 16 * 32 * 24}
    assert [(o.moved, o.blocks) for o in found.operands[:2]] == [(24, 8), (24, 12)]


# -- operations --


def test_operations_by_hand():
    product, softmax, flash = case("matmul"), case("softmax"), case("flash")
    assert product.flops == {"f32": 2 * 16 * 32 * 24}
    assert product.elementwise == 24 * 8 * 8  # of the sums over k
    assert softmax.elementwise == 4 * 24 * 32 and softmax.transcendentals == 24 * 32
    assert flash.flops == {"f32": 2 * 2 * 2 * 12 * 16 * 8}
    assert flash.transcendentals == 6 * 4 * (4 * 4 + 4)


def test_branches_and_loops_count_as_often_as_programs_run_them():
    def causal(x, y, out):
        @when(program_id(0) == 2)
        def _():
            out[...] = jnp.exp(x[...])

        def step(i, total):
            return total + x[...] @ y[ds(i * 4, 4)].T

        out[:, :4] = lax.fori_loop(0, program_id(0) + 1, step, jnp.zeros((4, 4)))

    rows = Block((4, 8), lambda i: (i, 0))
    f = call(causal, like(16, 8), grid=4, in_specs=[rows, Block()], out_specs=rows)
    found = of(f, np.ones((16, 8), np.float32), np.ones((16, 8), np.float32))
    assert found.flops == {"f32": (1 + 2 + 3 + 4) * 2 * 4 * 4 * 8}
    assert found.transcendentals == 4 * 8 and not found.notes


def test_loops_of_branches_that_do_not_run_need_not_end():
    def body(x, out):
        n = program_id(0)

        @when(n > 0)
        def _():
            def halve(state):
                n, y = state
                return n // 2, jnp.exp(y)

            out[...] = lax.while_loop(lambda state: state[0] != 1, halve, (n, x[...]))[1]

    rows = Block((2,), lambda i: (i,))
    f = call(body, like(16), grid=8, in_specs=rows, out_specs=rows)
    found = of(f, np.ones(16, np.float32))
    assert found.transcendentals == 2 * (0 + 1 + 1 + 2 + 2 + 2 + 2) and not found.notes


def test_the_index_of_a_branch_may_be_too_large():
    def body(x, out):
        def work(f):
            return lambda y: f(y)

        out[...] = lax.switch(program_id(0), [work(jnp.exp), work(jnp.sign), work(jnp.sin)], x[...])

    rows = Block((2,), lambda i: (i,))
    f = call(body, like(10), grid=5, in_specs=rows, out_specs=rows)
    found = of(f, np.ones(10, np.float32))
    assert (found.transcendentals, found.elementwise) == (2 + 3 * 2, 2)


def test_what_depends_on_elements_is_an_upper_limit():
    def body(x, out):
        @when(x[0] > 0)
        def _():
            out[...] = jnp.exp(x[...])

    found = of(call(body, like(8)), np.ones(8, np.float32))
    assert found.transcendentals == 8 and found.notes == (launch_work.UNKNOWN,)


def test_memory_that_is_not_moved_in_blocks_counts_by_accesses():
    def body(x, out):
        out[...] = x[ds(program_id(0) * 2, 2)] + x[0]

    rows = Block((2,), lambda i: (i,))
    f = call(body, like(8), grid=4, in_specs=Block(space=ANY), out_specs=rows)
    found = of(f, np.ones(8, np.float32))
    assert found.bytes == 4 * (2 + 1) * F32 + 8 * F32


def test_copies_count_for_what_they_move():
    def body(x, out, buffer, semaphore):
        copy = make_async_copy(x.at[ds(program_id(0) * 2, 2)], buffer, semaphore)
        copy.start()
        copy.wait()
        out[...] = 2 * buffer[...]

    f = call(
        body,
        like(8),
        grid=4,
        in_specs=Block(space=ANY),
        out_specs=Block((2,), lambda i: (i,)),
        scratch=[VMEM((2,), np.float32), SemaphoreType.DMA],
    )
    found = of(f, np.ones(8, np.float32))
    assert found.bytes == 2 * 8 * F32 and found.elementwise == 8
    assert "argument x  f32[8]  8      any        -       -   32 B" in str(found)


def test_costs_that_users_state_replace_those_of_the_program():
    f = call(lambda x, out: None, like(8), cost=CostEstimate(1000, 20, 64))
    found = of(f, np.ones(8, np.float32))
    assert (found.flops, found.transcendentals, found.bytes) == ({"f32": 1000}, 20, 64)
    assert found.notes == ("operations and bytes are those of `cost`",)


# -- texts --


@pytest.fixture(autouse=True)
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def test_the_text_of_a_product_on_a_tpu():
    assert str(kernels.report(matmul_in_blocks(), machine="tpu-v5e")(*CASES["matmul"].args)) == (
        """\
kernel matmul: 24 programs (i=2, j=3, k=4), at least 0.017 µs on 'tpu-v5e', bound by memory
              array       block  space  moved  reused    bytes
  argument x  f32[16,32]  8, 8   vmem      24       0  6.0 KiB
  argument y  f32[32,24]  8, 8   vmem      24       0  6.0 KiB
  out         f32[16,24]  8, 8   vmem       6      18  1.5 KiB
  24.6 kflop in products of f32, 1.54 kflop in other arithmetic and 0 transcendental functions
  13.5 KiB moved, 1.9 flop per byte
  fast memory of a program: 28.0 KiB of 16.0 MiB"""
    )


def test_the_text_of_a_launch_with_few_programs_on_a_gpu():
    assert str(case("ragged", "h100")) == (
        """\
kernel ragged: 15 programs (5, 3), at least 0.001 µs on 'h100', bound by the number of programs
              array      block    space  moved  reused  bytes
  argument x  f32[5,10]  None, 4  vmem      15       0  240 B
  out         f32[5,10]  None, 4  vmem      15       0  240 B
  180 flop in other arithmetic and 0 transcendental functions
  480 B moved, 0.38 flop per byte
  fast memory of a program: 32 B of 483.0 KiB
  advice: 15 programs for 132 cores: the others are idle. Use smaller blocks."""
    )


SUMS = call(  # programs with different j write to one block
    lambda x, out, held: None,
    like(48, 8),
    grid=(6, 8),
    in_specs=Block((8, 8), lambda i, j: (i, j)),
    out_specs=Block((8, 8), lambda i, j: (i, 0)),
    scratch=[VMEM((8, 8), np.float32)],
    parallel=[0],
)


def test_axes_that_are_not_independent_are_loops_on_gpus():
    x = np.zeros((48, 64), np.float32)
    assert of(SUMS, x, machine="h100").advice == (
        "6 programs along the independent axes of the grid for 132 cores: the others are idle. Use "
        "smaller blocks, or declare as `parallel` more axes whose programs may run in any order."
    )
    found = of(SUMS, x, machine="tpu-v5e")
    assert found.programs == 48 and found.bound == "memory"


def test_axes_that_are_provably_independent_count_as_declared_ones():
    def copied(**options):
        rows = Block((8, 8), lambda i, j: (i, j))
        f = call(
            lambda x, out: out.set(x[...]), like(480, 64), grid=(60, 8), in_specs=rows,
            out_specs=rows, **options,
        )  # fmt: skip
        return of(f, np.zeros((480, 64), np.float32), machine="h100")

    found, declared = copied(), copied(parallel=(0, 1))
    assert (found.seconds, found.bound) == (declared.seconds, declared.bound)
    assert found.bound == "memory" and not found.advice


def blocks(shape, block, grid, index, **options):
    spec = Block(block, index)
    f = call(lambda x, out: None, like(1), grid=grid, in_specs=spec, out_specs=Block(), **options)
    return f, np.zeros(shape, np.float32)


ADVICE = [
    (
        blocks((4096, 4096), (2048, 2048), (2, 2), lambda i, j: (i, j)),
        "tpu-v5e",
        "A program needs 32.0 MiB of VMEM, with two buffers for each block; 'tpu-v5e' has 16.0 MiB. "
        "Use smaller blocks.",
    ),
    (
        blocks((33, 128), (32, 128), (2,), lambda i: (i, 0)),
        "cpu",
        "48% of the elements in the blocks of argument x are beyond the end of f32[33,128]. Use "
        "blocks whose sizes divide its own.",
    ),
    (
        blocks((64, 128), (8, 128), (8, 8), lambda i, j: (j, 0)),
        "tpu-v6e",
        "Each block of argument x is moved 8 times. Use larger blocks along the axes of the grid "
        "that it does not depend on, or make these the last axes.",
    ),
    (blocks((64, 128), (8, 128), (8, 8), lambda i, j: (i, 0)), "tpu-v6e", ""),
]


@pytest.mark.parametrize("launch, machine, wanted", ADVICE)
def test_advice(launch, machine, wanted):
    assert of(*launch, machine=machine).advice == wanted


def test_the_limit_of_vmem_is_what_the_kernel_asks_for():
    params = kernels.CompilerParams(vmem_limit_bytes=2**26)
    f, x = blocks((4096, 4096), (2048, 2048), (2, 2), lambda i, j: (i, j), params=params)
    found = of(f, x, machine="tpu-v5e")
    assert found.limit == 2**26 and not found.advice


def test_memory_of_tpus_is_in_tiles():
    def body(x, out, held):
        def inner(buffer):
            out[...] = buffer[0, :1]

        run_scoped(inner, VMEM((8, 128), np.float32))

    f = call(body, like(1), scratch=[VMEM((8, 100), "bfloat16")], in_specs=Block((16, 130)))
    found = of(f, np.zeros((16, 130), np.float32), machine="tpu-v5p")
    assert found.on_chip == 8 * 128 * (2 + 4) + 16 * 256 * 4 + 128 * 4
    assert of(f, np.zeros((16, 130), np.float32)).on_chip == 8 * 100 * 2 + 16 * 130 * 4 + 4


def test_dtypes_that_tpus_lack_are_noted():
    f = call(lambda x, out: None, like(1), in_specs=Block())
    found = of(f, np.zeros(8, np.complex64), machine="tpu-v5p")
    assert found.notes == (
        "a value has the dtype c64, which kernels on TPUs cannot have. Convert it to float32 or "
        "int32 outside of the kernel.",
    )


# -- reports of programs --


def test_reports_of_programs_have_their_launches():
    def f(x, y):
        def step(z, _):
            return z + matmul_in_blocks()(x, y), None

        return lax.scan(step, jnp.zeros((16, 24)), None, length=5)[0]

    found = explain(f)(*CASES["matmul"].args)
    (launch,) = found.launches
    assert launch.count == 5 and launch.flops == {"f32": 24576}
    title = "kernel matmul: 24 programs (i=2, j=3, k=4), 5 times, at least 2.8 µs on 'cpu'"
    assert title in str(found) and title in found._repr_html_().replace("&#x27;", "'")
    data = json.loads(json.dumps(found.to_dict()))
    assert data["launches"][0]["operands"][0]["block"] == [8, 8]
    assert explain(jnp.sin)(1.0).launches == ()


CALL = """HloModule m
ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %k = f32[8] custom-call(%a), custom_call_target="__gpu$xla.gpu.triton"
}
"""


def test_custom_calls_of_kernels_have_the_work_of_their_launch():
    module = read(CALL, "test")
    assert work_of(module).uncounted == ("__gpu$xla.gpu.triton",)
    found = work_of(module, call_of=lambda i: CallWork({"f32": 7}, 5, 64))
    assert (found.flops, found.elementwise, found.bytes) == ({"f32": 7}, 5, 64)
    assert found.uncounted == ()


def test_cost_analysis_adds_the_work_of_custom_calls():
    case = CASES["matmul"]
    program = sw.make_jaxpr(case.launch())(*case.args)
    cost = {"flops": 10.0, "other": 1.0}
    assert with_stated_costs(cost, program, CPU) is cost
    found = with_stated_costs(cost, program, CUDA)
    assert found == {
        "flops": 10.0 + 24576 + 1536,
        "transcendentals": 0.0,
        "bytes accessed": 13824.0,
        "other": 1.0,
    }


def square_product(size, whole=64):
    """A product of square matrices in square blocks."""
    n = whole // size
    return call(
        matmul,
        like(whole, whole),
        grid=(("i", n), ("j", n), ("k", n)),
        in_specs=[
            Block((size, size), lambda i, j, k: (i, k)),
            Block((size, size), lambda i, j, k: (k, j)),
        ],
        out_specs=Block((size, size), lambda i, j, k: (i, j)),
        scratch=[VMEM((size, size), np.float32)],
        parallel=("i", "j"),
    )


@needs_cuda
def test_programs_for_gpus_count_their_kernels():
    x = on("h100", like(64, 64))
    lowered = sw.jit(square_product(32)).lower(x, x)
    for cost in (lowered.cost_analysis(), lowered.compile().cost_analysis()):
        assert cost["flops"] == 2 * 64**3 + 2 * 64**2
        assert cost["bytes accessed"] == (2 * 2 + 1) * 64**2 * F32
    found = explain(square_product(32), machine="h100:1")(x, x)
    assert found.computation.flops == {"f32": 2 * 64**3}
    assert found.computation.bytes == found.launches[0].bytes == (2 * 2 + 1) * 64**2 * F32
    assert found.computation.uncounted == ()
    assert found.launches[0].bound == "programs"


@needs_tpu
def test_programs_for_tpus_count_their_kernels():
    x = on("tpu-v5e", like(256, 256))
    flops, moved = 2 * 256**3, (2 * 2 + 1) * 256**2 * F32
    cost = sw.jit(square_product(128, 256)).lower(x, x).compile().cost_analysis()
    assert (cost["flops"], cost["bytes accessed"]) == (flops + 2 * 256**2, moved)
    found = explain(square_product(128, 256), machine="tpu-v5e:1")(x, x)
    assert found.computation.flops == {"f32": flops} and found.computation.bytes == moved
    assert found.launches[0].on_chip == 7 * 128**2 * F32


@needs_cuda
def test_variants_are_ranked_by_the_compiler_of_a_machine():
    f = kernels.rank(square_product, {"size": [8, 16, 32]}, machine="h100:1")
    found = f(like(64, 64), like(64, 64))
    assert [c.choice["size"] for c in found.candidates] == [32, 16, 8]
    assert not any(c.rejected for c in found.candidates)


def test_launches_can_be_reported_while_a_function_is_traced():
    found = []

    def f(x, y):
        found.append(of(matmul_in_blocks(), like(16, 32), like(32, 24)))
        return x @ y

    sw.jit(f)(*CASES["matmul"].args)
    assert found[0].bytes == 13824


def test_arguments_may_be_traced():
    found, x = [], np.zeros((3, 8), np.float32)

    def f(rows):
        found.append(of(lambda x: gather_rows()(np.array([1, 1, 1, 1]), x), x))
        found.append(of(lambda rows: gather_rows()(2 - rows, x), rows))
        return rows

    sw.jit(f)(np.zeros(4, np.int32))
    assert [(r.operands[0].moved, bool(r.notes)) for r in found] == [(1, False), (4, True)]


# -- estimate_cost --


def test_costs_of_functions_are_those_of_jax():
    ones = jnp.ones(10)
    assert pallas.estimate_cost(lambda x, y: jnp.exp(x + y), ones, ones) == CostEstimate(
        10, 10, 120
    )
    m, k, n = 400_000, 800_000, 900_000
    x, y = like(m, k, dtype=jnp.bfloat16), like(k, n, dtype=jnp.bfloat16)
    moved = 2 * (m * k + n * k + m * n)
    assert pallas.estimate_cost(jnp.matmul, x, y) == CostEstimate(2 * m * k * n, 0, moved)
    found = pallas.estimate_cost(jnp.matmul, like(7, 37, 91), like(7, 91, 23))
    assert found.flops == 2 * 7 * 37 * 91 * 23
    for power, flops in ((1, 0), (7, 5), (8, 4), (9, 5)):
        found = pallas.estimate_cost(lambda x, y: lax.integer_pow(x, y), ones, y=power)
        assert found == CostEstimate(10 * flops, 0, 80)


@pytest.mark.parametrize(
    "shapes, pattern, flops",
    [
        (((10, 11, 12), (11, 12)), "abc,bc->a", 2640),
        (((10, 11, 12), (13, 11, 12)), "abc,dbc->ad", 34320),
        (((10, 11, 12), (9, 10, 11, 12)), "abc,dabc->d", 23760),
    ],
)
def test_costs_of_einsum(shapes, pattern, flops):
    x, y = (like(*shape) for shape in shapes)
    assert pallas.estimate_cost(lambda x, y: jnp.einsum(pattern, x, y), x, y).flops == flops


def test_costs_of_loops_reductions_convolutions_and_launches():
    def attention(q, k, v):
        return nn.softmax(q @ k.T, axis=-1) @ v

    found = pallas.estimate_cost(attention, like(64, 16), like(128, 16), like(128, 4))
    assert found.flops == 2 * 64 * 128 * (16 + 4) + 2 * 64 * 128
    assert found.transcendentals == 64 * 128

    def repeated(x):
        return lax.fori_loop(0, 5, lambda i, x: jnp.sin(x), x)

    assert pallas.estimate_cost(repeated, like(3)).transcendentals == 15
    convolved = pallas.estimate_cost(
        lambda x, w: lax.conv(x, w, (1, 1), "VALID"), like(2, 3, 8, 8), like(5, 3, 3, 3)
    )
    assert convolved.flops == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    launch = kernels.estimate_cost(matmul_in_blocks(), *CASES["matmul"].args)
    assert launch == CostEstimate(24576 + 1536, 0, 13824 + (512 + 768 + 384) * F32)


def test_messages():
    assert message(TypeError, kernels.report, 3) == (
        "kernels.report takes a function, and its arguments in a second call: `report(f)(x)`. Got 3 "
        "of type int."
    )
    assert message(ValueError, kernels.report(jnp.sin), 1.0) == (
        "kernels.report: sin launches no kernel."
    )
    assert message(ValueError, kernels.report, matmul, machine="h10").startswith(
        "unknown machine 'h10'; known machines are "
    )

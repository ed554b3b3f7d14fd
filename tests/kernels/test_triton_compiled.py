"""Kernels compiled by XLA for GPUs that are not attached, down to machine code."""

import numpy as np
import pytest

import shardwise as sw
from shardwise.kernels import call
from tests.helpers.everyday import everyday
from tests.helpers.targets import compiled, needs_cuda, on
from tests.kernels.kernels import CASES, INTEGERS, like
from tests.kernels.test_triton_values import LIBRARY, VALUES, elementwise

MACHINES = ["a100", "h100", "b200"]
NAMES = [*CASES, *INTEGERS]
ROWS = [(name, machine) for name in NAMES for machine in MACHINES]


@needs_cuda
@pytest.mark.parametrize(("name", "machine"), everyday(ROWS, 6))
def test_compiles(name, machine):
    case = (CASES | INTEGERS)[name]
    text = compiled(case.launch(), machine, *case.args).as_text()
    assert "__gpu$xla.gpu.triton" in text


@needs_cuda
@pytest.mark.parametrize("name", everyday(CASES, 2))
def test_derivatives_and_maps_compile(name):
    case = CASES[name]
    f = case.launch()
    total = lambda *xs: f(*xs).sum()  # noqa: E731
    numbers = tuple(range(len(case.args)))
    compiled(sw.grad(total, numbers), "h100", *case.args)
    moved = compiled(lambda *xs: sw.jvp(f, xs, xs)[1], "h100", *case.args)
    mapped = compiled(sw.vmap(f), "h100", *[np.stack([x, x]) for x in case.args])
    assert all("__gpu$xla.gpu.triton" in g.as_text() for g in (moved, mapped))


@needs_cuda
def test_lowering_verifies_the_module_without_a_compiler():
    case = CASES["softmax"]
    text = sw.jit(case.launch()).lower(*[on("h100", x) for x in case.args]).as_text()
    assert "num_warps = 4 : i32" in text and "@__gpu$xla.gpu.triton(" in text


@needs_cuda
def test_several_launches_of_one_name():
    f, g = [call(scaled_by(n), like(64), name="f") for n in (2, 3)]
    text = compiled(lambda x: f(x) + g(x), "h100", np.ones(64, np.float32)).as_text()
    assert text.count("__gpu$xla.gpu.triton") == 2


def scaled_by(n):
    def body(x, out):
        out[...] = x[...] * n

    return body


@needs_cuda
@pytest.mark.sweep
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_compiles(name, machine):
    f, args = LIBRARY[name]
    assert "__gpu$xla.gpu.triton" in compiled(f, machine, *args).as_text()


@needs_cuda
@pytest.mark.sweep
@pytest.mark.parametrize("name", VALUES)
def test_bodies_compile(name):
    f, x = VALUES[name]
    compiled(elementwise(f), "h100", x)

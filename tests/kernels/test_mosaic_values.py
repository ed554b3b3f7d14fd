"""Values of kernels for TPUs: their modules, run by NumPy, against the functions they compute."""

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.control.expand import expanded
from shardwise._src.core.program import eval_program
from shardwise._src.kernels.on_tpu import mosaic_call as calls
from shardwise._src.runtime.platforms import TPU
from shardwise.kernels import Block, call, program_id, when
from tests.helpers.everyday import everyday
from tests.helpers.mosaic_numpy import run
from tests.kernels.kernels import CASES as SMALL
from tests.kernels.kernels import INTEGERS, like
from tests.kernels.mosaic_cases import CASES, ROWS, X
from tests.kernels.test_random_launches import launch, random_case, wanted


def evaluated(program, args):
    """A program with its kernels run by NumPy."""

    def bind(eqn, values):
        if eqn.op is calls.mosaic_call:
            return run(eqn.params["launch"], eqn.params["kernel"], *values)
        if eqn.called is not None:
            return evaluated(eqn.called, values)
        result = eqn.op(*values, **eqn.params)
        return list(result) if eqn.op.multiple else [result]

    return eval_program(program, args, bind)


def values(f, *args):
    return evaluated(expanded(sw.make_jaxpr(f)(*args), TPU), args)


def check(case, part=slice(None), **close):
    found, wanted = values(case.launch(), *case.args), sw.tree.leaves(case.wanted(*case.args))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        a, b = (np.asarray(x, np.float32)[part] for x in (a, b))
        np.testing.assert_allclose(a, b, **close)


@pytest.fixture
def any_block(monkeypatch):
    """Blocks that TPUs do not have, whose modules are right all the same."""
    monkeypatch.setattr(calls, "check_limits", lambda *args: None)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    wide = "bf16" in name
    check(CASES[name], rtol=3e-2 if wide else 1e-3, atol=1e-2 if wide else 1e-3)


def test_results_that_are_not_written():
    """They keep the values of the arguments that they alias, in every block."""

    def body(x, y, out, other):
        when(program_id(0) == 1)(lambda: out.set(y[...]))
        other[...] = x[...] + 1

    outs = like(24, 128), like(24, 128)
    f = call(body, outs, grid=3, in_specs=[ROWS] * 2, out_specs=ROWS, aliases={0: 0}, name="kept")
    a, b = values(f, X, -X)
    np.testing.assert_array_equal(a, np.concatenate([X[:8], -X[8:16], X[16:]]))
    np.testing.assert_array_equal(b, X + 1)
    g = call(lambda x, out: None, like(24, 128), grid=3, in_specs=[ROWS], out_specs=ROWS,
             aliases={0: 0}, name="same")  # fmt: skip
    np.testing.assert_array_equal(values(g, X)[0], X)


def test_sums_that_begin_with_arguments():
    """Their blocks stay along two axes of the grid, of which only the first programs copy."""

    def body(x, start, out):
        out[...] += x[...]

    rows = Block((8, 128), lambda i, j, k: (2 * j + k, 0))
    held = Block((8, 128), lambda i, j, k: (i, 0))
    f = call(body, like(16, 128), grid=(2, 2, 2), in_specs=[rows, held], out_specs=held,
             aliases={1: 0}, name="summed")  # fmt: skip
    x, start = np.concatenate([X, -2 * X[:8]]), np.stack([X[:8], X[8:16]]).reshape(16, 128)
    (found,) = values(f, x, start)
    wanted = start.reshape(2, 8, 128) + x.reshape(4, 8, 128).sum(0)
    np.testing.assert_allclose(found, wanted.reshape(16, 128), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*SMALL, *INTEGERS])
@pytest.mark.usefixtures("any_block")
def test_values_of_small_blocks(name):
    inside = slice(1, -1) if name == "windows" else slice(None)  # without what it reads of padding
    check((SMALL | INTEGERS)[name], inside, rtol=1e-4, atol=1e-4)


SEEDS = [seed for seed in range(240) if not random_case(seed)[3]]


@pytest.mark.parametrize("seed", everyday(SEEDS, 8))
@pytest.mark.usefixtures("any_block")
def test_random_launches(seed):
    grid, a, b, _ = random_case(seed)
    x, start = (
        np.random.default_rng(i).integers(-9, 9, blocks.shape).astype(np.float32)
        for i, blocks in enumerate((a, b))
    )
    reference = wanted(grid, a, b, False, x, start)
    (found,) = values(launch(grid, a, b, False), x, start)
    known = ~np.isnan(reference)
    np.testing.assert_array_equal(found[known], reference[known])

"""`flash_attention`: dtypes, blocks that are skipped, maps of lengths, shards; see also CASES."""

from functools import partial

import numpy as np
import pytest

import shardwise as sw
from shardwise import nn
from shardwise import numpy as jnp
from shardwise._src.core.program_tools import walk
from shardwise.kernels.library import flash_attention
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.kernels.library.library_cases import SMALL, attention, heads


def causal(*args, **options):
    return flash_attention(*args, is_causal=True, **SMALL, **options)


wanted_causal = partial(attention, is_causal=True)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(dtype):
    with sw.enable_x64(True):
        args = [jnp.asarray(x, dtype) for x in heads(2, 40, 40, 4, 2, 16)]
        out, moved = sw.jit(lambda *xs: (causal(*xs), sw.vjp(causal, *xs)[1](xs[0])))(*args)
        assert [x.dtype for x in (out, *moved)] == [dtype] * 4
        tolerance = {"bfloat16": 2e-2, "float16": 2e-3, "float64": 1e-12}[dtype]
        exact = wanted_causal(*[x.astype("float64") for x in args])
        np.testing.assert_allclose(np.asarray(out, np.float64), exact, tolerance, tolerance)


def test_defaults_are_those_of_dot_product_attention():
    args = heads(2, 30, 30, 4, 2, 16)
    close(flash_attention(*args), nn.dot_product_attention(*args), atol=1e-6)


def test_blocks_without_scores_are_not_visited():
    def steps(**options):
        f = lambda *xs: flash_attention(*xs, **options, **SMALL)  # noqa: E731
        program = sw.make_jaxpr(sw.grad(lambda *xs: f(*xs).sum(), (0, 1)))(
            *heads(1, 64, 64, 2, 1, 4)
        )
        launches = [e.params["launch"] for e in walk(program) if e.op.name == "kernel_call"]
        grids = {each.name.rpartition("_")[2]: each.grid[-2:] for each in launches}
        return [grids[name] for name in ("forward", "dq", "dkv")]

    assert steps() == steps(is_causal=True) == [(1, 4), (1, 4), (2, 4)]
    assert steps(window=(4, 0)) == [(1, 2), (1, 2), (2, 2)]
    assert steps(window=16) == [(1, 3), (1, 3), (2, 3)]


@pytest.mark.sweep
def test_maps_of_lengths():
    q, k, v = [np.stack([x, -x, 2 * x]) for x in heads(2, 20, 20, 2, 1, 8)]
    lengths = np.array([[20, 3], [7, 8], [0, 19]])
    found = sw.jit(sw.vmap(lambda q, k, v, n: causal(q, k, v, lengths=n)))(q, k, v, lengths)
    each = zip(q, k, v, lengths, strict=True)
    close(found, np.stack([wanted_causal(*xs, lengths=n) for *xs, n in each]), atol=1e-5)


def test_sharded_batches_and_heads():
    mesh = sw.make_mesh((4, 2), ("data", "heads"))
    args, spec = heads(4, 20, 20, 4, 2, 8), P("data", None, "heads")
    mapped = sw.shard_map(causal, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)

    def gradient(f):
        return sw.jit(sw.value_and_grad(lambda *xs: jnp.sin(f(*xs)).sum(), (0, 1, 2)))(*args)

    close(gradient(mapped), gradient(wanted_causal), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 4, 4, 2, 1, 8), (2, 0, 4, 2, 1, 8), (2, 4, 0, 2, 1, 8)])
def test_nothing_to_attend_to(sizes):
    args = heads(*sizes)
    out, back = sw.vjp(flash_attention, *args)
    close(out, np.zeros_like(args[0]))
    close(back(out), tuple(map(np.zeros_like, args)))

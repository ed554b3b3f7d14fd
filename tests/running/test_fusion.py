"""Programs that are compiled without XLA's fusion passes: small ones, without scatters."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.op import every_op
from shardwise._src.core.program_tools import walk

X, AT = np.ones(8, np.float32), np.array([1, 5])
FUNCTIONS = {
    "set": lambda x: x.at[AT].set(2.0),
    "add": lambda x: x.at[AT].add(2.0),
    "max": lambda x: x.at[AT].max(2.0),
    "gather": lambda x: x[AT],
    "sort": jnp.sort,
    "cumsum": jnp.cumsum,
    "bincount": lambda x: jnp.bincount(x.astype(int), length=4),
    "segment_sum": lambda x: sw.ops.segment_sum(x, jnp.arange(8) // 2, num_segments=4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ops_whose_modules_have_scatters_are_marked(name):
    traced = sw.jit(FUNCTIONS[name]).trace(X)
    marked = any(eqn.op.needs_fusion for eqn in walk(traced.program))
    assert marked == ('stablehlo.scatter"(' in traced.lower().as_text())


def test_the_marked_ops():
    marked = {name for name, op in every_op().items() if op.needs_fusion}
    scatters = {f"scatter_{kind}" for kind in ("add", "sub", "mul", "min", "max")}
    others = {
        "select_and_scatter_add",
        "reduce_scatter",
        "unreduced_reduce_scatter",
        "call_exported",
    }
    assert marked == {"scatter", *scatters, *others}

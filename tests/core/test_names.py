"""The names in `core` that JAX programs use."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.checker import ProgramError
from shardwise._src.core.program import Program


@pytest.mark.parametrize("weak", [False, True])
def test_shaped_arrays_are_the_types_of_values(weak):
    t = sw.core.ShapedArray((2, np.int64(3)), jnp.float32, weak)
    theirs = jax.core.ShapedArray((2, 3), np.float32, weak)
    assert (t.shape, t.dtype, t.weak_type) == (theirs.shape, theirs.dtype, theirs.weak_type)
    assert str(t) == str(theirs)
    assert t is sw.core.ShapedArray((2, 3), "float32", weak)
    if not weak:
        assert t is jnp.ones((2, 3)).aval
    assert isinstance(t, sw.core.ShapedArray)


def test_shaped_arrays_tell_of_explicit_axes():
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    x = sw.device_put(np.ones((8, 4), np.float32), sw.NamedSharding(mesh, sw.P("x")))
    assert sw.core.ShapedArray((8, 4), np.float32, sharding=x.sharding) is x.aval


def test_programs_are_checked():
    program = sw.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0)
    sw.core.check_jaxpr(program)
    wrong = Program(program.inputs, program.outvars, program.eqns[1:])
    with pytest.raises(ProgramError):
        sw.core.check_jaxpr(wrong)

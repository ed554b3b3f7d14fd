"""The names in `core` that JAX programs use."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import ProgramError
from shardwise._src.core.program import Program
from tests.helpers.comparing import close


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


def test_the_implementation_of_an_op_can_be_observed():
    calls = []
    sin, concatenate = lax.sin_p, lax.concatenate_p
    impl = sin.impl
    assert impl(1.0) == lax.sin(1.0)
    assert concatenate.impl(np.ones(1), np.ones(2), dimension=0).shape == (3,)
    try:
        sin.def_impl(lambda x, **params: calls.append(1) or impl(x, **params))
        close(
            float(sw.grad(lambda x: lax.sin(lax.sin(x)))(1.0)),
            float(np.cos(np.sin(1)) * np.cos(1)),
            1e-6,
        )
        assert len(calls) == 2
        sw.jit(lax.sin)(1.0)
        assert len(calls) == 2  # programs do not call it
    finally:
        sin.def_impl(impl)
    assert sin.eager is None and lax.sin(1.0) == impl(1.0) and len(calls) == 2

"""`shardwise.core` has the names that programs of 2024 use from `jax.core`."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import api_util, core, lax
from shardwise.export import symbolic_shape
from shardwise.extend import linear_util as lu


def _called(primitive, f, x):
    leaves, tree = sw.tree.flatten((x,))
    flat, out_tree = api_util.flatten_fun_nokwargs(lu.wrap_init(f), tree)
    outs = primitive.bind(flat, *leaves)
    return sw.tree.unflatten(out_tree(), outs)


@pytest.mark.parametrize("primitive", [core.call_p, core.closed_call_p], ids=str)
def test_calls_of_functions_have_all_transforms(primitive):
    x = jnp.array([0.5, 1.0], np.float32)
    f = lambda x: _called(primitive, lambda y: {"a": jnp.sin(y) * 2}, x)["a"]  # noqa: E731
    wanted, slopes = 2 * np.sin(x), 2 * np.cos(x)
    for run in (f, sw.jit(f), sw.vmap(f)):
        np.testing.assert_allclose(run(x), wanted, rtol=1e-6)
    np.testing.assert_allclose(sw.jvp(f, (x,), (x,))[1], slopes * x, rtol=1e-6)
    np.testing.assert_allclose(sw.grad(lambda x: f(x).sum())(x), slopes, rtol=1e-6)
    (eqn,) = sw.make_jaxpr(f)(x).eqns
    assert eqn.primitive.name == primitive.name
    assert [e.primitive.name for e in eqn.params["call_jaxpr"].eqns] == ["sin", "mul"]


def test_types_of_values():
    assert core.raise_to_shaped(core.get_aval(0)).weak_type
    assert not core.raise_to_shaped(core.get_aval(np.int32(0))).weak_type
    weak, own = core.get_aval(1.0), core.raise_to_shaped(core.get_aval(1.0), weak_type=False)
    assert weak != own and core.typematch(weak, own) and core.lattice_join(weak, own) == own
    assert core.lattice_join(None, own) == own
    assert core.valid_jaxtype(np.zeros(2, bool)) and core.valid_jaxtype(jnp.ones(2))
    assert not core.valid_jaxtype(np.zeros(2, object)) and not core.valid_jaxtype(
        np.zeros(2, "f4,i4")
    )
    assert core.typecheck(own, np.float32(2)) and not core.typecheck(own, np.int32(2))
    with pytest.raises(TypeError, match="no common type"):
        core.lattice_join(own, core.ShapedArray((2,), np.dtype("float32")))
    with pytest.raises(TypeError, match="expected an array or a scalar"):
        core.check_valid_jaxtype("text")


def test_dimensions():
    b, c = symbolic_shape("b, c")
    assert core.canonicalize_shape([np.int64(2), b]) == (2, b)
    assert core.is_constant_shape((2, np.int32(3))) and not core.is_constant_dim(b)
    assert core.definitely_equal(b, b + 0) and not core.symbolic_equal_dim(b, c)
    assert core.non_negative_dim(-3) == 0 and core.dimension_as_value(3) == 3
    with pytest.raises(TypeError, match="reading: a shape must be a sequence of ints"):
        core.canonicalize_shape((2.5,), "reading")


def test_named_axes():
    with core.extend_axis_env("i", 8, None):
        assert core.axis_frame("i").size == 8
        (eqn,) = sw.make_jaxpr(lambda x: lax.psum(x, "i"))(1.0).eqns
    assert eqn.primitive.name == "psum" and eqn.params["sizes"] == (8,)
    with pytest.raises(NameError, match="axis_frame"):
        core.axis_frame("i")

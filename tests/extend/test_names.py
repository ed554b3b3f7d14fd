"""Names of JAX's for interpreters and rules: contexts, calls, derivatives, dead code."""

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.core
import shardwise.numpy as jnp
from shardwise import api_util
from shardwise.core import ShapedArray
from shardwise.export import symbolic_shape
from shardwise.extend import core, linear_util, source_info_util
from shardwise.interpreters import ad, batching
from shardwise.interpreters import partial_eval as pe

F32 = ShapedArray((2,), np.float32)


def test_a_block_in_which_operations_run_at_once():
    @sw.jit
    def f(x):
        with sw.core.eval_context():
            table = jnp.arange(3) * 2
        assert not isinstance(table, sw.core.Tracer)
        return x + table

    assert f(1).tolist() == [1, 3, 5]


def test_sizes_that_may_be_symbolic():
    a, b = symbolic_shape("a, b")
    assert sw.core.max_dim(2, 3) == 3 and sw.core.min_dim(2, 3) == 2
    assert sw.core.max_dim(a + b, b) == a + b and sw.core.min_dim(a, a + 1) == a
    assert str(sw.core.max_dim(a, 5)) == "max(a, 5)"
    with pytest.raises(sw.errors.InconclusiveDimensionOperation):
        bool(a > b)
    with pytest.raises(core.InconclusiveDimensionOperation):
        range(a)


def test_lines_of_a_program_that_runs_again():
    closed = sw.make_jaxpr(lambda x: jnp.sin(x))(1.0)

    def line(**how):
        again = sw.make_jaxpr(lambda x: sw.core.eval_jaxpr(closed, closed.consts, x, **how))(1.0)
        return core_line(again.eqns[0])

    def core_line(eqn):
        return int(source_info_util.summarize(eqn.source_info).split(":")[1].split(" ")[0])

    first = core_line(closed.eqns[0])
    assert line() == line(propagate_source_info=True) == first
    assert line(propagate_source_info=False) == first + 3


def test_arguments_have_the_names_of_jax():
    tree = sw.tree.structure(({"x": 1}, 2))
    assert api_util.donation_vector((1,), (), tree, kws=False) == (False, True)
    leaves, tree = sw.tree.flatten(((3,), {}))
    flat, out = api_util.flatten_fun(
        linear_util.wrap_init(lambda x: (x, x)), tree, use_eq_store=True, unk_names=True
    )
    assert flat.call_wrapped(*leaves) == flat.call_wrapped(*leaves) == [3, 3]
    assert out() == sw.tree.structure((0, 0))
    flat, _ = api_util.flatten_fun_nokwargs(
        linear_util.wrap_init(lambda x: x), sw.tree.structure((0,))
    )
    flat.call_wrapped(1)
    with pytest.raises(linear_util.StoreException):
        flat.call_wrapped(2)
    assert core.primal_dtype_to_tangent_dtype(primal_dtype=np.dtype("float32")) == np.float32
    assert core.find_top_trace(_=[jnp.ones(2)]).eager
    core.check_jaxpr(jaxpr=sw.make_jaxpr(jnp.sin)(1.0))


def test_dead_code_of_calls_with_attributes():
    from shardwise.experimental import scheduling_groups as groups

    call = groups.xla_metadata_call(lambda x: (jnp.sin(x), jnp.cos(x)), scheduling_group_id=1)
    (eqn,) = [e for e in sw.make_jaxpr(call)(1.0).eqns if len(e.outvars) == 2]
    used, kept = groups.dce_jaxpr_xla_metadata_rule([False, True], eqn)
    (inner,) = core.jaxprs_in_params(kept.params)
    assert used == [True] and [e.primitive.name for e in inner.eqns] == ["cos"]


def test_maps_of_one_length():
    from shardwise.example_libraries import optimizers
    from shardwise.experimental import ode

    assert ode.zip([1, 2], (3, 4)) == [(1, 3), (2, 4)] and ode.map(max, [1, 2], [0, 5]) == [1, 5]
    assert optimizers.map is ode.map and optimizers.zip is ode.zip
    tree = {"a": np.ones(2, np.float32), "b": np.float32(3)}
    flat, unravel = sw.flatten_util.ravel_pytree(tree)
    double = ode.ravel_first_arg(lambda y, k: sw.tree.map(lambda v: v * k, y), unravel, None)
    assert double(flat, 2).tolist() == [2, 2, 6]
    with pytest.raises(ValueError, match=r"must have the same length; got \[1, 2\]\.$"):
        ode.zip([1], [2, 3])


def test_a_primitive_that_calls_a_function():
    named = core.CallPrimitive("named")
    offset = jnp.ones(3)

    def f(x):
        fun = linear_util.wrap_init(lambda a: [jnp.sin(a) * 2 + offset, a])
        return sum(named.bind(fun, x, label="l"))

    x = np.linspace(0, 1, 3, dtype=np.float32)
    expected = 2 * np.sin(x) + 1 + x
    for run in (f, sw.jit(f), sw.vmap(lambda a: f(a)[0])):
        np.testing.assert_allclose(run(x), expected, rtol=1e-5)
    sw.test_util.check_grads(f, (x,), 2)
    (eqn,) = [e for e in sw.make_jaxpr(f)(x).eqns if e.primitive is named]
    assert eqn.params["label"] == "l" and len(eqn.params["call_jaxpr"].outvars) == 2
    closed = sw.make_jaxpr(sw.grad(lambda x: f(x).sum()))(x)
    assert any(e.primitive is named for e in closed.eqns)
    given = [np.asarray(offset)] * (len(eqn.invars) - 1)
    a, b = named.bind(*given, x, **named.get_bind_params(dict(eqn.params)))
    np.testing.assert_allclose(a + b, expected, rtol=1e-5)
    used, kept = pe.dce_jaxpr_closed_call_rule([False, True], eqn)
    assert sum(used) == 1 and not kept.params["call_jaxpr"].eqns
    assert pe.dce_jaxpr_call_rule([False, False], eqn)[1] is None


def test_derivatives_of_functions():
    def f(a, b):
        return {"s": jnp.sin(a["x"]) * b, "i": jnp.int32(3)}, a["x"] * 2

    x, b = np.float32(0.3), np.float32(2.0)
    zero = ad.Zero(ShapedArray((), np.dtype("float32")))
    out, moved, aux = ad.jvp(f, ({"x": x}, b), ({"x": np.float32(1)}, zero), has_aux=True)
    np.testing.assert_allclose(out["s"], np.sin(x) * b, rtol=1e-6)
    np.testing.assert_allclose(moved["s"], np.cos(x) * b, rtol=1e-6)
    assert moved["i"].dtype == sw.dtypes.float0 and aux == 2 * x
    _, moved = ad.jvp(lambda x, y: (x, y), (x, b), (x, zero), instantiate=False)
    assert moved[0] == x and isinstance(moved[1], ad.Zero)
    (out, two), zeros, program, consts = ad.linearize(lambda x: (jnp.sin(x), 2.0), (x,))
    assert zeros == [False, True] and two == 2.0
    (t,) = sw.core.eval_jaxpr(program, consts, np.float32(2))
    np.testing.assert_allclose(t, 2 * np.cos(x), rtol=1e-6)
    with pytest.raises(ValueError, match="the structure of primals: 1 leaves; got 2"):
        ad.jvp(jnp.sin, (x,), (x, x))
    with pytest.raises(TypeError, match="must return a pair"):
        ad.jvp(jnp.sin, (x,), (x,), has_aux=True)


def two_results():
    pair = core.Primitive("pair")
    pair.multiple_results = True
    pair.def_abstract_eval(lambda x, y, *, keep: [x, y][: sum(keep)])
    return pair


def test_a_rule_for_dead_code_is_asked():
    pair = two_results()
    asked = []

    def rule(used, eqn):
        asked.append(used)
        if not any(used):
            return [False, False], None
        inputs = [a for a, u in zip(eqn.invars, used, strict=True) if u]
        outputs = [v for v, u in zip(eqn.outvars, used, strict=True) if u]
        params = {"keep": tuple(u for u in used if u)}
        return used, core.new_jaxpr_eqn(inputs, outputs, pair, params, core.no_effects, None)

    def made():
        return lambda x: pair.bind(jnp.sin(x), jnp.cos(x), keep=(True, True))[1]

    assert len(sw.make_jaxpr(made())(1.0).eqns) == 3
    pe.dce_rules[pair] = rule
    try:
        program = sw.make_jaxpr(made())(1.0)
        assert [str(e.primitive) for e in program.eqns] == ["cos", "pair"]
        assert asked == [[False, True]]
        assert not sw.make_jaxpr(lambda x: (made()(x), x)[1])(1.0).eqns
    finally:
        del pe.dce_rules[pair]


def test_programs_without_dead_code():
    table = jnp.arange(2.0)
    program = sw.make_jaxpr(lambda x, y: (x + table, y * 2))(*np.ones((2, 2), np.float32))
    found, consts, used = pe.dce_jaxpr_consts(program, [False, True])
    assert consts == [False] and used == [False, True] and len(found.eqns) == 1
    _, consts, used = pe.dce_jaxpr_consts(program, [True, False], [False, True, True])
    assert consts == [True] and used == [True, True]
    fun = linear_util.wrap_init(lambda x: [x * 2])
    program, types, consts = pe.trace_to_jaxpr_dynamic(
        fun, [F32, F32], keep_inputs=[False, True], auto_dce=True
    )
    assert len(program.invars) == 2 and types == [F32] and consts == []
    assert core.jaxpr_as_fun(program)(np.zeros(2, "f4"), np.ones(2, "f4"))[0].tolist() == [2, 2]
    assert pe.Val is not None


def test_rules_that_nothing_would_ask_for_are_refused():
    pair = two_results()
    text = (
        "shardwise.interpreters.partial_eval.custom_partial_eval_rules[pair]: an operation whose "
        "operands are known runs immediately, and any other is part of the program, so this "
        "rule is never used. Remove the rule."
    )
    with pytest.raises(NotImplementedError, match=f"^{re.escape(text)}$"):
        pe.custom_partial_eval_rules[pair] = None
    with pytest.raises(NotImplementedError, match="according to its policy"):
        pe.partial_eval_jaxpr_custom_rules[pair] = None
    with pytest.raises(NotImplementedError, match=r"^register_vmappable: the mapped axis of a Own"):
        batching.register_vmappable(type("Own", (), {}), int, float, len, len, None)

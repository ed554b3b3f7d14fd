"""Interpreters of programs written with JAX's names."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import api_util
from shardwise.core import ShapedArray
from shardwise.extend import core, linear_util
from shardwise.extend.core import primitives
from shardwise.interpreters import partial_eval as pe

INVERSES = {
    primitives.exp_p: jnp.log,
    primitives.tanh_p: jnp.arctanh,
    primitives.neg_p: jnp.negative,
}


def inverse(fun):
    """The inverse of a function that is a chain of operations."""

    def run(*args):
        closed = sw.make_jaxpr(fun)(*args)
        return backwards(closed.jaxpr, closed.literals, *args)[0]

    return run


def backwards(jaxpr, consts, *args):
    env = {}
    api_util.safe_map(env.__setitem__, jaxpr.outvars, args)
    api_util.safe_map(env.__setitem__, jaxpr.constvars, consts)
    for eqn in jaxpr.eqns[::-1]:
        values = [env[v] for v in eqn.outvars]
        if eqn.primitive is primitives.jit_p:
            (inner,) = core.jaxprs_in_params(eqn.params)
            result = backwards(inner.jaxpr, inner.consts, *values)
        else:
            result = [INVERSES[eqn.primitive](*values)]
        api_util.safe_map(env.__setitem__, eqn.invars, result)
    return [env[v] for v in jaxpr.invars]


def test_an_interpreter_of_programs():
    f = inverse(lambda x: sw.jit(jnp.tanh)(jnp.exp(-x)))
    x = jnp.array([0.5, 0.25])
    np.testing.assert_allclose(f(jnp.tanh(jnp.exp(-x))), x, rtol=1e-5)
    np.testing.assert_allclose(sw.jit(f)(jnp.tanh(jnp.exp(-x))), x, rtol=1e-5)
    wanted = sw.grad(lambda y: -jnp.log(jnp.arctanh(y)))(0.5)
    np.testing.assert_allclose(sw.grad(f)(0.5), wanted, rtol=1e-6)


def test_programs_are_made_of_parts():
    closed = sw.make_jaxpr(lambda x: jnp.sin(x) * 2 + jnp.arange(3.0))(np.ones(3, np.float32))
    assert isinstance(closed, core.ClosedJaxpr) and isinstance(closed.jaxpr, core.Jaxpr)
    assert not isinstance(closed.eqns[0], core.Jaxpr)
    jaxpr = closed.jaxpr
    again = core.ClosedJaxpr(
        core.Jaxpr(jaxpr.constvars, jaxpr.invars, jaxpr.outvars, jaxpr.eqns), closed.consts
    )
    assert str(again) == str(closed)
    x = np.array([1.0, 2.0, 3.0], np.float32)
    (found,) = core.jaxpr_as_fun(again)(x)
    np.testing.assert_allclose(found, np.sin(x) * 2 + np.arange(3), rtol=1e-6)
    core.check_jaxpr(again)
    assert closed.jaxpr.debug_info.func_name == "<lambda>" and closed.eqns[1].invars[1].val == 2
    cosines = [
        e.replace(primitive=primitives.cos_p) if e.primitive is primitives.sin_p else e
        for e in jaxpr.eqns
    ]
    (found,) = core.jaxpr_as_fun(closed.replace(jaxpr=jaxpr.replace(eqns=cosines)))(x)
    np.testing.assert_allclose(found, np.cos(x) * 2 + np.arange(3), rtol=1e-6)


def test_equations_are_made():
    new, t = core.gensym(), ShapedArray((2,), np.float32)
    x, y = new(t), new(t)
    eqn = core.new_jaxpr_eqn([x], [y], primitives.neg_p, {})
    program = core.Jaxpr([], [x], [y], [eqn])
    np.testing.assert_array_equal(core.jaxpr_as_fun(program)(np.ones(2))[0], [-1, -1])
    dead = core.Jaxpr([], [x, new(t)], [y, x], [eqn])
    pruned, used = pe.dce_jaxpr(dead, [True, False])
    assert used == [True, False] and len(pruned.outvars) == 1
    pruned, used = pe.dce_jaxpr(dead, [False, True], instantiate=True)
    assert used == [True, True] and not pruned.eqns
    closed = sw.make_jaxpr(lambda x, y: sw.jit(lambda *xs: (*xs, xs[0] + 1))(x, y)[2])(1.0, 2.0)
    pruned, used = pe.dce_jaxpr(closed.jaxpr, [True])
    assert used == [True, False] and len(pruned.eqns[0].outvars) == 1
    core.check_jaxpr(pruned)


def test_dead_results_of_calls():
    def f(x, y):
        first, _ = sw.jit(lambda x, y: (sw.numpy.sin(x), sw.numpy.cos(y)))(x, y)
        return sw.checkpoint(lambda x, y: (x * x, y * y))(first, y)

    program = sw.make_jaxpr(f)(1.0, 2.0)
    found, used = pe.dce_jaxpr(program.jaxpr, [True, False])
    assert len(pe.dce_jaxpr(program.jaxpr, True)[0].outvars) == 2
    assert used == [True, False] and " cos " not in str(found) and str(found).count(" mul ") == 1
    assert sw.core.eval_jaxpr(found, (), np.float32(2)) == [np.sin(np.float32(2)) ** 2]


def test_programs_of_weakly_typed_values_take_strong_ones():
    def f(a, b):
        a, b = sw.lax.scan(lambda c, _: ((c[1], c[0] * 2), None), (a, b), None, length=3)[0]
        a, b = sw.lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + c[1], c[1]), (a, b))
        return sw.lax.cond(a > 0, lambda x, y: x + y, lambda x, y: x, a, b)

    program = sw.make_jaxpr(f)(1.0, 2.0)
    run = lambda *args: sw.core.eval_jaxpr(program.jaxpr, (), *args)  # noqa: E731
    args = np.float32(1), np.float32(2)
    assert run(*args) == [f(1.0, 2.0)] and sw.jit(run)(*args) == [f(1.0, 2.0)]
    assert sw.jvp(run, args, args)[1][0] == sw.jvp(f, args, args)[1]


def test_types():
    t = ShapedArray((4, 3), np.float32)
    assert core.mapped_aval(3, 1, t) == ShapedArray((4,), np.float32)
    assert core.unmapped_aval(5, 0, t) == ShapedArray((5, 4, 3), np.float32)
    assert core.mapped_aval(3, None, t) is core.unmapped_aval(3, None, t) is t
    with pytest.raises(ValueError) as failure:
        core.mapped_aval(3, 0, t)
    assert str(failure.value) == "mapped_aval: dimension 0 of f32[4,3] must be of size 3."
    assert core.primal_dtype_to_tangent_dtype(np.dtype("int32")) is sw.float0
    assert core.valid_jaxtype(1.0) and not core.valid_jaxtype("a")
    assert not core.valid_jaxtype(np.zeros(3, [("i", "i4"), ("f", "f4")]))


def test_where_a_program_is():
    states = []

    def note(x):
        states.append(
            (
                core.get_opaque_trace_state(),
                core.unsafe_am_i_under_a_jit_DO_NOT_USE(),
                core.unsafe_am_i_under_a_vmap_DO_NOT_USE(),
            )
        )
        return x

    outside = core.get_opaque_trace_state(convention="nnx")
    note(1.0)
    sw.jit(note)(1.0)
    sw.vmap(note, axis_name="i")(jnp.ones(2))
    assert [s[1:] for s in states] == [(False, False), (True, False), (False, True)]
    assert [s[0] == outside for s in states] == [True, False, False]
    sw.vmap(lambda x: states.append(core.unsafe_get_axis_names_DO_NOT_USE()) or x, axis_name="i")(
        jnp.ones(2)
    )
    assert states[-1] == ["i"]


def test_transformations_of_functions():
    @linear_util.transformation
    def doubled(factor, *args):
        result = yield [factor * a for a in args], {}
        yield result + 1

    @linear_util.transformation_with_aux
    def counted(*args):
        result = yield args, {}
        yield result, len(args)

    @linear_util.transformation2
    def negated(inner, *args):
        return -inner(*args)

    f, count = counted(
        negated(doubled(linear_util.wrap_init(lambda x, y, z=0: x + y + z, {"z": 5}), 2))
    )
    with pytest.raises(linear_util.StoreException):
        count()
    assert f.call_wrapped(1, 2) == -12 and count() == 2
    assert linear_util.merge_linear_aux(count, count) == (True, 2)


def test_functions_of_trees_as_functions_of_leaves():
    def f(a, *, b):
        return {"sum": a["x"] + b, "x": a["x"]}

    leaves, tree = sw.tree.flatten((({"x": 1},), {"b": 2}))
    flat, out_tree = api_util.flatten_fun(linear_util.wrap_init(f), tree)
    results = flat.call_wrapped(*leaves)
    assert sw.tree.unflatten(out_tree(), results) == {"sum": 3, "x": 1}
    part, rest = api_util.argnums_partial(
        linear_util.wrap_init(lambda a, b, c: (a, b, c)), 1, ["a", "b", "c"]
    )
    assert rest == ["b"] and part.call_wrapped("new") == ("a", "new", "c")
    assert api_util.donation_vector((0,), ("b",), tree) == (True, True)
    assert api_util.rebase_donate_argnums((0, 3), (1,)) == (0, 2)
    assert api_util.flatten_axes("axes", sw.tree.structure((1, (2, 3))), (0, None)) == [
        0,
        None,
        None,
    ]
    with pytest.raises(ValueError, match="must have the same length; got \\[2, 1\\]"):
        api_util.safe_map(lambda x, y: x, [1, 2], [1])


def test_what_is_known_runs_at_once():
    ran = []

    def f(x, y):
        known = jnp.sin(x)
        ran.append(type(known).__name__)
        return known, known + y, jnp.zeros(2)

    fun = linear_util.wrap_init(f)
    values = [
        pe.PartialVal.known(jnp.ones(2)),
        pe.PartialVal.unknown(ShapedArray((2,), np.float32)),
    ]
    program, outs, consts = pe.trace_to_jaxpr_nounits(fun, values)
    assert ran == ["Array"]
    assert [o.is_known() for o in outs] == [True, False, True]
    np.testing.assert_allclose(outs[0].get_known(), np.sin([1, 1]), rtol=1e-6)
    assert outs[1].get_aval() == ShapedArray((2,), np.float32)
    (total,) = core.jaxpr_as_fun(program)(*consts, np.ones(2, np.float32))
    np.testing.assert_allclose(total, np.sin([1, 1]) + 1, rtol=1e-6)
    program, outs, _ = pe.trace_to_jaxpr_nounits(fun, values, instantiate=True)
    assert not any(o.is_known() for o in outs) and len(program.outvars) == 3


def test_parameters_by_the_names_of_jax():
    def f(x):
        y = sw.jit(jnp.sin)(x)
        y, _ = sw.lax.scan(lambda c, a: (c + a, None), y, jnp.ones(3))
        y = sw.lax.while_loop(lambda c: c < 10, lambda c: c * 2, y)
        return y.astype(jnp.float16)

    closed = sw.make_jaxpr(f)(1.0)
    jit, *_, scan, loop, cast = closed.eqns
    assert jit.params["name"] == "sin" and jit.params["jaxpr"].jaxpr.eqns
    assert scan.params["jaxpr"] is scan.params["body"] and scan.params["num_carry"] == 1
    assert loop.params["cond_jaxpr"].eqns and loop.params.get("cond_nconsts") == 0
    assert cast.params["new_dtype"] == np.float16 and "jaxpr" not in cast.params
    assert jit.params.get("absent", 5) == 5
    with pytest.raises(KeyError, match="absent"):
        jit.params["absent"]
    rest = jit.params.copy()
    assert rest.pop("name") == "sin" and rest.pop("absent", 5) == 5
    assert rest.pop("jaxpr") is jit.params["jaxpr"] and set(rest) == set(jit.params) - {"program"}
    loop_rest = loop.params.copy()
    assert loop_rest.pop("cond_nconsts") == 0 and set(loop_rest) == {"body", "test", "num_body"}
    with pytest.raises(KeyError, match="program"):
        rest.pop("jaxpr")
    assert not (jit.primitive.call_primitive or jit.primitive.map_primitive)
    cosine = sw.make_jaxpr(jnp.cos)(1.0)
    for params in ({**jit.params, "jaxpr": cosine}, {"jaxpr": cosine}):
        (found,) = jit.primitive.bind(0.0, **params)
        assert found == 1
    eqns = [e.replace(params={**e.params, "jaxpr": cosine}) if e is jit else e for e in closed.eqns]
    changed = core.jaxpr_as_fun(closed.replace(eqns=eqns))(0.0)[0]
    assert changed == f(np.float32(np.pi / 2))


def test_values_of_transforms_around_a_program_are_its_constants():
    @sw.jit
    def f(x):
        closed = sw.make_jaxpr(lambda y: y * x + jnp.sin(x))(2.0)
        assert len(closed.jaxpr.constvars) == len(closed.consts) == 1
        (found,) = core.jaxpr_as_fun(closed)(2.0)
        return found

    np.testing.assert_allclose(f(3.0), 6 + np.sin(3.0), rtol=1e-6)
    np.testing.assert_allclose(sw.grad(f)(3.0), 2 + np.cos(3.0), rtol=1e-6)
    t = ShapedArray((2,), np.int32, weak_type=True)
    assert t.to_tangent_aval().dtype == sw.float0 and not t.strip_weak_type().weak_type


class Named(sw.core.Tracer):
    def __init__(self, trace, val):
        super().__init__(trace, sw.typeof(val))
        self.val = val


class Names(sw.core.Trace):
    """Records the primitives in a program, in JAX's style of interpreters."""

    def __init__(self, outer):
        super().__init__()
        self.outer, self.found = outer, []

    def process_primitive(self, primitive, tracers, params):
        values = [t.val if isinstance(t, Named) else t for t in tracers]
        self.found.append(
            (
                str(primitive),
                "jaxpr" in params.keys() | params.aliases.keys()
                if hasattr(params, "aliases")
                else False,
            )
        )
        out = primitive.bind_with_trace(self.outer, values, [sw.typeof(v) for v in values], params)
        return sw.tree.map(lambda v: Named(self, v), out)


@pytest.mark.parametrize("jitted", [False, True])
def test_interpreters_of_values(jitted):
    seen = []

    def f(x):
        with core.take_current_trace() as outer:
            trace = Names(outer)
            with core.set_current_trace(trace):
                y = sw.jit(jnp.sin)(Named(trace, x)) * 2
                y = sw.lax.cond(True, jnp.cos, jnp.sin, jnp.exp(y))
        seen.extend(trace.found)
        return y.val

    found = (sw.jit(f) if jitted else f)(jnp.ones(2))
    np.testing.assert_allclose(found, np.cos(np.exp(np.sin([1, 1]) * 2)), rtol=1e-6)
    assert seen[0] == ("jit", True) and ("mul", False) in seen and ("exp", False) in seen

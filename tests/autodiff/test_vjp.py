"""The object that `vjp` returns: what it retains, and cotangents that are accumulated into refs."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.core import eval_jaxpr

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

X = np.arange(3.0, dtype=np.float32)


def product(p):
    return p["a"] * p["b"] + p["b"]


def trees(lib):
    ones = lib.numpy.ones(3)
    return {"a": lib.numpy.asarray(X), "b": ones}, ones


def test_arguments_that_are_kept_are_told_apart():
    for lib in (jax, sw):
        p, ct = trees(lib)
        back = lib.vjp(product, p)[1]
        (kept,) = back.args_res
        assert kept[0] is p["a"] and kept[1] is p["b"]
        assert back.opaque_residuals == []
        (found,) = back(ct)
        np.testing.assert_array_equal(found["b"], X + 1)


def test_arguments_may_be_given_again():
    for lib in (jax, sw):
        p, ct = trees(lib)
        back = lib.vjp(product, p)[1]
        back.args_res[0] = None
        back.args_res[0] = (p["a"] * 2, p["b"])
        np.testing.assert_array_equal(back(ct)[0]["b"], 2 * X + 1)
        back.args_res = [(p["a"] * 3, p["b"])]
        np.testing.assert_array_equal(back(ct)[0]["b"], 3 * X + 1)


@pytest.mark.parametrize("ref", [np.zeros(4, np.float32), np.zeros(3, np.int32)])
def test_refs_for_cotangents_have_the_types_of_the_primals(ref):
    back = sw.vjp(lambda x, y: x * y, X, X)[1]
    found = message(ValueError, back.with_refs, sw.ad.GradValue(), sw.new_ref(jnp.asarray(ref)))
    assert found.startswith("vjp of <lambda>: with_refs: refs[1] is Ref{")
    assert sw.ad.DidntWant() == sw.ad.DidntWant() != sw.ad.GradValue()


def test_what_is_not_needed():
    back = sw.vjp(lambda x, y: jnp.sin(x) + y, jnp.asarray(X), jnp.asarray(X))[1]
    assert repr(back.args_res) == "[NotNeeded(), NotNeeded()]"
    (cosine,) = back.opaque_residuals
    np.testing.assert_allclose(cosine, np.cos(X), rtol=1e-6)
    assert back.in_tree == sw.tree.structure((0, 0))
    assert back.out_tree == sw.tree.structure(0)
    np.testing.assert_array_equal(back.fun(back.opaque_residuals, jnp.ones(3))[0], cosine)


def test_it_is_a_container_of_its_arrays():
    p, ct = trees(sw)
    back = sw.jit(lambda p: sw.vjp(product, p)[1])(p)
    np.testing.assert_array_equal(sw.jit(lambda b, ct: b(ct))(back, ct)[0]["b"], X + 1)
    assert len(sw.tree.leaves(back)) == 2
    assert repr(back) == "<vjp of product with 2 arrays>"


def test_the_linear_program():
    for lib, call in ((jax, eval_jaxpr), (sw, sw.core.eval_jaxpr)):
        p, ct = trees(lib)
        back = lib.vjp(product, p)[1]
        residuals = [p["b"], p["a"]]  # in the order in which they are needed
        assert len(back.jaxpr.constvars) == len(residuals)
        assert len(back.jaxpr.invars) == 2
        (tangent,) = call(back.jaxpr, residuals, ct, 2 * ct)
        np.testing.assert_array_equal(tangent, 2 * X + 3)
    assert [c is r for c, r in zip(back.jaxpr.consts, residuals, strict=True)] == [True, True]
    back.args_res = [(p["a"] * 3, p["b"])]
    np.testing.assert_array_equal(back.jaxpr(ct, 2 * ct)[0], 6 * X + 3)


def test_it_has_the_attributes_of_a_partial():
    p, ct = trees(sw)
    back = sw.vjp(product, p)[1]
    bound: Any = back.args[0]
    program = bound.func.args[1]
    assert back.keywords == {}
    assert isinstance(bound, sw.tree_util.Partial)
    assert len(sw.tree.leaves(bound)) == len(program.invars) - 2 == 2
    for found in (back(ct), back.func(*back.args, ct), bound(ct)):
        np.testing.assert_array_equal(found[0]["a"], np.ones(3))
        np.testing.assert_array_equal(found[0]["b"], X + 1)
    doubled = sw.tree.map(lambda x: 2 * x, bound)
    np.testing.assert_array_equal(back.func(doubled, ct)[0]["b"], 2 * X + 1)
    ref = sw.new_ref(jnp.asarray(X))
    kept = sw.vjp(lambda r: r[...] * 2.0, ref)[1]
    assert message(ValueError, kept.func, *kept.args, ct) == message(ValueError, kept, ct)


@pytest.mark.parametrize(("saved", "sines", "cosines"), [("cos", 0, 0), ("sin", 0, 2), ("", 1, 2)])
@pytest.mark.parametrize("lib", [jax, sw])
def test_the_linear_program_shows_what_checkpoint_saves(lib, saved, sines, cosines):
    f = lib.checkpoint(
        lib.pmap(lambda x: lib.numpy.sin(lib.numpy.sin(x))),
        policy=lambda op, *_, **__: str(op) == saved,
    )
    text = str(lib.vjp(f, lib.numpy.arange(1.0))[1].jaxpr)
    assert (text.count(" sin "), text.count(" cos ")) == (sines, cosines)


def test_cotangents_are_added_to_refs():
    held = []
    for lib in (jax, sw):
        back = lib.vjp(lambda x, y: x * y, lib.numpy.asarray(X), lib.numpy.asarray(2 * X))[1]
        first, second = lib.new_ref(lib.numpy.ones(3)), lib.new_ref(lib.numpy.zeros(3))
        for _ in range(2):
            back.with_refs(first, second)(lib.numpy.ones(3))
        held.append([np.asarray(first[...]), np.asarray(second[...])])
    np.testing.assert_array_equal(held[0], held[1])


def test_cotangents_without_a_ref_are_given():
    back = sw.vjp(lambda x, y: x * y, jnp.asarray(X), jnp.asarray(2 * X))[1]
    marked, plain = back.with_refs(sw.new_ref(jnp.ones(3)), 0.0)(jnp.ones(3))
    assert repr(marked) == "GradRef()"
    np.testing.assert_array_equal(plain, X)


def test_refs_take_cotangents_inside_of_jit():
    @sw.jit
    def total(x):
        back = sw.vjp(jnp.sin, x)[1]
        ref = sw.new_ref(jnp.zeros(3))
        back.with_refs(ref)(jnp.ones(3))
        return ref[...]

    np.testing.assert_allclose(total(jnp.asarray(X)), np.cos(X), rtol=1e-6)


def test_refs_must_be_in_the_tree_of_the_primals():
    back = sw.vjp(product, trees(sw)[0])[1]
    assert message(ValueError, back.with_refs, 0.0) == (
        "vjp of product: with_refs takes refs in the pytree structure of the primals, "
        "PyTreeDef(({'a': *, 'b': *},)); got PyTreeDef((*,))."
    )


# -- primals that are refs --


def scaled(x, r):
    r[...] = r[...] * x
    return (r[...] ** 2).sum()


def overwritten(x, r):
    r[...] = x * 2
    return (r[...] ** 2).sum()


def partly(x, r):
    r[0] = x[1] * 2
    return (r[...] ** 2).sum()


def only_read(x, r):
    return (x * r[...]).sum()


FUNCTIONS = [scaled, overwritten, partly, only_read]


def of_values(f, lib):
    """`f` as a function of its ref's value, which also returns the final value."""

    def pure(x, v):
        r = lib.new_ref(v)
        return f(x, r), lib.freeze(r)

    return pure


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("f", everyday(FUNCTIONS, 1))
def test_primals_that_are_refs(f, jitted):
    def run(x, r, g):
        out, back = sw.vjp(f, x, r)
        ct, marked = back.with_refs(sw.ad.GradValue(), g)(jnp.float32(3))
        assert isinstance(marked, sw.ad.GradRef)
        return out, ct

    ct = np.array([1, 10, 100], np.float32)
    r, g = sw.new_ref(X + 1), sw.new_ref(ct)
    out, found = (sw.jit(run) if jitted else run)(jnp.asarray(X), r, g)
    (wanted, last), back = jax.vjp(of_values(f, jax), X, X + 1)
    wanted_x, wanted_r = back((np.float32(3), ct))
    np.testing.assert_allclose(out, wanted)
    np.testing.assert_allclose(r[...], last)
    np.testing.assert_allclose(found, wanted_x)
    np.testing.assert_allclose(g[...], wanted_r)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_tangents_of_refs(f):
    held = []
    for lib in (jax, sw):
        xp = lib.numpy
        new = [lib.new_ref(xp.asarray(x)) for x in (X + 1, X, X + 1, X)]
        jvp = lib.jvp(f, (xp.asarray(X), new[0]), (xp.ones(3), new[1]))
        out, along = lib.linearize(f, xp.asarray(X), new[2])
        held.append([*jvp, out, along(xp.ones(3), new[3]), *[r[...] for r in new]])
    for theirs, ours in zip(*held, strict=True):
        np.testing.assert_allclose(np.asarray(theirs), ours)


def test_refs_of_integers_have_no_tangents():
    r = sw.new_ref(jnp.arange(3))
    found, none = sw.vjp(only_read, jnp.asarray(X), r)[1](jnp.float32(1))
    np.testing.assert_array_equal(found, X)
    assert none.dtype == sw.float0
    zeros = np.zeros(3, sw.float0)
    assert sw.jvp(only_read, (jnp.asarray(X), r), (jnp.ones(3), zeros))[1] == 3.0
    assert sw.linearize(only_read, jnp.asarray(X), r)[1](jnp.ones(3), zeros) == 3.0


def test_cotangents_of_integers_have_no_effect():
    """They may be of any dtype, as in jax, but have the shape of the result."""
    _, pull = sw.vjp(lambda x: (x * 2, jnp.argmax(x)), jnp.asarray(X))
    for ct in (1, np.float32(3), np.zeros((), sw.float0)):
        np.testing.assert_array_equal(pull((jnp.ones(3), ct))[0], np.full(3, 2))
    with pytest.raises(ValueError, match="must have its result's shape and dtype"):
        pull((jnp.ones(3), np.ones(2, np.int32)))


def test_results_beside_refs():
    def f(r):
        r[...] += 1
        return (r[...] ** 2).sum(), {"seen": r[...]}

    r, g = sw.new_ref(jnp.asarray(X)), sw.new_ref(jnp.zeros(3))
    out, back, aux = sw.vjp(f, r, has_aux=True)
    assert back.with_refs(g)(jnp.float32(1))[0].__class__ is sw.ad.GradRef
    np.testing.assert_array_equal(aux["seen"], X + 1)
    np.testing.assert_array_equal(g[...], 2 * (X + 1))
    assert (out, r[...].tolist()) == (14.0, [1, 2, 3])
    out, moved, aux = sw.jvp(f, (r,), (g,), has_aux=True)
    np.testing.assert_array_equal(aux["seen"], X + 2)
    assert (out, moved) == (29.0, 2 * (2 * 2 + 3 * 4 + 4 * 6))


def test_refs_among_arguments_that_are_not_differentiated():
    def f(x, r):
        r[...] += sw.lax.stop_gradient(x)
        return (x * r[...]).sum()

    for transform in (sw.grad, sw.jacrev, sw.jacfwd):
        r = sw.new_ref(jnp.ones(3))
        np.testing.assert_array_equal(transform(f)(jnp.asarray(X), r), X + 1)
        np.testing.assert_array_equal(r[...], X + 1)


def test_derivatives_keep_the_sharding_of_refs():
    mesh = sw.make_mesh((4,), ("a",), axis_types=(sw.sharding.AxisType.Auto,))
    split = sw.NamedSharding(mesh, sw.P("a"))
    x = sw.device_put(np.arange(8, dtype=np.float32), split)
    r, g = sw.new_ref(x), sw.new_ref(jnp.zeros_like(x))
    back = sw.vjp(scaled, x, r)[1]
    ct, _ = back.with_refs(sw.ad.GradValue(), g)(jnp.float32(1))
    assert ct.sharding == r.sharding == g.sharding == split
    np.testing.assert_allclose(g[...], 2 * np.arange(8.0) ** 3)


def test_cotangents_that_are_not_asked_for():
    x, r = jnp.asarray(X), sw.new_ref(X + 1)
    back = sw.vjp(scaled, x, r)[1]
    ct, none = back.with_refs(sw.ad.GradValue(), sw.ad.DontWant())(jnp.float32(1))
    np.testing.assert_array_equal(ct, 2 * X * (X + 1) ** 2)
    assert repr(none) == "DidntWant()"
    none, marked = back.with_refs(sw.ad.DontWant(), sw.new_ref(X))(jnp.float32(1))
    assert (repr(none), repr(marked)) == ("DidntWant()", "GradRef()")


def test_gradients_of_refs_are_no_values():
    ref = sw.new_ref(jnp.float32(3))
    for name in ("grad", "jacrev", "jacfwd", "value_and_grad"):
        assert message(TypeError, getattr(sw, name)(lambda r: r[...] ** 2), ref) == (
            f"{name.replace('value_and_', '')} of <lambda>: r is Ref{{f32[]}}, and the gradient "
            "of a ref is also a ref. Use `shardwise.vjp`, and `with_refs` of the function "
            "that it returns. Refs are accepted in arguments that are not differentiated."
        )


def test_refs_are_asked_for():
    x, r = jnp.asarray(X), sw.new_ref(X + 1)
    back = sw.vjp(scaled, x, r)[1]
    assert message(ValueError, back, jnp.float32(1)) == (
        "vjp of scaled: r is a Ref{f32[3]}, so its cotangent is also a ref. Pass one for each "
        "primal to `with_refs`, or `shardwise.ad.GradValue()` to get the cotangent as a value, or "
        "`shardwise.ad.DontWant()`, and call the function that it returns."
    )
    value = sw.ad.GradValue()
    assert message(TypeError, back.with_refs, value, sw.new_ref(jnp.ones(4))) == (
        "vjp of scaled: with_refs: r is a Ref{f32[3]}; its derivative must be a ref of the same "
        "shape and dtype; got Ref{f32[4]}."
    )
    assert message(TypeError, back.with_refs, value, value) == (
        "vjp of scaled: with_refs: r is a Ref{f32[3]}; its derivative must be a ref of the same "
        "shape and dtype; got GradValue() of type GradValue."
    )
    g = sw.new_ref(jnp.zeros(3))
    assert message(ValueError, back.with_refs, g, g) == (
        "vjp of scaled: with_refs: Ref{f32[3]} is passed more than once. The ref for r "
        "is overwritten: it must be a separate ref."
    )
    assert message(TypeError, sw.jvp, scaled, (x, r), (x, x)).startswith(
        "jvp of scaled: r is a Ref{f32[3]}; its derivative must be a ref of the same shape and "
        "dtype; got "
    )
    assert message(TypeError, sw.linearize(scaled, x, r)[1], g, g) == (
        "linearize of scaled: the tangent of x, which is of type f32[3], cannot be Ref{f32[3]}: a "
        "ref is the tangent of a ref of real or complex numbers."
    )
    assert message(ValueError, sw.jvp, scaled, (x, r), (x, r)) == (
        "jvp of scaled: Ref{f32[3]} is passed more than once, as r and the tangent of r. A write "
        "to one would have to be visible in the other: pass it once."
    )
    other = sw.new_ref(jnp.zeros(3))
    assert message(ValueError, sw.vjp, lambda r: (r[...] * other[...]).sum(), other).endswith(
        "is an argument of vjp of <lambda>, and that function also uses it from outside. A "
        "function that gets a ref must not access it in another way: use the argument."
    )
    assert message(TypeError, sw.vjp, lambda r: r, other) == (
        "vjp of <lambda>: the result: Ref{f32[3]} is a ref, not an array: read its value with "
        "`ref[...]`."
    )


def test_cotangents_that_are_not_wanted_are_not_computed():
    x = jnp.asarray(X)
    back = sw.vjp(lambda x, y: jnp.sin(x) * y, x, x)[1]
    back = back.with_refs(sw.ad.DontWant(), sw.ad.GradValue())
    ct = jnp.ones(3)
    run = sw.jit(lambda: back(ct))
    assert len(run.trace().jaxpr.eqns) == 1
    for nothing, found in (run(), back(ct)):
        assert nothing == sw.ad.DidntWant()
        np.testing.assert_allclose(found, np.sin(X), rtol=1e-6)

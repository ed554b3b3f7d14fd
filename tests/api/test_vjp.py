"""The object that `vjp` gives: what it keeps, and cotangents that are added to refs."""

import jax
import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.errors import message

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
        "vjp of product: with_refs takes refs in the tree of the primals, "
        "PyTreeDef(({'a': *, 'b': *},)); got PyTreeDef((*,))."
    )


def test_refs_are_no_values_that_derivatives_are_taken_of():
    def squared(r):
        return r[...] ** 2

    ref = sw.new_ref(jnp.float32(3))
    for name in ("grad", "vjp", "jvp", "linearize", "jacrev", "jacfwd"):
        f = getattr(sw, name)
        args = {"jvp": ((ref,), (ref,)), "vjp": (ref,), "linearize": (ref,)}.get(name)
        call = (lambda f=f, args=args: f(squared, *args)) if args else (lambda f=f: f(squared)(ref))
        assert message(TypeError, call) == (
            f"{name} of squared: r: Ref{{f32[]}} is a ref, not an array: read its value with "
            "`ref[...]`."
        )

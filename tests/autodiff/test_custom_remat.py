"""`custom_remat`: what is saved and what runs again, and derivatives."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import checkpoint_policies, lax
from tests.helpers.errors import message

X = np.float32(1.3)


def sine(saved: bool | None = True):
    """saved: whether the cosine is saved; None: if the policy names it."""

    def fwd(policy, x):
        named = isinstance(policy, checkpoint_policies.SaveOnlyTheseNames)
        save = named and "cos" in policy.saveable_names if saved is None else saved
        return jnp.sin(x), jnp.cos(x) if save else None

    def again(cos, x):
        return jnp.sin(x), (jnp.cos(x) if cos is None else cos,)

    return sw.custom_remat(jnp.sin, fwd, again, lambda residuals, ct: (residuals[0] * ct,))


def in_cond(f, x):
    return lax.cond(x < 9, f, lambda x: x, x)


def in_scan(f, x):
    return lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


@pytest.mark.parametrize("around", [lambda f, x: f(x), in_cond, in_scan])
def test_what_is_computed_again(around):
    policies = {"cos": 0, "sin": 1}
    for name, count in policies.items():
        policy = checkpoint_policies.save_only_these_names(name)
        f = sw.checkpoint(lambda x: around(sine(None), x), policy=policy)
        back = sw.make_jaxpr(sw.vjp(f, X)[1])(X)
        assert str(back).count(" cos ") == count
        assert abs(sw.grad(f)(X) - np.cos(X)) < 1e-6


@pytest.mark.parametrize("saved", [True, False])
def test_derivatives(saved):
    sin = sine(saved)
    for f in (sw.checkpoint(lambda x: sin(sin(x))), lambda x: sin(sin(x))):
        assert abs(f(X) - np.sin(np.sin(X))) < 1e-6
        sw.test_util.check_grads(f, (X,), 2, eps=1e-2, rtol=2e-2, atol=2e-2)
        slopes = sw.jit(sw.vmap(sw.grad(f)))(np.stack([X, X + 1]))
        np.testing.assert_allclose(slopes[0], np.cos(np.sin(X)) * np.cos(X), rtol=1e-5)


def test_static_arguments_and_pytrees():
    f = sw.custom_remat(
        lambda n, d: {"y": d["x"] * n},
        lambda policy, n, d: ({"y": d["x"] * n}, ()),
        lambda _, n, d: ({"y": d["x"] * n}, jnp.float32(n)),
        lambda n, ct: ({"x": 10 * n * ct["y"]},),
        static_argnums=0,
    )
    assert sw.grad(sw.checkpoint(lambda x: f(3, {"x": x})["y"]))(X) == 30
    assert sw.grad(lambda x: f(n=3, d={"x": x})["y"])(X) == 30


def test_rules_return_pairs():
    f = sw.custom_remat(jnp.sin, lambda policy, x: x, lambda r, x: (x, x), lambda r, ct: (ct,))
    assert message(TypeError, sw.grad(f), X).startswith(
        "f_fwd of custom_remat function sin must return a pair (result, residuals); it returned "
    )


def identity(f_rem=lambda residuals, x: (x, x), f_bwd=lambda x, ct: (ct,), **options):
    return sw.custom_remat(lambda x: x, lambda policy, x: (x, x), f_rem, f_bwd, **options)


def test_messages_name_custom_remat_and_its_functions():
    def wrong(x, ct):
        return ct, ct

    assert message(TypeError, sw.grad(identity(f_bwd=wrong)), X) == (
        "wrong, the f_bwd rule of custom_remat function <lambda>, must return a tuple with one "
        "cotangent for each of the 1 differentiable arguments; it returned 2 of them."
    )

    def nested(residuals, x):
        return [x], x

    assert message(TypeError, sw.grad(sw.jit(identity(f_rem=nested))), X) == (
        "nested, the f_rem rule of custom_remat function <lambda>, must return a result with the "
        "function's own pytree structure; out is a leaf in that of the function and a list of 1 in "
        "its own."
    )
    assert message(ValueError, identity, static_argnums=3) == (
        "custom_remat function <lambda>: static_argnums=(3,) must name its arguments, which are "
        "(x)."
    )
    assert message(TypeError, sw.grad(lambda x: identity()("text") * x), X) == (
        "custom_remat function <lambda>: args[0] is 'text' of type str, which is not an array. "
        "Name its position in static_argnums if it is a constant."
    )
    fixed = identity(static_argnums=0)
    assert message(sw.errors.UnexpectedTracerError, sw.jit(fixed), X) == (
        "custom_remat function <lambda> got a traced value of type f32[] for an argument in "
        "static_argnums, for which no rule returns a cotangent. Make it an ordinary argument, and "
        "return None for it from f_bwd."
    )
    assert repr(identity()) == "<custom_remat function <lambda>>"


def test_values_from_outside():
    def f(k, x):
        return sw.jit(
            sw.custom_remat(
                lambda x: x * k,
                lambda policy, x: (x * k, ()),
                lambda _, x: (x * k, ()),
                lambda _, ct: (ct,),
            )
        )(x)

    assert message(TypeError, sw.grad(f), X, X).startswith(
        "custom_remat function <lambda> uses a value from outside with respect to which"
    )

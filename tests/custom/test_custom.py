"""Functions with custom derivative rules, under every transform, against jax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardwise._src.autodiff.grad import grad, jvp, linearize, value_and_grad, vjp
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.control.scan_api import scan
from shardwise._src.core.checker import check_program
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.custom.custom_vmap import custom_vmap
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.types.dtypes import float0
from tests.helpers.comparing import close
from tests.helpers.eager import array, total
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

# The rules have factors 3 and 5 that the functions do not, to show that the rules are used.


def made_jvp(lib, sin, cos, mul):
    @lib
    def f(x, y):
        return {"s": mul(sin(x), y)}

    @f.defjvp
    def rule(primals, tangents):
        (x, y), (tx, ty) = primals, tangents
        moved = mul(mul(mul(tx, cos(x)), y), 3.0) + mul(mul(sin(x), ty), 5.0)
        return f(x, y), {"s": moved}

    return f


def made_vjp(lib, sin, cos, mul):
    @lib
    def f(x, y):
        return {"s": mul(sin(x), y)}

    def f_fwd(x, y):
        return f(x, y), (x, y)

    def f_bwd(residuals, ct):
        x, y = residuals
        return mul(mul(mul(ct["s"], cos(x)), y), 3.0), mul(mul(ct["s"], sin(x)), 5.0)

    f.defvjp(f_fwd, f_bwd)
    return f


def ours_mul(a, b):
    return a * b


F = {
    "jvp": made_jvp(custom_jvp, ew.sin, ew.cos, ours_mul),
    "vjp": made_vjp(custom_vjp, ew.sin, ew.cos, ours_mul),
}
JF = {
    "jvp": made_jvp(jax.custom_jvp, jnp.sin, jnp.cos, jnp.multiply),
    "vjp": made_vjp(jax.custom_vjp, jnp.sin, jnp.cos, jnp.multiply),
}
X, Y = np.float32([0.3, -0.7, 1.1]), np.float32([1.5, 0.2, -0.4])
KINDS = pytest.mark.parametrize("kind", ["jvp", "vjp"])


@KINDS
def test_the_value_is_the_functions_own(kind):
    close(F[kind](array(X), array(Y)), JF[kind](X, Y))
    close(jit(F[kind])(array(X), array(Y)), JF[kind](X, Y))


@KINDS
@pytest.mark.parametrize("wrap", ["plain", "jit outside", "jit inside", "both"])
def test_gradients_use_the_rule(kind, wrap):
    f, jf = F[kind], JF[kind]
    inner = jit(f) if wrap in ("jit inside", "both") else f
    g = grad(lambda x, y: total(ew.mul(inner(x, y)["s"], x)), (0, 1))
    wanted = jax.grad(lambda x, y: (jf(x, y)["s"] * x).sum(), (0, 1))(X, Y)
    close((jit(g) if wrap in ("jit outside", "both") else g)(array(X), array(Y)), wanted)


@KINDS
@pytest.mark.parametrize("wrap", [lambda f: f, jit])
def test_second_derivatives(kind, wrap):
    f, jf = F[kind], JF[kind]

    def second(grad, total, f):
        return grad(lambda x, y: total(grad(lambda x, y: total(f(x, y)["s"] * x))(x, y)), (0, 1))

    close(
        wrap(second(grad, total, wrap(f)))(array(X), array(Y)),
        second(jax.grad, jnp.sum, jf)(jnp.asarray(X), jnp.asarray(Y)),
    )


@KINDS
@pytest.mark.parametrize("axes", everyday([(0, None), (None, 1), (1, 0)], 1))
@pytest.mark.parametrize("order", ["grad of vmap", "vmap of grad", "with jit"])
def test_batching(kind, axes, order):
    f, jf = F[kind], JF[kind]
    args = [
        np.moveaxis(np.stack([v, v + 1]), 0, a) if a is not None else v
        for v, a in zip((X, Y), axes, strict=True)
    ]

    def grads(grad, vmap, jit, total, f):
        if order == "vmap of grad":
            return vmap(grad(lambda x, y: total(f(x, y)["s"] * x), (0, 1)), axes)
        inner = jit(f) if order == "with jit" else f
        mapped = vmap(lambda x, y: inner(x, y)["s"] * x, axes)
        g = grad(lambda x, y: total(mapped(x, y)), (0, 1))
        return jit(g) if order == "with jit" else g

    close(
        grads(grad, vmap, jit, total, f)(*map(array, args)),
        grads(jax.grad, jax.vmap, jax.jit, jnp.sum, jf)(*map(jnp.asarray, args)),
    )


@KINDS
def test_inside_scan(kind):
    f, jf = F[kind], JF[kind]

    def loss(scan, total, f):
        def step(c, x):
            s = f(c, x)["s"] + c
            return s, s

        def run(c, xs):
            c, ys = scan(step, c, xs)
            return total(c) + total(ys * ys)

        return run

    xs = np.stack([X, Y, X + Y])
    wanted = jax.grad(loss(jax.lax.scan, jnp.sum, jf), (0, 1))(jnp.asarray(Y), jnp.asarray(xs))
    g = grad(loss(scan, total, f), (0, 1))
    close(g(array(Y), array(xs)), wanted)
    close(jit(g)(array(Y), array(xs)), wanted)
    mapped = vmap(g, (0, None))(array(np.stack([Y, X])), array(xs))
    close(tuple(m[0] for m in map(np.asarray, mapped)), wanted)


def test_forward_mode_of_custom_jvp():
    args = (array(X), array(Y)), (array(Y), array(X))
    wanted = jax.jvp(JF["jvp"], (X, Y), (Y, X))
    close(jvp(F["jvp"], *args), wanted)
    close(jvp(jit(F["jvp"]), *args), wanted)
    close(jit(lambda p, t: jvp(F["jvp"], p, t))(*args), wanted)
    close(linearize(F["jvp"], *args[0])[1](*args[1]), wanted[1])


def test_forward_mode_of_custom_vjp_is_refused():
    args = (array(X), array(Y)), (array(Y), array(X))
    text = (
        "forward-mode differentiation (jvp, jacfwd, linearize) reached f, a custom_vjp function, "
        "whose rule is for reverse mode (grad, vjp, jacrev) only. Give it a rule with custom_jvp "
        "instead, which supports both."
    )
    for run in (
        lambda: jvp(F["vjp"], *args),
        lambda: jit(lambda p, t: jvp(F["vjp"], p, t))(*args),
        lambda: jvp(jit(F["vjp"]), *args),
    ):
        assert message(TypeError, run) == text


def test_a_staged_call_is_a_readable_equation_that_checks():
    program = jit(lambda x, y: F["jvp"](x, y)["s"]).trace(array(X), array(Y)).program
    check_program(program)
    assert (
        str(program)
        == """\
{ lambda ; a:f32[3] b:f32[3]. let
    c:f32[3] = custom_jvp_call[
      rule=f
      call_jaxpr={ lambda ; d:f32[3] e:f32[3]. let
          f:f32[3] = sin d
          g:f32[3] = mul f e
        in (g,) }
      num_consts=0
    ] a b
  in (c,) }"""
    )


def test_defjvps_sums_the_terms():
    def made(lib, sin, cos):
        @lib
        def f(x, y, z):
            return sin(x) * y

        f.defjvps(lambda t, ans, x, y, z: t * cos(x) * y, lambda t, ans, x, y, z: t * sin(x), None)
        return f

    f, jf = made(custom_jvp, ew.sin, ew.cos), made(jax.custom_jvp, jnp.sin, jnp.cos)
    wanted = jax.grad(lambda x, y, z: jf(x, y, z).sum(), (0, 1, 2))(X, Y, X)
    close(grad(lambda x, y, z: total(f(x, y, z)), (0, 1, 2))(array(X), array(Y), array(X)), wanted)


def test_default_arguments_and_names():
    @custom_jvp
    def f(x, scale=2.0):
        return x * scale

    f.defjvp(lambda p, t: (f(*p), t[0] * 10.0 * p[1]))
    close(grad(lambda x: total(f(x)))(array(X)), np.full(3, 20.0, np.float32))
    close(grad(lambda x: total(f(x, scale=array(4.0))))(array(X)), np.full(3, 40.0, np.float32))
    close(grad(lambda x: total(f(scale=3.0, x=x)))(array(X)), np.full(3, 30.0, np.float32))


def test_arguments_that_are_not_differentiated():
    def made(jvp_lib, vjp_lib, total):
        f = jvp_lib(lambda g, x, n: g(x) * n, nondiff_argnums=(0, 2))
        f.defjvp(lambda g, n, p, t: (f(g, p[0], n), t[0] * 7.0 * n))
        h = vjp_lib(lambda g, x, n: g(x) * n, nondiff_argnums=(0, 2))
        h.defvjp(lambda g, x, n: (h(g, x, n), None), lambda g, n, res, ct: (ct * 7.0 * n,))
        return [lambda x, f=f: total(f(lambda v: v * v, x, 3)) for f in (f, h)]

    for f, jf in zip(
        made(custom_jvp, custom_vjp, total),
        made(jax.custom_jvp, jax.custom_vjp, jnp.sum),
        strict=True,
    ):
        close(value_and_grad(f)(array(X)), jax.value_and_grad(jf)(jnp.asarray(X)))
        close(jit(grad(jit(f)))(array(X)), jax.grad(jf)(jnp.asarray(X)))


def test_none_and_integers_in_bwd():
    f = custom_vjp(lambda x, n, tree: x * 2.0)
    f.defvjp(lambda x, n, tree: (f(x, n, tree), ()), lambda res, ct: (ct * 9.0, None, None))
    n = array([1, 2, 3], np.int32)
    gx, gt = grad(lambda x, t: total(f(x, n, t)), (0, 1))(array(X), {"a": array(Y)})
    close((gx, gt), (np.full(3, 9.0, np.float32), {"a": np.zeros(3, np.float32)}))
    g = custom_vjp(lambda x, n: x * 2.0)
    g.defvjp(lambda x, n: (g(x, n), n), lambda n, ct: (ct, np.zeros(n.shape, float0)))
    close(grad(lambda x: total(g(x, n)))(array(X)), np.ones(3, np.float32))


def test_integer_results_have_no_tangent():
    f = custom_jvp(lambda x, n: (x * 2.0, n))
    f.defjvp(lambda p, t: (f(*p), (t[0] * 4.0, np.zeros((3,), float0))))
    n = array([1, 2, 3], np.int32)
    close(grad(lambda x: total(f(x, n)[0]))(array(X)), np.full(3, 4.0, np.float32))
    h = custom_vjp(lambda x, n: (x * 2.0, n))
    h.defvjp(lambda x, n: (h(x, n), None), lambda res, ct: (ct[0] * 4.0, None))
    close(jit(grad(lambda x: total(h(x, n)[0])))(array(X)), np.full(3, 4.0, np.float32))


def test_symbolic_zeros():
    seen = []
    f = custom_jvp(lambda x, y: x * y)

    def rule(primals, tangents):
        seen.append([type(t).__name__ for t in tangents])
        return f(*primals), tangents[0] * primals[1]

    f.defjvp(rule, symbolic_zeros=True)
    y = array(Y)
    close(grad(lambda x: total(f(x, y)))(array(X)), Y)
    assert seen == [["StageTracer", "SymbolicZero"]]


def test_symbolic_zeros_of_another_type_are_rejected():
    f = custom_vjp(lambda x, y: (x, y))
    f.defvjp(lambda x, y: ((x.value, y.value), None), lambda _, cts: cts[::-1], symbolic_zeros=True)
    text = message(ValueError, grad(lambda x, y: total(f(x, y)[0])), array(X), array(X[0]))
    assert text.startswith("<lambda>, the bwd rule of custom_vjp function <lambda>, must return")
    assert "SymbolicZero(f32[])" in text


def test_the_keyword_arguments_of_a_partial_are_its_own():
    f = custom_jvp(functools.partial(lambda x, y, a: x + y * a, a=0.5))
    f.defjvp(lambda primals, ts: (f(*primals), ts[0] * 10))
    assert f(1.0, 4.0) == 3.0 and grad(f)(1.0, 4.0) == 10.0
    assert "a cannot be keyword-only" in message(TypeError, jit(lambda x: f(x, 4.0, a=0.5)), 1.0)


@pytest.mark.parametrize("outer", [custom_jvp, custom_vjp])
def test_rules_of_a_custom_function_inside_another(outer):
    f = outer(custom_vmap(lambda x: x * 2.0))
    f.def_vmap(lambda size, batched, x: (x * 3.0, True))
    if outer is custom_jvp:
        f.defjvp(lambda primals, ts: (f(*primals), ts[0] * 5.0))
    else:
        f.defvjp(lambda x: (f(x), None), lambda _, ct: (ct * 5.0,))
    close(vmap(f)(array(X)), X * 3)
    assert grad(f)(1.0) == 5.0 and f(1.0) == 2.0
    assert message(AttributeError, lambda: f.def_other) == (
        f"{outer.__name__} functions have no attribute 'def_other'."
    )


def test_values_from_outside_may_be_used():
    w = array(Y)

    def loss(x, k):
        z = ew.sin(x)
        f = custom_vjp(lambda a: a * k * w)
        f.defvjp(lambda a: (f(a), None), lambda res, ct: (ct * k * w * 2.0,))
        return total(f(z))

    k = array(X)
    wanted = np.cos(X) * X * Y * 2
    close(grad(lambda x: loss(x, k))(array(X)), wanted)
    close(jit(grad(lambda x: loss(x, k)))(array(X)), wanted)
    close(jit(lambda x, k: grad(lambda x: loss(x, k))(x))(array(X), k), wanted)
    mapped = vmap(grad(loss), (None, 0))(array(X), array(np.stack([X, Y])))
    close(np.asarray(mapped)[:1], wanted[None])
    mapped = vmap(loss, (None, 0))(array(X), array(np.stack([X, Y])))
    close(np.asarray(mapped)[0], (np.sin(X) * X * Y).sum())
    both = vmap(lambda x, k: jit(lambda x: grad(loss)(x, k))(x), (None, 0))
    close(np.asarray(both(array(X), array(np.stack([X, Y]))))[:1], wanted[None])


def test_values_from_outside_may_not_be_differentiated_by():
    def loss(x, k):
        f = custom_jvp(lambda a: a * k)
        f.defjvp(lambda p, t: (f(*p), t[0] * k))
        return total(f(x))

    with pytest.raises(Exception, match="pass it as an argument") as error:
        grad(loss, (0, 1))(array(X), array(Y))
    assert type(error.value).__name__ == "UnexpectedTracerError"
    assert message(TypeError, lambda: grad(jit(loss), (0, 1))(array(X), array(Y))) == (
        "custom_jvp function <lambda> uses a value from outside with respect to which it is "
        "differentiated. Its rule only gives derivatives with respect to arguments: pass the value "
        "to <lambda> as an argument."
    )


def test_a_rule_that_runs_when_its_surroundings_are_gone():
    def loss(x, k):
        f = custom_vjp(lambda a: a * k)
        f.defvjp(lambda a: (f(a), None), lambda res, ct: (ct * k,))
        return total(f(x))

    assert message(UnexpectedTracerError, lambda: grad(jit(loss))(array(X), array(Y))) == (
        "the derivative rule of custom_vjp function <lambda> uses a traced value from outside. "
        "<lambda> was staged (by jit or scan) within the function that the value belongs to, and "
        "the rule runs after that function has ended. Pass the value to <lambda> as an argument."
    )


# -- messages --


def test_a_missing_rule_is_named():
    f, g = custom_jvp(F["jvp"].fun), custom_vjp(F["jvp"].fun)
    assert message(AttributeError, lambda: f(array(X), array(Y))) == (
        "custom_jvp function f has no derivative rule: define one with @f.defjvp."
    )
    assert message(AttributeError, lambda: g(array(X), array(Y))) == (
        "custom_vjp function f has no derivative rule: define one with f.defvjp(fwd, bwd)."
    )


def jvp_message(rule):
    @custom_jvp
    def f(x):
        return x * 2.0

    f.defjvp(rule)
    return message(TypeError, lambda: grad(lambda x: total(f(x)))(array(X)))


def test_what_a_jvp_rule_must_return():
    start = "the derivative rule of custom_jvp function f must return "
    assert jvp_message(lambda p, t: 3) == (
        start + "a pair (result, tangent); it returned 3 of type int."
    )
    assert jvp_message(lambda p, t: (p[0], [t[0]])) == (
        start + "a result and a tangent with the same pytree structure; out is a leaf in the "
        "result and a list of 1 in the tangent."
    )
    assert jvp_message(lambda p, t: (p[0], reduce_sum(t[0], axes=(0,)))) == (
        start + "tangents with the types of its results; it returned a tangent of type f32[] for a "
        "result of type f32[3]."
    )


def vjp_message(bwd, fwd=lambda x, y: (x * 2.0, y), kind=TypeError):
    @custom_vjp
    def f(x, y):
        return x * 2.0

    f.defvjp(fwd, bwd)
    return message(kind, lambda: grad(lambda x: total(f({"w": x}["w"], array(Y))))(array(X)))


def test_what_fwd_and_bwd_must_return():
    def bwd(res, ct):
        return bwd.result(ct)

    start = "bwd, the bwd rule of custom_vjp function f, must return "
    bwd.result = lambda ct: (ct,)
    assert vjp_message(bwd) == (
        start + "a tuple with one cotangent for each of the 2 differentiable arguments; it "
        "returned 1 of them."
    )
    bwd.result = lambda ct: (None, [ct])
    assert vjp_message(bwd) == (
        start + "cotangents with the pytree structures of the arguments; args[1] is a leaf in the "
        "argument and a list of 1 in the cotangent."
    )
    bwd.result = lambda ct: (reduce_sum(ct, axes=(0,)), None)
    assert vjp_message(bwd, kind=ValueError) == (
        start + "cotangents with the types of the arguments; it returned f32[] for args[0] of type "
        "f32[3]."
    )

    def fwd(x, y):
        return fwd.result(x)

    start = "fwd, the fwd rule of custom_vjp function f, must return "
    fwd.result = lambda x: x
    assert vjp_message(bwd, fwd) == (
        start + "a pair (result, residuals); it returned Array([ 0.3, -0.7,  1.1], dtype=float32) "
        "of type Array."
    )
    fwd.result = lambda x: (x, {"name": "a"})
    assert vjp_message(bwd, fwd) == (
        start + "residuals that are arrays; residuals['name'] is 'a' of type str. Name arguments "
        "that are constants in nondiff_argnums."
    )


def test_arguments_must_be_arrays():
    @custom_jvp
    def f(x, mode):
        return x

    f.defjvp(lambda p, t: (p[0], t[0]))
    assert message(TypeError, lambda: grad(lambda x: total(f(x, {"m": "fast"})))(array(X))) == (
        "custom_jvp function f: args[1]['m'] is 'fast' of type str, which is not an array. Name "
        "its position in nondiff_argnums if it is a constant."
    )


def test_results_of_rules_have_the_types_of_the_function():
    @custom_jvp
    def f(x):
        return {"y": x * 2.0}

    @custom_vjp
    def g(x):
        return {"y": x * 2.0}

    f.defjvp(lambda p, t: ({"y": p[0][:2]}, {"y": t[0][:2]}))
    g.defvjp(lambda x: ({"y": x.astype("float16")}, None), lambda res, ct: (ct["y"],))
    for h, kind, came in ((f, "jvp", "f32[2]"), (g, "vjp", "f16[3]")):
        run = jit(lambda x, h=h: total(h(x)["y"]))
        for transformed, shape in ((run, ""), (vmap(run), "1,")):
            x = array(X)[None] if shape else array(X)
            loss = lambda x, t=transformed: total(t(x))  # noqa: E731
            assert message(TypeError, lambda loss=loss, x=x: grad(loss)(x)) == (
                f"the rule of custom_{kind} function {h.name} must return a result with the types "
                f"of the function's result; out['y'] is of type {came.replace('[', '[' + shape)} "
                f"and not f32[{shape}3]."
            )


def test_places_of_arguments_that_are_not_differentiated():
    def f(x, k=1):
        return x

    assert message(ValueError, lambda: custom_jvp(f, nondiff_argnames="q")) == (
        "custom_jvp function f: nondiff_argnames=('q',) must name its arguments, which are "
        "(x, k=1)."
    )
    assert message(ValueError, lambda: custom_vjp(f, nondiff_argnums=(0, 2))) == (
        "custom_vjp function f: nondiff_argnums=(0, 2) must name its arguments, which are (x, k=1)."
    )
    g = custom_jvp(f, nondiff_argnums=-1)
    g.defjvp(lambda k, p, t: (p[0], t[0] * k))
    close(grad(lambda x: total(g(x, 3)))(array(X)), 3 * np.ones(3, np.float32))
    assert message(TypeError, lambda: grad(lambda x: total(g(x, q=1)))(array(X))) == (
        "custom_jvp function f(x, k=1) cannot be called with these arguments: got an unexpected "
        "keyword argument 'q'."
    )


def test_pulling_back_twice_gives_the_same():
    out, pull_back = vjp(lambda x: F["vjp"](x, x)["s"], array(X))
    close(pull_back(out), pull_back(out))


def overwriting(lib):
    """The cotangent of its argument is that of the result, plus 7."""
    f = lib(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct + 7.0,))
    return f


def dropping(lib):
    """The cotangent of its argument is zero."""
    f = lib(lambda x: x * 3)
    f.defvjp(lambda x: (x * 3, None), lambda _, ct: (None,))
    return f


CHAINS = {
    "directly": lambda f, n, x: n(f(x)),
    "by others": lambda f, n, x: n(f(x) * 3) + x,
    "twice": lambda f, n, x: n(n(f(x))),
    "unused": lambda f, n, x: (f(x), n(x))[1],
}


@pytest.mark.parametrize("form", CHAINS)
def test_rules_get_cotangents_that_are_zero(form):
    """A rule may return something for them: statistics, for instance, as `gradients`."""
    use, x = CHAINS[form], np.float32(1.5)
    wanted = jax.grad(lambda x: use(overwriting(jax.custom_vjp), dropping(jax.custom_vjp), x))(x)

    def ours(x):
        return use(overwriting(custom_vjp), dropping(custom_vjp), x)

    assert grad(ours)(x) == jit(grad(ours))(x) == wanted
    assert vmap(grad(ours))(x[None]).tolist() == [wanted]


@pytest.mark.parametrize("form", ["grad of jit", "jit of grad", "aux", "beside"])
def test_rules_are_not_called_for_results_that_nothing_uses(form):
    f, x = overwriting(custom_vjp), np.array([1, 2, 3], np.float32)
    step = lambda x: ((x**2).sum(), f(x))  # noqa: E731
    found = {
        "grad of jit": lambda: grad(lambda x: jit(step)(x)[0])(x),
        "jit of grad": lambda: jit(grad(lambda x: step(x)[0]))(x),
        "aux": lambda: grad(jit(step), has_aux=True)(x)[0],
        "beside": lambda: grad(lambda x: jit(lambda x: (f(x), x**2))(x)[1].sum())(x),
    }[form]()
    np.testing.assert_array_equal(found, 2 * x)

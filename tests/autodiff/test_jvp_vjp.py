"""Derivatives of complex functions, transposes, converted closures, and derivatives of shards."""

import functools
import importlib

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.testing.grads import check_grads
from tests.helpers.beside_jax import assert_same, ours, same
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

V = np.array([0.5, -1.2, 2.0], np.float32)
RNG = np.random.RandomState(0)
M = (RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3))).astype(np.complex64)
Z = M[0]
FLOAT0 = jax.dtypes.float0


# ----------------------------------------------------------------------------------- complex

# From complex to real numbers. (`sign`, whose derivative is zero in jax, is absent.)
TO_REAL = {
    "abs": lambda n, z: n.abs(z),
    "abs squared": lambda n, z: n.abs(z) ** 2,
    "angle": lambda n, z: n.angle(z),
    "real": lambda n, z: n.real(z * z),
    "imag": lambda n, z: n.imag(z * z),
    "conj": lambda n, z: n.real(n.conj(z) * z),
    "powers": lambda n, z: n.real(z**3 + z**-2) + n.imag(z ** (1.5 + 0.5j) + z**z),
    "quotients": lambda n, z: n.real(1 / z + z / (z + 2j)) + n.imag(n.reciprocal(z)),
    "product": lambda n, z: n.real(z @ z),
    "scans": lambda n, z: n.real(n.cumsum(z.ravel()) * z.ravel() + n.cumprod(z.ravel())),
    "sums": lambda n, z: n.real(n.sum(z) ** 2 + n.prod(z)) + n.imag(n.mean(z) ** 2),
    "variance": lambda n, z: n.var(z) + n.std(z),
    "where": lambda n, z: n.real(n.where(n.real(z) > 0, z, z * 1j) ** 2),
    "casts": lambda n, z: n.real(z.real.astype("complex64")) ** 2,
    "vdot": lambda n, z: n.real(n.vdot(z, z * 2j)) + n.imag(n.dot(z, z)),
    "pieces": lambda n, z: n.sum(n.real(z[1:] * z[:-1])) + n.sum(n.real(n.pad(z, 1) ** 2)),
    "sort": lambda n, z: n.real(n.sort(z.ravel()) * np.arange(z.size)),
    "maximum": lambda n, z: n.max(n.abs(z)) + n.linalg.norm(z),
    "parts": lambda n, z: n.abs(n.real(z) + 1j * n.imag(z) ** 2) + n.hypot(n.real(z), n.imag(z)),
}
HOLOMORPHIC = (
    "exp",
    "log",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "sqrt",
    "arctan",
    "arcsin",
    "arccos",
    "arcsinh",
    "arctanh",
    "log1p",
    "expm1",
    "square",
    "log2",
)


def derivatives(lib, n, f):
    """Derivatives of a real-valued function: rows, directions, and both in order."""

    def total(z):
        return n.sum(f(z))

    def steepness(z):
        return n.sum(n.abs(lib.grad(total)(z)) ** 2)

    return lambda z: {
        "grad": lib.grad(total)(z),
        "jvp": lib.jvp(f, (z,), (z * (1 + 1j),)),
        "grad of grad": lib.grad(steepness)(z),
        "vjp": lib.vjp(lambda z: f(z) * (1 + 1j), z)[1](f(z) * (2 - 1j)),
    }


@pytest.mark.parametrize("z", [Z, M], ids=["vector", "matrix"])
def test_complex_conventions(z):
    chosen = {k: TO_REAL[k] for k in everyday(TO_REAL, 1 / 8, str(z.shape))}

    def of(lib, n):
        found = {k: derivatives(lib, n, functools.partial(f, n)) for k, f in chosen.items()}
        return lib.jit(lambda z: {k: g(z) for k, g in found.items()})

    same(of, z, rtol=2e-3)


def test_holomorphic_functions():
    def of(lib, n):
        def all_of(name):
            f = getattr(n, name)
            parts = derivatives(lib, n, lambda z: n.real(f(z)) - 2 * n.imag(f(z)))
            holomorphic = lib.grad(lambda z: n.sum(f(z)), holomorphic=True)
            return lambda z: [parts(z), holomorphic(z)]

        found = [all_of(name) for name in everyday(HOLOMORPHIC, 1 / 6)]
        return lib.jit(lambda z: [g(z) for g in found])

    same(of, Z, rtol=2e-3)


COMPLEX_JACOBIANS = {
    "jacfwd": lambda lib, n: lib.jacfwd(lambda z: n.exp(z) * z, holomorphic=True),
    "hessian": lambda lib, n: lib.hessian(lambda z: n.sum(n.exp(z) * z), holomorphic=True),
    "jacrev to real": lambda lib, n: lib.jacrev(n.abs),
    "jacfwd from real": lambda lib, n: lambda z: lib.jacfwd(lambda x: x * (1 + 2j))(z.real),
    "jacrev of both": lambda lib, n: (
        lambda z: lib.jacrev(lambda z, x: n.abs(z) * x, argnums=(0, 1))(z, z.real)
    ),
}


@pytest.mark.parametrize("name", everyday(COMPLEX_JACOBIANS, 1))
def test_jacobians_of_complex_functions(name):
    same(COMPLEX_JACOBIANS[name], Z)


def test_complex_jacobians_that_do_not_exist():
    def f(z):
        return z * (1 + 2j)

    assert message(TypeError, sw.jacrev(f), V) == (
        "jacrev of f takes a function with real results; it returned c64[3]. Use jvp or vjp for "
        "other derivatives."
    )
    assert message(TypeError, sw.jacfwd(f), Z) == (
        "jacfwd of f takes real inputs; z is of type c64[3]. Use jvp or vjp for other derivatives."
    )


@pytest.mark.parametrize("name", everyday(["abs", "powers", "quotients", "pieces"], 1))
def test_second_derivatives_by_finite_differences(name):
    with sw.enable_x64(True):
        check_grads(functools.partial(TO_REAL[name], jnp), (Z.astype(np.complex128),), order=2)


def test_derivatives_of_compositions_by_finite_differences():
    """jit, scan, checkpoint and custom rules, in forward and reverse mode, to second order."""

    @sw.custom_jvp
    def sine(x):
        return jnp.sin(x)

    sine.defjvps(lambda t, out, x: t * jnp.cos(x))

    def f(x, z):
        @sw.checkpoint
        def block(c, x):
            return jnp.tanh(c * x) + sine(x), None

        c, _ = sw.lax.scan(block, x * 0.5, jnp.stack([x, x * 2]))
        return {"c": sw.jit(jnp.exp)(c), "z": jnp.abs(z) * jnp.sum(c)}

    with sw.enable_x64(True):
        check_grads(f, (V.astype(np.float64), Z.astype(np.complex128)), order=2)


@pytest.mark.sweep
def test_derivatives_of_draws():
    """They have no finite differences: samples are accepted and rejected."""

    def of(lib, n):
        def draw(a):
            return lib.random.gamma(lib.random.key(0), a) * V

        def both(a):
            _, along = lib.linearize(draw, a)
            return along(V), lib.linear_transpose(along, a)(V)

        return lib.jit(both)

    same(of, np.array([0.3, 1.5, 4.0], np.float32), rtol=1e-3)


# ----------------------------------------------------------------------- arguments of all kinds


MIXED = {
    "argnums": lambda lib, n: lambda: lib.grad(lambda x, y: n.sum(x * y**2), argnums=(-1, 0))(V, V),
    "integers": lambda lib, n: (
        lambda: lib.grad(lambda x, i: n.sum(x) * i, argnums=(0, 1), allow_int=True)(V, np.int32(2))
    ),
    "booleans": lambda lib, n: (
        lambda: lib.grad(lambda x, b: n.sum(n.where(b, x, 0)), argnums=(0, 1), allow_int=True)(
            V, V > 0
        )
    ),
    "vjp by integers": lambda lib, n: (
        lambda: lib.vjp(lambda x, i: (x * i, i + 1), V, n.arange(3))[1]((V, np.zeros(3, FLOAT0)))
    ),
    "linearize by integers": lambda lib, n: (
        lambda: lib.linearize(lambda x, i: (x * i, i + 1), V, n.arange(3))[1](
            V, np.zeros(3, FLOAT0)
        )
    ),
    "aux of vjp": lambda lib, n: lambda: lib.vjp(lambda x: (x * 2, {"q": x}), V, has_aux=True)[2],
    "aux of hessian": lambda lib, n: (
        lambda: lib.hessian(lambda x: (n.sum(x**3), x * 2), has_aux=True)(V)
    ),
    "hessian of a tree": lambda lib, n: (
        lambda: lib.hessian(lambda p, q: n.sum(p["a"] ** 2 * q) * p["b"], argnums=(0, 1))(
            {"a": V, "b": 2.0}, V
        )
    ),
    "names": lambda lib, n: lambda: lib.jacrev(lambda x, *, s: x * s)(V, s=2.0),
    "nothing": lambda lib, n: (
        lambda: (lib.jacrev(lambda x: x * 2)(V[:0]), lib.jacfwd(n.sum)(V[:0]))
    ),
    "half": lambda lib, n: lambda: lib.jacfwd(lambda x: x**2)(n.asarray(V, n.bfloat16)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", everyday(MIXED, 1))
def test_arguments_of_all_kinds(name):
    same(MIXED[name])


# ---------------------------------------------------------------------------- linear_transpose


TRANSPOSES = {
    "trees": lambda lib, n: lib.linear_transpose(lambda x: (x * 2, {"a": n.sum(x)}), V)(
        (V, {"a": np.float32(3)})
    ),
    "several": lambda lib, n: lib.linear_transpose(
        lambda x, y: x @ np.ones((3, 2), np.float32) + n.sum(y), V, V[:2]
    )(V[:2]),
    "integers": lambda lib, n: lib.linear_transpose(
        lambda x: x * 2 + n.sum(x), np.arange(3, dtype=np.int32)
    )(np.arange(3, dtype=np.int32)),
    "only types": lambda lib, n: lib.linear_transpose(
        lambda x: x[::2] * 2.0, lib.ShapeDtypeStruct((3,), "float32")
    )(V[:2]),
    "complex": lambda lib, n: lib.linear_transpose(lambda x: x * (1 + 2j) + n.sum(n.real(x)), Z)(Z),
    "unused": lambda lib, n: lib.linear_transpose(lambda x, y: 2 * x, V, V)(V),
    "under jit": lambda lib, n: lib.jit(lib.linear_transpose(lambda x: x * 3.0, V))(V),
    "differentiated": lambda lib, n: lib.grad(
        lambda w: n.sum(lib.linear_transpose(lambda x: x * w, V)(V)[0] ** 2)
    )(V),
    "scan": lambda lib, n: lib.linear_transpose(
        lambda x: lib.lax.scan(lambda c, x: (c + x, c), 0 * x[0], x), V
    )((np.float32(1), V)),
    "twice": lambda lib, n: lib.linear_transpose(
        lambda c: lib.linear_transpose(lambda x: n.cumsum(x), V)(c)[0], V
    )(V),
}


@pytest.mark.parametrize("name", everyday(TRANSPOSES, 3))
def test_linear_transpose(name):
    same(lambda lib, n: lambda: TRANSPOSES[name](lib, n))


def test_what_cannot_be_transposed():
    def f(x):
        return sw.jit(lambda a: a * a)(x)

    assert message(TypeError, sw.linear_transpose, f, V) == (
        "linear_transpose of f: the function is not linear, as [mul] is not linear in its operands "
        "that depend on the arguments: f32[3], f32[3]."
    )
    assert message(TypeError, sw.linear_transpose, lambda x: 1 / x, V) == (
        "linear_transpose of <lambda>: the function is not linear, as [div] is not linear in its "
        "operands that depend on the arguments: f32[3]."
    )
    assert message(TypeError, sw.linear_transpose, lambda x: x > 0, V) == (
        "linear_transpose of <lambda>: arguments and results must all be real or complex numbers, "
        "or all integers; got f32[3], bool[3]."
    )
    assert message(NotImplementedError, sw.linear_transpose(jnp.sin, V), V) == (
        "[sin] cannot be used under reverse-mode differentiation: its record has no `transpose` "
        "rule. Only linear functions can be transposed: that of `linear_transpose`, and custom "
        "derivative rules, which must be linear in the tangents."
    )
    back = sw.linear_transpose(lambda x: (x, x), V)
    assert message(TypeError, back, V) == (
        "linear_transpose of <lambda>: the cotangent must have the pytree structure of the result; "
        "ct is a tuple of 2 in the result and a leaf in the cotangent."
    )
    assert message(TypeError, back, (V, V[:2])) == (
        "linear_transpose of <lambda>: a cotangent must have its result's shape and dtype, "
        "f32[3]; got f32[2] for ct[1]."
    )
    assert message(TypeError, sw.linear_transpose(lambda x: x * 2, V), V[:2]) == (
        "linear_transpose of <lambda>: a cotangent must have its result's shape and dtype, "
        "f32[3]; got f32[2] for ct."
    )


# ----------------------------------------------------------------------------- functions as values


def test_closure_convert():
    def of(lib, n):
        def g(x):
            f, values = lib.closure_convert(lambda y: n.sin(y) * x + 3 * V, V)
            return n.sum(f(V, *values)), len(values)

        return lib.value_and_grad(g, has_aux=True)

    (_, count), _ = same(of, V)
    assert count == 1

    def weak(lib, n):
        loop = lib.closure_convert(
            lambda x: lib.lax.scan(lambda c, _: (c * 2, None), x, None, length=2)[0], 2.0
        )[0]
        return lambda: (loop(np.float32(3)), loop(3.0))

    same(weak)
    converted, values = sw.closure_convert(jnp.sin, V)
    assert values == []
    assert message(TypeError, converted, V, V) == (
        "closure_convert of sin: call the converted function with arguments like the examples, "
        "followed by the 0 hoisted values; only these has args[1]."
    )


def with_gradient(lib, n):
    """x y, with a rule that has an additional factor of 7."""

    @lib.custom_gradient
    def f(x, y):
        return {"r": x * y}, lambda ct: (ct["r"] * 7 * y, ct["r"] * n.sin(x))

    return lambda x, y: n.sum(f(x, y)["r"])


CUSTOM_GRADIENTS = {
    "value": lambda lib, n: with_gradient(lib, n)(V, V),
    "grad": lambda lib, n: lib.grad(with_gradient(lib, n), (0, 1))(V, V),
    "jit": lambda lib, n: lib.jit(lib.grad(lib.jit(with_gradient(lib, n)), (0, 1)))(V, V),
    "vmap": lambda lib, n: lib.vmap(
        lib.jit(lib.grad(lib.jit(with_gradient(lib, n)), (0, 1))), (0, None)
    )(np.stack([V, V]), V),
    "grad of grad": lambda lib, n: lib.grad(
        lambda x: n.sum(lib.grad(with_gradient(lib, n))(x, V) ** 2)
    )(V),
    "scan": lambda lib, n: lib.grad(
        lambda x: lib.lax.scan(
            lambda c, v: (c + with_gradient(lib, n)(v, x), None), np.float32(0), np.stack([V, V])
        )[0]
    )(V),
    "one argument": lambda lib, n: lib.grad(
        lib.custom_gradient(lambda x: (x**2, lambda ct: ct * x))
    )(3.0),
}


@pytest.mark.parametrize("name", CUSTOM_GRADIENTS)
def test_custom_gradient(name):
    same(lambda lib, n: lambda: CUSTOM_GRADIENTS[name](lib, n))


def test_what_custom_gradient_takes():
    def f(x):
        return x

    assert message(TypeError, sw.custom_gradient(f), 1.0) == (
        "custom_gradient: f must return a pair of its value and a function of cotangents; it "
        "returned 1.0."
    )


def scaled(lib):
    """r x, as a linear function of x whose transpose has an additional factor of 5."""
    return lambda r, x: lib.custom_derivatives.linear_call(
        lambda r, x: {"o": x["a"] * r}, lambda r, ct: {"a": ct["o"] * r * 5}, r, {"a": x}
    )["o"]


LINEAR_CALLS = {
    "value": lambda lib, n: scaled(lib)(2 * V, V),
    "jit": lambda lib, n: lib.jit(scaled(lib))(2 * V, V),
    "transpose": lambda lib, n: lib.linear_transpose(lambda x: scaled(lib)(2 * V, x), V)(V),
    "transposed twice": lambda lib, n: lib.linear_transpose(
        lambda c: lib.linear_transpose(lambda x: scaled(lib)(2 * V, x), V)(c)[0], V
    )(V),
}


@pytest.mark.parametrize("name", LINEAR_CALLS)
def test_linear_call(name):
    same(lambda lib, n: lambda: LINEAR_CALLS[name](lib, n))


def test_derivatives_of_linear_call():
    def loss(r, x):
        return jnp.sum(jnp.sin(scaled(sw)(r, x)))

    by_r, by_x = sw.grad(loss, (0, 1))(2 * V, V)
    slope = np.cos(2 * V * V)
    np.testing.assert_allclose(np.asarray(by_x), slope * 2 * V * 5, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(by_r), slope * V, rtol=1e-5)
    mapped = sw.jit(sw.vmap(sw.grad(loss, (0, 1)), (None, 0)))(2 * V, np.stack([V, V]))
    np.testing.assert_allclose(np.asarray(mapped[1]), np.stack([slope * 2 * V * 5] * 2), rtol=1e-5)
    _, t = sw.jvp(lambda x: scaled(sw)(2 * V, x), (V,), (V,))
    np.testing.assert_allclose(np.asarray(t), 2 * V * V, rtol=1e-6)


def test_what_linear_call_takes():
    call = sw.custom_derivatives.linear_call

    def back(r, ct):
        return ct[:2]

    assert message(TypeError, call, lambda r, x: x, back, V, V) == (
        "linear_call: back must return values with the types of linear_args; it returned f32[2] "
        "for linear_args of type f32[3]."
    )
    assert message(TypeError, call, lambda r, x: x, lambda r, ct: (ct, ct), V, V) == (
        "linear_call: <lambda> must return a pytree like linear_args; linear_args is a leaf in the "
        "arguments and a tuple of 2 in the result."
    )


def test_zeros():
    zero = sw.custom_derivatives.zero_from_primal
    assert zero(V).tolist() == [0, 0, 0] and zero(V).dtype == np.float32
    assert zero(np.arange(2)).dtype == FLOAT0
    symbolic = zero(V, symbolic_zeros=True)
    assert isinstance(symbolic, sw.custom_derivatives.SymbolicZero)
    assert (symbolic.shape, symbolic.dtype, symbolic.ndim) == ((3,), np.float32, 1)
    assert repr(symbolic) == "SymbolicZero(f32[3])"
    made = sw.custom_derivatives.SymbolicZero.from_primal_value(2.0)
    assert (made.shape, made.weak_type) == ((), False)


@pytest.mark.parametrize("name", ["ad_checkpoint", "custom_derivatives", "custom_batching"])
def test_names_are_those_of_jax(name):
    theirs = importlib.import_module(f"jax.{name}")
    wanted = {n for n in dir(theirs) if not n.startswith("_") and not n.endswith("_p")}
    assert wanted <= set(dir(importlib.import_module(f"shardwise.{name}")))
    policies = {n for n in dir(jax.checkpoint_policies) if not n.startswith("_")}
    assert policies <= set(dir(sw.checkpoint_policies))


# ---------------------------------------------------------------------------------- sharding


A, B = RNG.standard_normal((8, 4)).astype("f"), RNG.standard_normal((4, 2)).astype("f")
SHARDED = {
    "product": lambda n: lambda a, b: n.sin(a @ b),
    "one": lambda n: lambda a, b: n.sin(a),
    "linear": lambda n: lambda a, b: n.sum(a * 2) + n.sum(b),
    "tree": lambda n: lambda a, b: {"s": n.sum(n.sin(a), 0), "t": (b * 2, n.sum(a @ b))},
    "other": lambda n: lambda a, b: b * 3,
}


@pytest.mark.parametrize("which", everyday(["jacfwd", "jacrev", "hessian"], 1))
def test_jacobians_over_explicit_axes(which):
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    wanted = {k: getattr(jax, which)(f(jax.numpy), (0, 1)) for k, f in SHARDED.items()}
    wanted = jax.jit(lambda a, b: {k: g(a, b) for k, g in wanted.items()})(A, B)
    found = {k: getattr(sw, which)(f(jnp), (0, 1)) for k, f in SHARDED.items()}
    for of_a, of_b in ((("x", None), (None, "y")), ((("x", "y"),), ())):
        a = sw.device_put(A, sw.NamedSharding(mesh, sw.P(*of_a)))
        b = sw.device_put(B, sw.NamedSharding(mesh, sw.P(*of_b)))
        got = sw.jit(lambda a, b: {k: g(a, b) for k, g in found.items()})(a, b)
        assert_same(got, wanted, 1e-3, placed=False)
    if which == "jacrev":
        assert_same(found["product"](a, b), wanted["product"], 1e-3, placed=False)


@pytest.mark.parametrize("which", everyday(["jacfwd", "jacrev", "hessian"], 1))
def test_jacobians_over_uneven_shards(which):
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    x = np.linspace(-1, 1, 7, dtype=np.float32)
    placed = sw.device_put(x, sw.NamedSharding(mesh, sw.P("x")))

    def of(lib, n):
        f = (lambda x: n.sum(n.sin(x) * x)) if which == "hessian" else (lambda x: n.sin(x) * x)
        return getattr(lib, which)(f)

    wanted = of(jax, jax.numpy)(x)
    assert_same(of(sw, jnp)(placed), wanted, 1e-5, placed=False)
    assert_same(sw.jit(of(sw, jnp))(placed), wanted, 1e-5, placed=False)


def test_gradients_that_depend_on_nothing_are_where_the_arguments_are():
    def f(a, b):
        return jnp.sum(b * 2)

    a, b = ours(A, "x", "y"), ours(B, None, "y")
    for found in (sw.grad(f, (0, 1))(a, b), sw.vjp(f, a, b)[1](np.float32(1))):
        assert [g.sharding for g in found] == [a.sharding, b.sharding]
        assert_same(found, (0 * A, 0 * B + 2))
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    a = sw.device_put(A, sw.NamedSharding(mesh, sw.P("x", "y")))
    for grad in (sw.grad(f, (0, 1)), sw.jit(sw.grad(f, (0, 1)))):
        assert [g.sharding for g in grad(a, a)] == [a.sharding, a.sharding]
    assert sw.jit(jnp.zeros_like)(a).sharding == a.sharding


# ------------------------------------------------------------------- functions out of and into jit


def test_derivatives_pass_through_jit():
    def f(x, y):
        return {"s": jnp.sin(x) * y}

    back = sw.jit(lambda x, y: sw.vjp(f, x, y)[1])(V, 2 * V)
    along = sw.jit(lambda x, y: sw.linearize(f, x, y)[1])(V, 2 * V)
    wanted = sw.vjp(f, V, 2 * V)[1]({"s": V})
    for pull in (back, sw.jit(lambda pull, ct: pull(ct))):
        got = pull({"s": V}) if pull is back else pull(back, {"s": V})
        assert_same(got, jax.tree.map(np.asarray, wanted), placed=False)
    slope = np.cos(V) * 2 * V * V + np.sin(V) * V
    np.testing.assert_allclose(np.asarray(along(V, V)["s"]), slope, rtol=1e-5)
    assert len(sw.tree.leaves(back)) == len(sw.tree.leaves(along)) > 0
    back = sw.jit(lambda w: sw.linear_transpose(lambda x: x * w, V))(2 * V)
    np.testing.assert_allclose(np.asarray(back(V)[0]), 2 * V * V)
    assert repr(back) == "<transposed with 1 arrays>"
    with sw.checking_leaks():
        sw.jit(lambda x: sw.vjp(jnp.sin, x)[1])(V)


ALL_SAVED = functools.partial(sw.checkpoint, policy=sw.checkpoint_policies.everything_saveable)


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit, ALL_SAVED])
def test_residuals_that_are_results_are_one_array(wrap):
    f = wrap(jnp.exp)
    x = jnp.ones(4)
    before = {id(a) for a in sw.live_arrays()}
    y, pull = sw.vjp(f, x)
    assert [id(a) for a in sw.live_arrays() if id(a) not in before] == [id(y)]
    np.testing.assert_allclose(pull(jnp.ones(4))[0], np.exp(np.ones(4)), rtol=1e-6)
    assert len(sw.make_jaxpr(lambda x: sw.vjp(f, x)[1](x))(x).eqns[0].outvars) == 1

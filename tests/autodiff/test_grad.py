"""Derivatives: values and conventions of jax, on trees, nested, under jit and vmap."""

import functools

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.beside_jax import assert_same, ours, same, sharding, theirs
from tests.helpers.errors import fail, messages
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
V = np.array([0.5, -1.0, 2.0], np.float32)
Z = np.array([1 + 2j, -0.5 + 1j, 3 - 1j], np.complex64)
FLOAT0 = jax.dtypes.float0


def both(fun):
    """`fun(library, numpy)` returns a result to compare."""
    same(lambda lib, n: lambda: fun(lib, n))


# ----------------------------------------------------------------------------------- gradients


FUNCTIONS = {
    "polynomial": lambda n, x: (x**3 - 2 * x).sum(),
    "elementary": lambda n, x: (n.sin(x) * n.exp(-x) + n.tanh(x)).mean(),
    "products": lambda n, x: ((x @ x.T) ** 2).sum(),
    "maximum": lambda n, x: n.max(x) + n.maximum(x, 0.25).sum(),
    "select": lambda n, x: n.where(x > 0, x**2, -x).sum(),
    "norm": lambda n, x: n.sqrt((x * x).sum()),
    "softmax": lambda n, x: (n.exp(x) / n.exp(x).sum(-1, keepdims=True))[..., 0].sum(),
    "indices": lambda n, x: x[1:, ::2].prod() + x[-1, -1],
    "cumulative": lambda n, x: (n.cumsum(x) ** 2).sum(),
    "casts": lambda n, x: (x.astype("bfloat16") * 2).astype("float32").sum(),
    "reshapes": lambda n, x: (x.reshape(-1)[:6].reshape(2, 3).T ** 2).sum(),
    "constant": lambda n, x: 3.0,
    "untouched": lambda n, x: n.arange(3.0).sum(),
}


def test_gradients():
    def of(lib, n):
        functions = {k: functools.partial(fun, n) for k, fun in FUNCTIONS.items()}
        return lib.jit(lambda x: {k: lib.value_and_grad(f)(x) for k, f in functions.items()})

    same(of, X)


@pytest.mark.parametrize(
    "name", everyday(["polynomial", "select", "softmax", "constant", "untouched"], 2)
)
def test_eager_gradients(name):
    same(lambda lib, n: lib.value_and_grad(functools.partial(FUNCTIONS[name], n)), V)


@pytest.mark.sweep
def test_second_and_third_derivatives():
    def f(n):
        return lambda x: n.sin(x) * x**2

    for value in (0.7, np.float32(-1.2)):
        same(lambda lib, n: lib.grad(lib.grad(f(n))), value)
        same(lambda lib, n: lib.grad(lib.grad(lib.grad(f(n)))), value)


def test_python_scalars_stay_weak():
    assert sw.grad(lambda x: x * x)(3.0).weak_type
    assert not sw.grad(lambda x: x * x)(np.float32(3)).weak_type


def test_trees_and_argnums():
    def loss(n):
        return lambda p, x, q: n.sum(x @ p["w"] + p["b"][0]) ** 2 * q[1]

    params = {"w": X.T.copy(), "b": (V[0], None)}
    args = (params, X, (1.0, 2.0))
    same(lambda lib, n: lib.grad(loss(n)), *args)
    same(lambda lib, n: lib.grad(loss(n), argnums=(0, 2)), *args)
    same(lambda lib, n: lib.grad(loss(n), argnums=-1), *args)
    same(lambda lib, n: lib.value_and_grad(loss(n), (2, 0)), *args)
    assert sw.grad(loss(jnp))(*args)["b"][1] is None


def test_named_arguments_pass_through():
    grad = sw.grad(lambda x, *, scale, power=2: (scale * x**power).sum())
    np.testing.assert_allclose(np.asarray(grad(V, scale=3.0)), 6 * V, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(grad(V, scale=1.0, power=3)), 3 * V**2, rtol=1e-6)


def test_aux_is_anything():
    def f(x):
        return (x * x).sum(), {"double": x * 2, "text": "label", "none": None, "shape": x.shape}

    gradient, aux = sw.grad(f, has_aux=True)(V)
    np.testing.assert_allclose(np.asarray(gradient), 2 * V)
    assert aux["text"] == "label" and aux["none"] is None and aux["shape"] == (3,)
    np.testing.assert_allclose(np.asarray(aux["double"]), 2 * V)
    assert type(aux["double"]) is sw.Array
    (value, aux), gradient = sw.value_and_grad(f, has_aux=True)(V)
    assert float(value) == pytest.approx(5.25) and aux["text"] == "label"


def test_gradients_by_integers_are_float0():
    def of(lib, n):
        return lib.grad(lambda t: t["x"].sum() * t["i"], allow_int=True)

    got = same(of, {"x": V, "i": np.int32(3)})
    assert got["i"].dtype == FLOAT0 and type(got["i"]) is np.ndarray
    assert same(of, {"x": V, "i": np.array([True])[0]})["i"].shape == ()


def test_control_flow_on_concrete_values():
    def f(x):
        return x * x if x > 0 else -x

    assert float(sw.grad(f)(3.0)) == 6 and float(sw.grad(f)(-3.0)) == -1
    assert float(sw.grad(sw.grad(f))(3.0)) == 2


# ------------------------------------------------------------------------- complex conventions


def test_complex_conventions():
    def real_of(n):
        return lambda z: n.real(z * z * (2 + 1j)).sum() + n.imag(z).sum()

    def holomorphic(n):
        return lambda z: (n.sin(z) * z).sum()

    def to_complex(n):
        return lambda x: (x * (1 + 2j)) ** 2

    same(lambda lib, n: lib.grad(real_of(n)), Z)
    same(lambda lib, n: lib.grad(lambda z: n.sum(n.abs(z) ** 2)), Z)
    same(lambda lib, n: lib.grad(lambda z: (z * n.conj(z)).real.sum()), Z)
    same(lambda lib, n: lib.grad(holomorphic(n), holomorphic=True), Z)
    both(lambda lib, n: lib.jvp(to_complex(n), (V,), (V,)))
    both(lambda lib, n: lib.vjp(to_complex(n), V)[1](Z))
    both(lambda lib, n: lib.vjp(holomorphic(n), Z)[1](np.complex64(2 - 1j)))
    same(lambda lib, n: lib.jacfwd(lambda z: z * z, holomorphic=True), Z)
    same(lambda lib, n: lib.jacrev(lambda z: z * z, holomorphic=True), Z)


# ---------------------------------------------------------------------------- jvp, vjp, linear


def pair(n):
    return lambda x, t: {"a": n.sin(x) * t["s"], "b": (t["s"] ** 2, n.ones(2))}


def test_jvp():
    primals, tangents = (V, {"s": np.float32(2)}), (V * 2, {"s": np.float32(-1)})
    both(lambda lib, n: lib.jvp(pair(n), primals, tangents))
    both(lambda lib, n: lib.jvp(lambda x: (n.sin(x), x * 2), (V,), (V,), has_aux=True))
    both(lambda lib, n: lib.jvp(lambda x, i: x * i, (V, 3), (V, np.zeros((), FLOAT0))))
    both(lambda lib, n: lib.jvp(lambda x: (x > 0, x), (V,), (V,)))
    both(lambda lib, n: lib.jvp(n.sin, (2.0,), (1.0,)))


def test_vjp():
    ct = {"a": V, "b": (np.float32(3), np.ones(2, np.float32))}
    out, back = sw.vjp(pair(jnp), V, {"s": np.float32(2)})
    out_jax, back_jax = jax.vjp(pair(jax.numpy), V, {"s": np.float32(2)})
    assert_same((out, back(ct)), (out_jax, back_jax(ct)))
    assert_same(back(ct), back_jax(ct))
    out, back, aux = sw.vjp(lambda x: (x * 2, "aux"), V, has_aux=True)
    assert aux == "aux" and np.asarray(back(V)[0]).tolist() == (2 * V).tolist()
    out, back = sw.vjp(lambda x: (x * 2, x > 0), V)
    (g,) = back((V, np.zeros(3, FLOAT0)))
    np.testing.assert_allclose(np.asarray(g), 2 * V)


def test_linearize():
    calls = []

    def f(x, t):
        calls.append(1)
        return pair(jnp)(x, t)

    primals, tangents = (V, {"s": np.float32(2)}), (V * 2, {"s": np.float32(-1)})
    out, derivative = sw.linearize(f, *primals)
    expected_out, expected = sw.jvp(pair(jnp), primals, tangents)
    for _ in range(2):
        found = derivative(*tangents)
        np.testing.assert_allclose(np.asarray(found["a"]), np.asarray(expected["a"]), rtol=1e-6)
        np.testing.assert_allclose(np.asarray(found["b"][1]), 0)
    assert len(calls) == 1
    np.testing.assert_allclose(np.asarray(out["a"]), np.asarray(expected_out["a"]))
    out, derivative, aux = sw.linearize(lambda x: (x * x, "aux"), V, has_aux=True)
    assert aux == "aux"
    np.testing.assert_allclose(np.asarray(derivative(V)), 2 * V * V)
    np.testing.assert_allclose(np.asarray(sw.jit(derivative)(V)), 2 * V * V)


# ------------------------------------------------------------------------------------ Jacobians


@pytest.mark.parametrize("which", everyday(["jacfwd", "jacrev", "jacobian"], 1))
def test_jacobians(which):
    def of(fun, *args, **options):
        return same(lambda lib, n: getattr(lib, which)(fun(n), **options), *args)

    assert of(lambda n: lambda x: n.sin(x), V).shape == (3, 3)
    assert of(lambda n: lambda x: x @ x.T, X).shape == (4, 4, 4, 3)
    of(lambda n: lambda x: x[0] * 2.0, V)
    of(lambda n: lambda x: x * V, np.float32(2))
    of(lambda n: lambda x: 3 * x, 2.0)
    of(lambda n: lambda x, y: (x * y, {"s": y.sum()}), V, V, argnums=(0, 1))
    of(lambda n: lambda x, y: (x * y, {"s": y.sum()}), V, V, argnums=1)
    of(
        lambda n: lambda p: {"a": p["x"] ** 2 * p["y"], "c": n.ones(2)},
        {"x": V, "y": np.float32(2)},
    )
    jacobian, aux = getattr(sw, which)(lambda x: (x * x, {"text": "t"}), has_aux=True)(V)
    assert aux == {"text": "t"}
    np.testing.assert_allclose(np.asarray(jacobian), np.diag(2 * V))


def test_hessians():
    def f(n):
        return lambda x: (n.sin(x) * x**2).sum() * x[0]

    same(lambda lib, n: lib.hessian(f(n)), V)
    same(
        lambda lib, n: lib.hessian(lambda p: (p["a"] ** 2 * p["b"]).sum()),
        {"a": V, "b": np.float32(3)},
    )
    same(lambda lib, n: lib.hessian(lambda x, y: (x * y * y).sum(), argnums=(0, 1)), V, 2 * V)
    same(lambda lib, n: lib.jit(lib.hessian(f(n))), V)


def test_jacobians_by_integers():
    got = sw.jacrev(lambda i, x: i * x, argnums=(0, 1), allow_int=True)(np.int32(2), V)
    assert got[0].shape == (3,) and got[0].dtype == FLOAT0
    np.testing.assert_allclose(np.asarray(got[1]), 2 * np.eye(3))


# -------------------------------------------------------------------------------------- nesting


def mixed(n):
    return lambda x: (n.tanh(x @ x.T) * n.arange(4.0)).sum()


NESTINGS = {
    "grad of jit": lambda lib, n: lib.grad(lib.jit(mixed(n))),
    "jit of grad": lambda lib, n: lib.jit(lib.grad(mixed(n))),
    "grad of jit of grad": lambda lib, n: lib.grad(
        lambda x: (lib.jit(lib.grad(mixed(n)))(x) ** 2).sum()
    ),
    "jit of grad of jit": lambda lib, n: lib.jit(lib.value_and_grad(lib.jit(mixed(n)))),
    "vmap of grad": lambda lib, n: lib.vmap(lib.grad(lambda x: n.sin(x).prod())),
    "grad of vmap": lambda lib, n: lib.grad(lambda x: lib.vmap(lambda r: n.sin(r).prod())(x).sum()),
    "jvp of grad": lambda lib, n: lambda x: lib.jvp(lib.grad(mixed(n)), (x,), (x,)),
    "grad of jvp": lambda lib, n: lib.grad(lambda x: lib.jvp(mixed(n), (x,), (x * x,))[1]),
    "vmap of jit of grad": lambda lib, n: lib.vmap(lib.jit(lib.grad(lambda x: (x**3).sum()))),
    "vmap of vmap of grad": lambda lib, n: lib.vmap(lib.vmap(lib.grad(lambda x: x**3))),
    "jacfwd of jacrev of jit": lambda lib, n: (
        lambda x: lib.jacfwd(lib.jacrev(lib.jit(lambda r: n.sin(r).prod())))(x[0])
    ),
    "vmap of hessian": lambda lib, n: lib.vmap(lib.hessian(lambda x: n.sin(x).prod())),
    "vmap of jvp": lambda lib, n: lib.vmap(lambda x: lib.jvp(n.sin, (x,), (x,))),
    "linearize in jit": lambda lib, n: lib.jit(lambda x: lib.linearize(mixed(n), x)[1](x)),
    "vjp in vmap": lambda lib, n: lib.vmap(lambda x: lib.vjp(n.sin, x)[1](x)[0]),
}


@pytest.mark.parametrize("name", everyday(NESTINGS, 1))
def test_nesting(name):
    same(NESTINGS[name], X)


def test_a_closure_over_an_outer_derivative():
    def of(lib, n):
        return lambda x: lib.grad(lambda a: a * lib.grad(lambda b: a * b * b)(a))(x)

    same(of, 2.0)


# ------------------------------------------------------------------------------------- sharding


def test_gradients_of_sharded_arrays():
    def loss(n):
        return lambda w, x: (n.tanh(x @ w) ** 2).mean()

    x, w = np.ones((8, 4), np.float32) * 0.3, np.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8)
    for spec_w, spec_x in (((None, "y"), ("x",)), ((), ("x",)), (("y",), (None, "y"))):
        eager = sw.grad(loss(jnp))(ours(w, *spec_w), ours(x, *spec_x))
        staged = sw.jit(sw.grad(loss(jnp)))(ours(w, *spec_w), ours(x, *spec_x))
        expected = jax.jit(jax.grad(loss(jax.numpy)))(theirs(w, *spec_w), theirs(x, *spec_x))
        assert_same(staged, expected, rtol=1e-4)
        assert_same(eager, expected, rtol=1e-4, placed=False)
        assert eager.sharding.device_set == sharding().device_set


# --------------------------------------------------------------------------------------- errors


def fails(kind, message, fun, *args):
    assert error_of(kind, lambda: fun(*args)) == message


def loss(w):
    return w


def test_what_grad_cannot_take():
    fail(
        """
        sw.grad(loss)(V)
            TypeError: grad of loss takes a function that returns a scalar; it returned f32[3]. Sum
            it, or use jacrev or vjp.
        sw.grad(loss)({"n": np.int32(1)})
            TypeError: grad of loss takes real or complex inputs; w['n'] is of type i32[]. Convert
            it to a floating type, or pass allow_int=True for a trivial (float0) gradient.
        sw.grad(loss)({"a": 1.0})
            TypeError: grad of loss takes a function that returns a scalar; it returned the pytree
            {'a': *}. For additional results use has_aux=True.
        sw.grad(loss)(Z[0])
            TypeError: grad of loss takes a function that returns a real scalar; it returned c64[].
            For a holomorphic function pass holomorphic=True, for others use vjp.
        """,
        globals() | locals(),
    )

    def count(x):
        return (x > 0).sum()

    def magnitude(x):
        return abs(x)

    fail(
        """
        sw.grad(count)(V)
            TypeError: grad of count takes a function that returns a real scalar; it returned
            i32[]. Convert it to a floating type.
        sw.grad(loss, holomorphic=True)(V)
            TypeError: grad of loss with holomorphic=True takes complex inputs; w is of type
            f32[3]. Convert it to a complex type, or leave out holomorphic.
        sw.grad(magnitude, holomorphic=True)(1j)
            TypeError: grad of magnitude takes a function that returns a complex scalar; it returned
            ~f32[]. Without holomorphic=True, grad differentiates real results.
        sw.grad(count, holomorphic=True)(1j)
            TypeError: grad of count takes a function that returns a complex scalar; it returned
            i32[]. Convert it to a complex type.
        sw.jvp(loss, [V], (V,))
            TypeError: jvp of loss: primals and tangents must be both tuples or both lists; got list
            and tuple.
        sw.grad(loss, has_aux=True)(V)
            TypeError: loss must return a pair (value, aux) with has_aux=True; it returned an array
            of type f32[3].
        sw.grad(loss, argnums=1)(V)
            TypeError: grad of loss: argnums=1 refers to argument 1, but the function was called
            with 1 positional argument.
        sw.grad(loss, argnums=(0, -1))(V)
            ValueError: grad of loss: argnums=(0, -1) names an argument twice.
        """,
        globals() | locals(),
    )


def peak(w):
    return jnp.argmax(w)


@pytest.mark.parametrize("name", ["grad", "jacfwd", "hessian", "custom_gradient"])
def test_what_is_transformed_must_be_a_function(name):
    fails(TypeError, f"{name} takes a function; got 3 of type int.", getattr(sw, name), 3)


@pytest.mark.parametrize("name", ["vjp", "linearize", "linear_transpose", "closure_convert"])
def test_what_is_differentiated_must_be_a_function(name):
    fails(TypeError, f"{name} takes a function; got 3 of type int.", getattr(sw, name), 3, V)


def test_argnums_of_any_integer_type():
    same(
        lambda lib, n: (
            lambda x: (
                lib.grad(lambda a, b: (a * b * b).sum(), np.int64(1))(x, x),
                lib.jacrev(lambda a, b: a * b, np.int64(-1))(x, x),
            )
        ),
        V,
    )


def test_integer_results_have_trivial_columns():
    found = sw.jacfwd(lambda x: {"i": jnp.floor(x).astype(int), "x": x * x})(V)
    assert found["i"].dtype == sw.float0 and found["i"].shape == (3, 3)
    np.testing.assert_allclose(found["x"], np.diag(2 * V))


FORWARD_AND_BACK = {
    "two arguments": (lambda x, y: x * y, {"argnums": (0, 1)}),
    "one": (lambda x, y: x * y * y, {"argnums": 1, "jitted": False}),
    "aux": (lambda x, y: (x * y * y, {"y": y}), {"argnums": [-1], "has_aux": True}),
}


@pytest.mark.parametrize("name", FORWARD_AND_BACK)
def test_forward_and_backward_passes(name):
    f, options = FORWARD_AND_BACK[name]

    def of(lib, n):
        def run(x):
            forward, back = lib.fwd_and_bwd(f, **options)
            value, residuals, *aux = forward(x, x + 1)
            return value, back(residuals, x), aux

        return run

    same(of, V)


test_what_jvp_and_vjp_cannot_take = messages(
    """
sw.jvp(loss, 1.0, (1.0,))
    TypeError: jvp of loss: primals must be a tuple or list; got 1.0.
sw.jvp(loss, (V,), ((V, V),))
    TypeError: jvp of loss: primals and tangents must have the same pytree structure; args[0] is a
    leaf in the primals and a tuple of 2 in the tangents.
sw.jvp(loss, (V,), (V[:2],))
    ValueError: jvp of loss: a tangent must have its primal's shape and dtype; got f32[2] for w of
    type f32[3].
sw.jvp(loss, (V,), (V.astype("f2"),))
    TypeError: jvp of loss: a tangent must have its primal's shape and dtype; got f16[3] for w of
    type f32[3].
sw.jvp(loss, (np.int32(1),), (np.int32(1),))
    TypeError: jvp of loss: the tangent of w, which is of type i32[], must be of dtype float0; got
    i32[]. Make it with NumPy: np.zeros(shape, shardwise.float0).
sw.jvp(loss, (np.arange(3),), (np.zeros(2, sw.float0),))
    ValueError: jvp of loss: a tangent must have its primal's shape; got one of shape (2,) for w of
    type i32[3].
sw.vjp(peak, V)[1](np.zeros(3, sw.float0))
    ValueError: vjp of peak: a cotangent must have its result's shape; ct, for a result of type
    i32[], is of shape (3,).
sw.vjp(loss, V)[1]((V, V))
    ValueError: vjp of loss: the cotangent must have the pytree structure of the result; ct is a
    leaf in the result and a tuple of 2 in the cotangent.
sw.vjp(loss, V)[1](V[:2])
    ValueError: vjp of loss: a cotangent must have its result's shape and dtype, f32[3]; ct is of
    type f32[2].
sw.linearize(loss, V)[1](V[:2])
    ValueError: linearize of loss: a tangent must have its primal's shape and dtype; got f32[2] for
    w of type f32[3].
sw.linearize(loss, V)[1](V, V)
    TypeError: linearize of loss: tangents must have the pytree structure of the primals; only the
    tangents have args[1].
""",
    globals(),
)


test_what_jacobians_cannot_take = messages(
    """
sw.jacfwd(loss)(1 * np.int32(1))
    TypeError: jacfwd of loss takes real inputs; w is of type i32[]. Use jvp or vjp for other
    derivatives.
sw.jacrev(loss, holomorphic=True)(V)
    TypeError: jacrev of loss takes complex inputs with holomorphic=True; w is of type f32[3]. Use
    jvp or vjp for other derivatives.
""",
    globals(),
)


def test_a_part_in_64_bits():
    """Derivatives of a function with 32-bit arguments that computes in 64 bits."""

    def f(x):
        with sw.enable_x64(True):
            return jnp.sin(jnp.asarray(x, jnp.float64))

    assert f(5.0).dtype == np.float64
    np.testing.assert_allclose(sw.grad(f)(5.0), np.cos(np.float32(5)), rtol=1e-6)
    np.testing.assert_allclose(sw.grad(sw.grad(f))(5.0), -np.sin(np.float32(5)), rtol=1e-6)
    assert sw.grad(f)(5.0).dtype == np.float32

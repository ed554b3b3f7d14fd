"""The derivatives of the library's kernels, by kernels and of the kernels themselves."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise.kernels import library
from shardwise.test_util import check_grads
from tests.helpers.everyday import everyday
from tests.kernels.library.library_cases import CASES, INDICES, normal

SLOW = [pytest.param(name, marks=pytest.mark.sweep) for name in CASES if name != "rms_norm"]


def close(found, wanted, bound=1e-4):
    pairs = zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)


def total(f):
    """A scalar of a function's result, which weighs all elements differently."""
    return lambda *xs: (lambda y: jnp.sum(jnp.sin(y) * jnp.arange(y.size).reshape(y.shape)))(f(*xs))


@pytest.mark.parametrize("name", everyday(CASES, 4))
def test_gradients_are_those_of_the_same_function_without_a_kernel(name):
    case = CASES[name]
    numbers = tuple(range(len(case.args)))
    kernel = total(case.kernel)
    found, wanted = [sw.jit(sw.grad(f, numbers)) for f in (kernel, total(case.wanted))]
    close(found(*case.args), wanted(*case.args), 1e-3)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_derivatives_to_second_order(name):
    check_grads(sw.jit(CASES[name].kernel), CASES[name].args, 2)


@pytest.mark.parametrize("name", ["rms_norm", *SLOW])
def test_forward_mode_over_reverse_mode(name):
    case, x, *rest = CASES[name], *CASES[name].args

    def along(f):
        def product(x, t):
            return sw.jvp(sw.grad(lambda x: total(f)(x, *rest)), (x,), (t,))[1]

        return sw.jit(product)(x, np.cos(x))

    close(along(case.kernel), along(case.wanted), 5e-3)


def launches(program):
    """The names of all launches in a program, with those in the programs that it contains."""
    found = []
    for e in program.eqns:
        inner = e.params.get("programs", ())[:1] or [
            e.params[k] for k in ("program",) if k in e.params
        ]
        found += [e.params["launch"].name] if e.op.name == "kernel_call" else []
        found += [name for program in inner for name in launches(program)]
    return found


def test_the_derivative_is_a_kernel():
    for name, wanted in {
        "softmax": ["softmax", "softmax_vjp"],
        "rms_norm": ["rms_norm", "rms_norm_vjp"],
        "matmul": ["matmul"] * 4,  # with that of the sum before the activation
    }.items():
        case = CASES[name]
        numbers = tuple(range(len(case.args)))
        program = sw.make_jaxpr(sw.grad(total(case.kernel), numbers))(*case.args)
        assert launches(program) == wanted


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_the_kernels_of_derivatives_pass_checks(name):
    case = CASES[name]

    def back(*xs):
        out, f = sw.vjp(case.kernel, *xs)
        return f(out)

    close(kernels.checked(back)(*case.args), sw.jit(back)(*case.args), 1e-5)


def test_dtypes_of_derivatives():
    x, y = normal(5, 7, dtype=jnp.bfloat16), normal(7, 3, dtype=jnp.float8_e4m3fn)

    def f(x, y, scale):
        return library.matmul(x, y, x_scale=scale).astype("float32").sum()

    found = sw.jit(sw.grad(f, (0, 1, 2)))(x, y, normal(5))
    assert [g.dtype.name for g in found] == ["bfloat16", "float8_e4m3fn", "float32"]
    quantized = np.ones((2, 3), np.int8), np.ones((3, 4), np.int8)
    scaled = sw.grad(lambda scale: library.matmul(*quantized, y_scale=scale).sum())
    assert scaled(normal(4)).tolist() == [6, 6, 6, 6]


def test_indices_outside_have_no_cotangents():
    found = sw.jit(sw.grad(lambda w: library.histogram(INDICES, 7, w)[:4].sum()))(normal(9))
    assert found.tolist() == [1, 1, 1, 0, 0, 1, 0, 1, 1]

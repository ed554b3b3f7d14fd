"""The derivatives of the library's kernels, by kernels and of the kernels themselves."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as jnp
from shardwise.kernels import library
from shardwise.test_util import check_grads
from tests.kernels.library.library_cases import CASES, INDICES, chosen, close, normal


def total(f):
    """A scalar of a function's result, which weighs all elements differently."""
    return lambda *xs: (lambda y: (jnp.sin(y) * jnp.linspace(1, 2, y.size).reshape(y.shape)).sum())(
        f(*xs)
    )


def in_float64(f, *args):
    with sw.enable_x64(True):
        return sw.jit(f)(*[x.astype(np.float64) for x in args])


@pytest.mark.parametrize("name", chosen(8, of="kernels"))
def test_values_and_gradients_are_those_of_the_same_function_without_a_kernel(name):
    case = CASES[name]
    numbers = tuple(range(len(case.args)))

    def both(f):
        return lambda *xs: (f(*xs), sw.grad(total(f), numbers)(*xs))

    found, wanted = sw.jit(both(case.kernel))(*case.args), in_float64(both(case.wanted), *case.args)
    close(found[0], wanted[0], 5e-6)
    close(found[1], wanted[1], 5e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_derivatives_to_second_order(name):
    with sw.enable_x64(True):
        args = [x.astype(np.float64) for x in CASES[name].args]
        check_grads(sw.jit(CASES[name].kernel), args, 2)


SECOND = [
    pytest.param(name, mode, marks=[] if is_everyday else pytest.mark.sweep)
    for name in CASES
    for mode in ("forward", "reverse")
    for is_everyday in [(name, mode) == ("rms_norm", "forward")]
]


@pytest.mark.parametrize(("name", "mode"), SECOND)
def test_derivatives_of_gradients(name, mode):
    case, numbers = CASES[name], tuple(range(len(CASES[name].args)))

    def along(f):
        back = sw.grad(total(f), numbers)
        if mode == "forward":
            return lambda *xs: sw.jvp(back, xs, tuple(map(jnp.cos, xs)))[1]
        return sw.grad(lambda *xs: sum((g**2).sum() for g in back(*xs)), numbers)

    close(sw.jit(along(case.kernel))(*case.args), in_float64(along(case.wanted), *case.args), 5e-4)


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


def test_second_derivatives_of_products_are_kernels():
    case = CASES["experts ragged"]
    back = sw.grad(total(case.kernel), (0, 1))
    second = sw.grad(lambda *xs: sum((g**2).sum() for g in back(*xs)), (0, 1))
    program = sw.make_jaxpr(second)(*case.args)
    assert len(launches(program)) >= 9 and "while" not in str(program)


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

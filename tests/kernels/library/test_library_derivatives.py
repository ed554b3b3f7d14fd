"""The derivatives of the library's kernels, by kernels and of the kernels themselves."""

from itertools import product

import numpy as np
import pytest

import shardwise as sw
from shardwise import nn
from shardwise import numpy as jnp
from shardwise.kernels import library
from shardwise.test_util import check_grads
from tests.helpers.everyday import everyday
from tests.kernels.library.library_cases import CASES, INDICES, normal

MODES = {"kernel": ["rev"], "automatic": ["fwd", "rev"]}


def close(found, wanted, bound=1e-4):
    pairs = zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound)


def total(f):
    """A scalar of a function's result, which weighs all elements differently."""
    return lambda *xs: (lambda y: jnp.sum(jnp.sin(y) * jnp.arange(y.size).reshape(y.shape)))(f(*xs))


@pytest.mark.parametrize(("name", "derivative"), everyday(product(CASES, MODES), 7))
def test_gradients_are_those_of_the_same_function_without_a_kernel(name, derivative):
    case = CASES[name]
    numbers = tuple(range(len(case.args)))
    kernel = total(lambda *xs: case.kernel(*xs, derivative=derivative))
    found, wanted = [sw.jit(sw.grad(f, numbers)) for f in (kernel, total(case.wanted))]
    close(found(*case.args), wanted(*case.args), 1e-3)


@pytest.mark.parametrize(("name", "derivative"), everyday(product(CASES, MODES), 2, of="second"))
def test_derivatives_to_second_order(name, derivative):
    case = CASES[name]
    kernel = sw.jit(lambda *xs: case.kernel(*xs, derivative=derivative))
    check_grads(kernel, case.args, 2, modes=MODES[derivative])


@pytest.mark.parametrize("name", everyday(CASES, 1))
def test_forward_mode_over_reverse_mode(name):
    case, x, *rest = CASES[name], *CASES[name].args

    def along(f):
        def product(x, t):
            return sw.jvp(sw.grad(lambda x: total(f)(x, *rest)), (x,), (t,))[1]

        return sw.jit(product)(x, np.cos(x))

    close(along(case.kernel), along(case.wanted), 5e-3)


def test_the_derivative_is_a_kernel():
    for name, kernels in (("softmax", ["softmax", "softmax_vjp"]), ("matmul", ["matmul"] * 4),
                          ("rms_norm", ["rms_norm", "rms_norm_vjp"])):  # fmt: skip
        case = CASES[name]
        numbers = tuple(range(len(case.args)))
        program = sw.make_jaxpr(sw.grad(total(case.kernel), numbers))(*case.args)
        launches = [e.params["launch"].name for e in program.eqns if e.op.name == "kernel_call"]
        assert launches == kernels


def test_the_kernels_of_derivatives_pass_checks():
    _, pull = sw.vjp(lambda x: library.softmax(x, blocks=(4, 4), check=True), normal(5, 7))
    wanted = sw.vjp(nn.softmax, normal(5, 7))[1](normal(5, 7))
    close(pull(normal(5, 7)), wanted)


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


def test_forward_mode_needs_another_option():
    case = CASES["softmax"]
    with pytest.raises(TypeError, match="softmax"):
        sw.jvp(case.kernel, case.args, case.args)

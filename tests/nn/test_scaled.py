"""Products of block-scaled matrices: against the formats of ml_dtypes, in NumPy;
and orthogonal initial values."""

import itertools

import jax
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import nn, random
from shardwise._src.numpy.result_types import float8_e8m0fnu
from shardwise.nn import initializers
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

F32 = np.float32
RNG = np.random.default_rng(0)
LHS = RNG.standard_normal((3, 32, 64)).astype(F32) * 3
RHS = RNG.standard_normal((3, 64, 32)).astype(F32)
NUMBERS = (((2,), (1,)), ((0,), (0,)))
FORMATS = {
    "mxfp8": (32, ml_dtypes.float8_e4m3fn),
    "mxfp4": (32, ml_dtypes.float4_e2m1fn),
    "nvfp4": (16, ml_dtypes.float4_e2m1fn),
}


def rounded(x, mode, scale=1):
    """The values of (…, k) after quantization and dequantization."""
    size, data = FORMATS[mode]
    blocks = x.reshape(*x.shape[:-1], -1, size) / F32(scale if mode == "nvfp4" else 1)
    top = F32(ml_dtypes.finfo(data).max)
    by = np.abs(blocks).max(-1, keepdims=True) / top
    if mode == "nvfp4":
        by = np.clip(by, 0, 448).astype(ml_dtypes.float8_e4m3fn).astype(F32)
    else:
        by = F32(2) ** np.ceil(np.log2(by))
    small = np.clip(blocks / by, -top, top).astype(data).astype(F32) * by
    return (small * (scale if mode == "nvfp4" else 1)).reshape(x.shape)


def configs(mode, scale=None):
    return [nn.get_scaled_dot_general_config(mode, scale) for _ in range(3)]


@pytest.mark.parametrize("mode", everyday(FORMATS, 1))
def test_values(mode):
    scale = np.array([0.5], F32) if mode == "nvfp4" else None
    got = nn.scaled_dot_general(LHS, RHS, NUMBERS, configs=configs(mode, scale))
    wanted = rounded(LHS, mode, 0.5) @ rounded(RHS.mT.copy(), mode, 0.5).mT
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)
    half = nn.scaled_dot_general(LHS, RHS, NUMBERS, "bfloat16", configs(mode, scale))
    assert half.dtype == "bfloat16"
    np.testing.assert_allclose(np.asarray(half, F32), wanted, rtol=0.02, atol=0.1)


@pytest.mark.sweep
def test_numbers_beside_the_middle_are_rounded_once():
    x = np.zeros((1, 32), F32)
    x[0, :6] = 6, 2.5000002, -0.25000003, 0.2500001, 2.5, 5.000001
    one = np.eye(32, dtype=F32)
    got = nn.scaled_dot_general(x, one, (((1,), (1,)), ((), ())), configs=configs("mxfp4"))
    assert got[0, :6].tolist() == [6, 3, -0.5, 0.5, 2, 6]


@pytest.mark.parametrize("mode", everyday(FORMATS, 2))
def test_derivatives(mode):
    """The derivatives of a product of the quantized operands, for quantized cotangents."""
    ct = RNG.standard_normal((3, 32, 32)).astype(F32)
    dot = lambda x, y: nn.scaled_dot_general(x, y, NUMBERS, configs=configs(mode))  # noqa: E731
    out, pull = sw.vjp(sw.jit(dot), LHS, RHS)
    assert out.shape == (3, 32, 32)
    left, right = pull(ct)
    mine = (lambda x: x) if mode == "nvfp4" else lambda x: rounded(x, mode)
    np.testing.assert_allclose(left, mine(ct) @ mine(RHS).mT, rtol=1e-4, atol=1e-3)
    wanted = mine(LHS.mT.copy()) @ mine(ct.mT.copy()).mT
    np.testing.assert_allclose(right, wanted, rtol=1e-4, atol=1e-3)


def test_what_is_cut_off_has_no_derivative():
    x = LHS[0].copy()
    x[0, 0] = 6 * 448 * 1.5
    grad = sw.grad(
        lambda a: nn.scaled_dot_general(
            a, RHS[0], (((1,), (0,)), ((), ())), configs=configs("nvfp4")
        ).sum()
    )(x)
    assert grad[0, 0] == 0 and grad[0, 1] != 0


def test_any_dimensions():
    x, y = RNG.standard_normal((4, 32, 2, 6)).astype(F32), RNG.standard_normal((6, 2, 5, 32))
    y = y.astype(F32)
    numbers = (((2, 1), (1, 3)), ((3,), (0,)))  # 64 are contracted, in the order (32, 2) of x
    got = nn.scaled_dot_general(x, y, numbers, configs=configs("mxfp8"))
    a = rounded(x.transpose(3, 0, 1, 2).reshape(6, 4, 64), "mxfp8")
    b = rounded(y.transpose(0, 2, 3, 1).reshape(6, 5, 64), "mxfp8")
    np.testing.assert_allclose(got, a @ b.mT, rtol=1e-5, atol=1e-4)
    plain = nn.scaled_dot_general(x, y, numbers)
    np.testing.assert_allclose(plain, np.einsum("akcb,bcnk->ban", x, y), rtol=1e-4, atol=1e-4)
    many = sw.vmap(lambda x: nn.scaled_dot_general(x, y, numbers, configs=configs("mxfp8")))
    np.testing.assert_allclose(many(np.stack([x, 2 * x]))[1], 2 * got, rtol=1e-5)


def test_scaled_matmul():
    a = RNG.standard_normal((2, 3, 8)).astype(F32)
    scales = np.array([0.5, 2], F32) ** RNG.integers(-2, 3, (2, 3, 2))
    small, by = a.astype(ml_dtypes.float8_e4m3fn), scales.astype(float8_e8m0fnu.dtype)
    got = nn.scaled_matmul(small, small[:, :2], by, by[:, :2])
    wide = small.astype(F32) * np.repeat(by.astype(F32), 4, -1)
    np.testing.assert_allclose(got, wide @ wide[:, :2].mT, rtol=1e-5)
    assert got.dtype == F32
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
    put = sw.device_put(small, NamedSharding(mesh, P("x", None, "y")))
    np.testing.assert_allclose(nn.scaled_matmul(put, small[:, :2], by, by[:, :2]), got, rtol=1e-6)


def test_messages():
    one = np.zeros((1, 2, 8), F32)
    for args, problem in [
        ((one[0], one, one, one), "must have three dimensions"),
        ((one, one[..., :4], one, one), "must have equal batch and last dimensions"),
        (
            (one, one, one[:, :1], one),
            "must have scales for each row, the same number for both operands",
        ),
        (
            (one, one, one[..., :3], one[..., :3]),
            "must have a last dimension that is a multiple of that of the scales",
        ),
    ]:
        shown = ", ".join(f"f32[{','.join(map(str, x.shape))}]" for x in args)
        assert message(ValueError, lambda args=args: nn.scaled_matmul(*args)).startswith(
            f"scaled_matmul: the operands {problem}; got {shown.split(', ')[0]}"
        )
    dot = nn.scaled_dot_general
    assert message(ValueError, lambda: nn.get_scaled_dot_general_config("fp4")) == (
        "get_scaled_dot_general_config: mode must be 'nvfp4', 'mxfp8' or 'mxfp4'; got 'fp4'."
    )
    assert message(ValueError, lambda: nn.get_scaled_dot_general_config("mxfp8", np.ones(1))) == (
        "get_scaled_dot_general_config: mxfp8 has no global_scale; the scales of its blocks are "
        "all powers of two."
    )
    assert message(TypeError, lambda: dot(LHS, RHS, NUMBERS, "int32", configs("mxfp8"))) == (
        "scaled_dot_general: preferred_element_type must be float32, bfloat16 or float16; got "
        "int32."
    )
    assert message(ValueError, lambda: dot(LHS, RHS, NUMBERS, configs=configs("mxfp8")[:2])) == (
        "scaled_dot_general: configs must be three, for lhs, rhs and the cotangents; got 2."
    )
    numbers = (((2,), (1,)), ((), ()))
    assert message(
        ValueError, lambda: dot(LHS[..., :40], RHS[:, :40], numbers, configs=configs("mxfp8"))
    ) == (
        "scaled_dot_general: mxfp8 has blocks of 32 elements, and the 40 contracted elements are "
        "not a multiple of that."
    )
    with pytest.warns(DeprecationWarning, match=r"the compiler chooses\. It is removed in 0\.4\.0"):
        dot(LHS, RHS, NUMBERS, implementation="cudnn")


# -- orthogonal initial values --

CASES = [
    *itertools.product(["orthogonal"], [(3, 4, 5), (4, 5), (5, 4), (0, 3)], [-1, 0]),
    *itertools.product(["delta_orthogonal"], [(3, 4, 5), (2, 3, 4, 5), (3, 2, 1, 4, 4)], [-1]),
]


@pytest.mark.parametrize(("name", "shape", "axis"), everyday(CASES, 1))
def test_orthogonal(name, shape, axis):
    ours, theirs = [getattr(lib, name)(2.0, axis) for lib in (initializers, jax.nn.initializers)]
    got, wanted = ours(random.key(0), shape), theirs(jax.random.key(0), shape)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_orthogonal_in_parts():
    mesh = Mesh(np.array(sw.devices()[:4]), ("x",), axis_types=(AxisType.Explicit,))
    init = initializers.orthogonal(dtype="complex64")
    whole = init(random.key(0), (8, 8))
    with sw.set_mesh(mesh):
        parts = init(random.key(0), (8, 8), out_sharding=NamedSharding(mesh, P("x")))
    assert parts.sharding.spec == P("x", None)
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    np.testing.assert_allclose(whole @ whole.conj().T, np.eye(8), atol=1e-5)


def test_messages_of_orthogonal():
    key = random.key(0)
    assert message(ValueError, lambda: initializers.orthogonal()(key, (3,))) == (
        "orthogonal: shape must have two dimensions or more; got (3,)."
    )
    assert message(ValueError, lambda: initializers.delta_orthogonal()(key, (3, 3))) == (
        "delta_orthogonal: shape must have 3 to 5 dimensions; got (3, 3)."
    )
    assert message(ValueError, lambda: initializers.delta_orthogonal()(key, (2, 4, 3))) == (
        "delta_orthogonal: the last dimension must not be smaller than the one before; got shape "
        "(2, 4, 3)."
    )


def test_standardize_by_the_stable_algorithm():
    x = (RNG.standard_normal((4, 7)) + 1e4).astype(F32)
    got = np.asarray(nn.standardize(x, algorithm="stable"))
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, wanted, rtol=1e-2, atol=1e-2)
    assert np.isfinite(np.asarray(nn.standardize(np.full((2, 3), 1e4, F32)))).all()
    assert message(ValueError, lambda: nn.standardize(x, algorithm="slow")) == (
        "standardize: algorithm must be 'fast' or 'stable'; got 'slow'."
    )

"""Elementwise functions that jax has since 0.12, and rarely used arguments."""

import itertools

import ml_dtypes
import mpmath
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

F32 = np.float32


# -- logarithms, squares, polynomials --


def test_log2():
    x = np.exp2(np.linspace(-120, 120, 241)).astype(F32)
    np.testing.assert_allclose(lax.log2(x), np.log2(x), rtol=2e-7)
    assert lax.log2(F32(8), accuracy=lax.AccuracyMode.HIGHEST) == 3
    assert lax.log2(np.complex64(8j)) == pytest.approx(np.log2(8j), rel=1e-6)
    assert sw.grad(lax.log2)(3.0) == pytest.approx(1 / (3 * np.log(2)))
    assert message(TypeError, lax.log2, 8) == (
        "log2: takes floating or complex operands; got ~i32[]."
    )


def test_one_minus_square():
    x = np.array([-1, 0, 3, 1 - 2**-24, np.inf, np.nan], F32)
    wide = x.astype(float)
    np.testing.assert_allclose(lax.one_minus_square(x), 1 - wide * wide, rtol=1e-7)
    assert lax.one_minus_square(3) == -8 and lax.one_minus_square(1j) == 2
    assert sw.grad(lax.one_minus_square)(1e-30) == F32(-2e-30)
    assert message(TypeError, lax.one_minus_square, True) == (
        "one_minus_square: takes numeric operands; got bool[]."
    )


@pytest.mark.parametrize("count", everyday([1, 3, 8, 9, 12], 2))
@pytest.mark.parametrize("unroll", [None, 0, 4])
def test_polynomial(count, unroll):
    x = np.linspace(-1, 1, 6, dtype=F32).reshape(2, 3)
    coeffs = np.linspace(1, 2, count).astype(F32)
    wanted = np.polyval(coeffs[::-1], x.astype(float))
    np.testing.assert_allclose(lax.polynomial(x, list(coeffs), unroll=unroll), wanted, rtol=1e-5)
    slope = sw.grad(lambda x: lax.polynomial(x, jnp.asarray(coeffs), unroll=unroll).sum())(x)
    np.testing.assert_allclose(slope, np.polyval(np.polyder(coeffs[::-1]), x), rtol=1e-5)


def test_polynomial_of_other_kinds():
    x = np.arange(6, dtype=F32).reshape(2, 3)
    wide = lax.polynomial(x[:1], [1.0, x, np.ones((2, 1), F32)])
    np.testing.assert_allclose(wide, 1 + x[:1] * x + x[:1] ** 2)
    np.testing.assert_array_equal(lax.polynomial(x, []), np.zeros_like(x))
    assert lax.polynomial(3.0, [1.0, 5.0, 2.0]) == 34
    assert lax.polynomial(np.arange(3), [1.5, 2.5]).tolist() == [1, 3, 5]
    assert message(TypeError, lax.polynomial, x, [1.0, np.arange(3.0)]) == (
        "polynomial: x and the coefficients must be scalars or have the same number of dimensions; "
        "got f32[2,3], ~f32[], f32[3]. Reshape them, or use `shardwise.numpy.polyval`, which "
        "broadcasts."
    )


# -- gamma samples --


def slope_of_quantile(a, x):
    with mpmath.workdps(40):
        low = lambda a: mpmath.gammainc(a, 0, x, regularized=True)  # noqa: E731
        density = mpmath.exp((a - 1) * mpmath.log(x) - x) / mpmath.gamma(a)
        return float(-mpmath.diff(low, a) / density)


@pytest.mark.parametrize("a", [0.3, 1.0, 4.5, 30.0])
def test_random_gamma_grad(a):
    x = np.array([0.01, 0.5, 2.0, 5.0, 33.0], F32)
    wanted = [slope_of_quantile(mpmath.mpf(a), mpmath.mpf(float(v))) for v in x]
    np.testing.assert_allclose(lax.random_gamma_grad(F32(a), x), wanted, rtol=3e-5)


@pytest.mark.parametrize("dtype", everyday([F32, np.float64], 1))
def test_slopes_of_incomplete_gamma_in_large_parameters(dtype):
    """Within 20 ulps of mpmath's, except for the exponential."""
    pairs = [(a, a * r) for a in (21.0, 1e3) for r in (0.69, 0.72, 0.999, 1, 1.0005, 1.2, 1.4)]
    pairs += [(1e5, 0.995e5), (1e5, 1.001e5), (1e-6, 0.3), (1e-3, 2.0)]
    a, x = np.array(pairs, dtype).T
    with sw.enable_x64(dtype != F32), mpmath.workdps(60):
        density = np.asarray(sw.vmap(sw.grad(lax.igamma, 1))(a, x)).astype(float)
        slopes, samples = np.asarray(lax.igamma_grad_a(a, x)), lax.random_gamma_grad(a, x)
        wanted = [
            slope_of_quantile(*[mpmath.mpf(float(v)) for v in pair])
            for pair in zip(a, x, strict=True)
        ]
        eps = float(np.finfo(dtype).eps)
        np.testing.assert_allclose(samples, wanted, 20 * eps)
        kept = np.abs(slopes) > 1e-30
        assert kept.sum() > 10
        np.testing.assert_allclose(slopes[kept], (-np.array(wanted) * density)[kept], 300 * eps)


def test_random_gamma_grad_at_its_edges():
    a = F32([0, -1, 1, 1, np.nan, 1, 1, np.inf])
    x = F32([1, 1, -1, 0, 1, 1000, np.inf, 1])
    got = np.asarray(lax.random_gamma_grad(a, x, dtype=F32))
    nan = np.nan
    np.testing.assert_allclose(
        got, [nan, nan, nan, 0, nan, np.log(1000) + 0.578216, nan, nan], rtol=1e-5
    )
    assert message(TypeError, lax.random_gamma_grad, a, x, dtype="float16") == (
        "random_gamma_grad: dtype must be that of a and x, which is float32; got float16. Convert "
        "them with `shardwise.lax.convert_element_type`."
    )


# -- positions before the start --


def test_negative_places():
    x = np.arange(5, dtype=np.int32)
    m = np.arange(12, dtype=np.int32).reshape(3, 4)

    def four(f):
        start, jitted = np.int32(-2), sw.jit(f, static_argnums=1)
        eager = [np.asarray(f(start, wrap)).tolist() for wrap in (True, False)]
        traced = [np.asarray(jitted(start, wrap)).tolist() for wrap in (True, False)]
        assert eager == traced
        return eager

    wrap = "allow_negative_indices"
    assert four(lambda i, w: lax.dynamic_slice(x, [i], [2], **{wrap: w})) == [[3, 4], [0, 1]]
    assert four(lambda i, w: lax.dynamic_slice_in_dim(x, i, 2, **{wrap: w})) == [[3, 4], [0, 1]]
    assert four(lambda i, w: lax.dynamic_index_in_dim(x, i, **{wrap: w})) == [[3], [0]]
    nines = np.array([9, 9], np.int32)
    last, first = [0, 1, 2, 9, 9], [9, 9, 2, 3, 4]
    assert four(lambda i, w: lax.dynamic_update_slice(x, nines, [i], **{wrap: w})) == [last, first]
    assert four(lambda i, w: lax.dynamic_update_slice_in_dim(x, nines, i, 0, **{wrap: w})) == [
        last,
        first,
    ]
    nine = nines[0]
    assert four(lambda i, w: lax.dynamic_update_index_in_dim(x, nine, i, 0, **{wrap: w})) == [
        [0, 1, 2, 9, 4],
        [9, 1, 2, 3, 4],
    ]
    part = lax.dynamic_slice(m, [-1, -1], [1, 1], allow_negative_indices=[True, False])
    assert np.asarray(part).tolist() == [[8]]
    assert message(
        ValueError, lax.dynamic_slice, x, [0], [1], allow_negative_indices=(True, False)
    ) == (
        "dynamic_slice: allow_negative_indices must be a bool, or one for each dimension of the "
        "operand, which is i32[5]; got (True, False)."
    )


# -- arguments --


def test_top_k_keeps_the_order_of_equals():
    x = np.repeat(np.arange(50, dtype=F32), 40)
    for stable in (True, False):
        values, places = lax.top_k(x, 100, is_stable=stable)
        assert np.asarray(values).tolist() == sorted(x, reverse=True)[:100]
        assert np.asarray(places).tolist() == np.argsort(-x, kind="stable")[:100].tolist()


def test_accuracy_of_erfc():
    assert lax.erfc(0.0, accuracy=lax.AccuracyMode.DEFAULT) == 1
    assert message(NotImplementedError, lax.erfc, 0.0, accuracy=lax.Tolerance(ulps=1)) == (
        "erfc: XLA chooses implementations by a Tolerance on TPU only; got Tolerance(atol=0.0, "
        "rtol=0.0, ulps=1). Leave accuracy out, or give AccuracyMode.HIGHEST."
    )


def test_what_types_say_of_gathered_values():
    mesh = sw.make_mesh((4,), ("a",))
    P = sw.P

    def fun(to):
        gather = lambda x: lax.all_gather(x, "a", tiled=True, to=to)  # noqa: E731
        out = P() if to == "invarying" else P("a")
        return sw.jit(sw.shard_map(gather, mesh=mesh, in_specs=P("a"), out_specs=out))

    x = np.arange(8, dtype=F32)
    np.testing.assert_array_equal(fun("invarying")(x), x)
    np.testing.assert_array_equal(fun("varying")(x), np.tile(x, 4))
    assert message(ValueError, fun("reduced"), x) == (
        "shard_map of <lambda>: result, of type f32[8]{R:a}, is not unreduced and reduced along the "
        "same axes as its spec P('a'). Cast it with `shardwise.lax.pcast`, reduce it with a "
        "collective, such as `shardwise.lax.psum`, or name these axes in out_specs."
    )
    grouped = sw.vmap(
        lambda x: lax.all_gather(x, "a", axis_index_groups=[[0, 1]], to="invarying"), axis_name="a"
    )
    assert message(NotImplementedError, grouped, x[:2]) == (
        "all_gather: with axis_index_groups, to must be 'varying'; got 'invarying'."
    )


def test_refs_are_not_pinned():
    for make in (
        lambda: sw.new_ref(1.0, pin=True),
        lambda: sw.empty_ref(sw.ShapeDtypeStruct((), F32), pin=True),
    ):
        assert message(NotImplementedError, make).endswith(
            "pin applies only to refs in kernels; got True. Leave it out: `shardwise.memory.Space` "
            "determines where an array is, and its ref stays there."
        )
    assert sw.new_ref(1.0, pin=False)[...] == 1


# -- values that XLA gets wrong --


def test_log1p_of_float64():
    bounds = [-1, -0.75, -0.5, -0.2929, -0.29, -0.1, -1e-8, 0, 1e-8, 0.1, 0.5, 2, 1e6, 1e300]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(a, b, 60) for a, b in itertools.pairwise(bounds)])
    with sw.enable_x64(True), mpmath.workprec(150):
        wanted = [mpmath.log1p(mpmath.mpf(v)) for v in x.tolist()]
        for got in (lax.log1p(x), sw.jit(jnp.log1p)(x)):
            pairs = zip(np.asarray(got).tolist(), wanted, strict=True)
            assert max(abs(a - b) / np.spacing(abs(float(b))) for a, b in pairs) < 2.5
        special = np.array([-1, -2, -np.inf, np.inf, np.nan, 0.0, -0.0, 5e-324, 1.7e308])
        with np.errstate(all="ignore"):
            wanted = np.log1p(special)
        got = np.array(lax.log1p(special))
        got[7] = wanted[7] if got[7] == 0 else got[7]  # subnormal numbers may be lost
        np.testing.assert_allclose(got, wanted, rtol=1e-15)
        assert np.signbit(got[6]) and not np.signbit(got[5])
        assert sw.grad(lax.log1p)(-0.4) == 1 / 0.6


@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "name",
    [
        "float4_e2m1fn",
        "float8_e4m3b11fnuz",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_conversions_to_narrow_floats(name, source):
    dtype = np.dtype(getattr(ml_dtypes, name))
    with np.errstate(all="ignore"):
        bits = np.arange(16 if "float4" in name else 256, dtype=np.uint8)
        own = np.unique(bits.view(dtype).astype(np.float32))
        own = own[np.isfinite(own)]
        middle = (own[1:] + own[:-1]) / 2
        near = [np.nextafter(middle, np.float32(v)) for v in (np.inf, -np.inf)]
        x = np.concatenate([own, middle, *near, [-1e-9, 1e-9, -0.0]]).astype(source)
        wanted = x.astype(dtype).astype(np.float32)
    with sw.enable_x64(source == "float64"):
        got = lax.convert_element_type(x, dtype)
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got).astype(np.float32), wanted)


def test_sizes_of_broadcast_shapes():
    assert lax.broadcast_shapes((2, 1), (3,)) == (2, 3)
    for shapes in (((-1,),), ((2,), "ab")):
        with pytest.raises(TypeError):
            lax.broadcast_shapes(*shapes)


def test_a_barrier_passes_no_zeros_back():
    def f(x):
        y = jnp.log(x)
        y, x = lax.optimization_barrier((y, x))
        return x

    assert float(sw.grad(f)(0.0)) == 1.0


def test_start_indices_and_windows_that_are_rejected():
    x = np.ones((3, 4), np.float32)
    assert lax.dynamic_slice(x, (np.uint8(1), 2), (1, 1)).shape == (1, 1)
    for starts in ((np.int32(1), np.int16(2)), (1.0, 2), (True, 0)):
        with pytest.raises(TypeError, match="integers of one dtype"):
            lax.dynamic_slice(x, starts, (1, 1))
        with pytest.raises(TypeError, match="integers of one dtype"):
            lax.dynamic_update_slice(x, x[:1, :1], starts)
    text = str(sw.make_jaxpr(lambda i: lax.dynamic_slice(x, (i, i), (1, 1)))(np.uint32(1)))
    assert "select_n" not in text  # unsigned indices are not wrapped
    with pytest.raises(ValueError, match="distinct"):
        lax.squeeze(np.ones((1, 2)), (0, 0))
    with pytest.raises(ValueError, match="int32"):
        sw.eval_shape(lambda x: lax.top_k(x, 1), sw.ShapeDtypeStruct((2**31 + 1,), "bfloat16"))
    with sw.numpy_dtype_promotion("strict"):
        assert lax.dot(x.T, x.astype(np.int8)).dtype == np.float32
        with pytest.raises(sw.errors.TypePromotionError):
            jnp.dot(x.T, x.astype(np.int8))

"""Ragged and scaled products, product algorithms, approximate extrema, functions by platform,
and other functions of lax only; against jax's or NumPy's. Errors of calls."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import messages

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 9)).astype(np.float32)
LHS, RHS = (RNG.standard_normal(s).astype(np.float32) for s in ((7, 3), (3, 3, 4)))
GROUPS = np.array([2, 0, 4], np.int32)


@pytest.mark.sweep
def test_ragged_rows():
    f = lambda lib: lambda x, y: lib.lax.ragged_dot(x, y, GROUPS)  # noqa: E731
    close(f(sw)(LHS, RHS), f(jax)(LHS, RHS))
    slopes = lambda lib: lib.grad(lambda x, y: (f(lib)(x, y) ** 2).sum(), (0, 1))  # noqa: E731
    close(slopes(sw)(LHS, RHS), slopes(jax)(LHS, RHS))
    mapped = sw.vmap(f(sw), (1, None), 1)(np.stack([LHS, -LHS], 1), RHS)
    close(mapped, np.stack([f(sw)(x, RHS) for x in (LHS, -LHS)], 1))
    split = NamedSharding(Mesh(np.array(sw.devices()[:4]), ("x",)), P("x"))
    close(f(sw)(sw.device_put(LHS, split), RHS), f(jax)(LHS, RHS))


@pytest.mark.parametrize("groups", [GROUPS, np.array([[2, 0, 4], [1, 1, 5]], np.int32)])
@pytest.mark.parametrize(
    ("shape", "numbers"),
    [
        ((2, 7, 4), ((((1,), (1,)), ((0,), (0,))), (1,), ())),
        ((2, 3, 3, 4), ((((2,), (2,)), ((0,), (0,))), (1,), (1,))),
        ((2, 7, 4), ((((1,), (1,)), ((0,), (0,))), (0,), ())),
    ],
)
def test_ragged_dimensions(groups, shape, numbers):
    x, y = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 7, 3), shape))
    if numbers[1] == (0,):
        groups = groups.ravel()[:3]
    close(
        *[
            lib.ragged_dot_general(x, y, groups, lib.RaggedDotDimensionNumbers(*numbers))
            for lib in (lax, jax.lax)
        ]
    )


def test_scaled_products():
    x, y = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 5, 4), (2, 4, 3)))
    s, t = (2.0 ** RNG.integers(-2, 2, shape) for shape in ((2, 5, 2), (2, 1, 3)))
    found = lax.scaled_dot(
        x,
        y,
        lhs_scale=s.astype(np.float32),
        rhs_scale=t.astype(np.float32),
        preferred_element_type=np.float32,
    )
    close(found, ((x * s.repeat(2, 2)) @ (y * t)).astype(np.float32))
    assert lax.scaled_dot(x, y).dtype.name == "bfloat16"


def test_algorithms_of_products():
    exact = lax.DotAlgorithm(np.float32, np.float32, np.float32)
    f = sw.jit(lambda x, y: lax.dot(x, y, precision=exact))
    close(f(LHS, RHS[0]), LHS @ RHS[0])
    assert (
        "algorithm = <lhs_precision_type = f32, rhs_precision_type = f32, accumulation_type = f32, "
        "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
        "allow_imprecise_accumulation = false>"
    ) in f.lower(LHS, RHS[0]).as_text()
    pairs = ((1,), (1,)), ((0,), (0,))
    x = np.stack([LHS, LHS])
    close(lax.dot(x, x, dimension_numbers=pairs), np.einsum("bmk,bmn->bkn", x, x))


PRESETS = lax.DotAlgorithmPreset


@pytest.mark.parametrize(
    "name", ["F16_F16_F16", "F32_F32_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "F64_F64_F64"]
)
def test_algorithms_on_the_cpu(name):
    x, y = RNG.normal(size=(2, 3, 3)).astype(np.float32)
    with sw.enable_x64("64" in name), jax.enable_x64("64" in name):
        for preferred in (None, np.float32):
            got = lax.dot(x, y, PRESETS[name], preferred)
            wanted = jax.lax.dot(x, y, precision=name, preferred_element_type=preferred)
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-6 if "F32" in name else 2e-3)


def test_bfloat16_operands_are_rounded():
    x, y = RNG.normal(size=(2, 3, 3)).astype(np.float32)
    got = lax.dot(x, y, "BF16_BF16_F32")
    wide = [v.astype("bfloat16").astype(np.float32) for v in (x, y)]
    np.testing.assert_allclose(got, wide[0] @ wide[1], rtol=1e-5)
    own = lax.DotAlgorithm("bfloat16", "bfloat16", np.float32)
    np.testing.assert_array_equal(lax.dot(x, y, own), got)
    slope = sw.grad(lambda x: lax.dot(x, y, "BF16_BF16_F32").sum())(x)
    np.testing.assert_allclose(slope, np.tile(wide[1].sum(1), (3, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    "algorithm",
    [
        "TF32_TF32_F32",
        "BF16_BF16_F32_X9",
        "BF16_BF16_BF16",
        "F16_F16_F32",
        lax.DotAlgorithm(np.float32, np.float32, np.float32, 2, 2, 3),
    ],
)
def test_algorithms_that_the_cpu_has_not(algorithm):
    x = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError) as caught:
        lax.dot_general(x, x, (((1,), (0,)), ((), ())), algorithm)
    shown = algorithm if isinstance(algorithm, str) else str(algorithm)
    assert str(caught.value) == (
        f"dot_general: the CPU does not support the algorithm {shown}, and would compute something "
        "else; it supports F16_F16_F16, F32_F32_F32, F64_F64_F64, BF16_BF16_F32, BF16_BF16_F32_X3 "
        "and BF16_BF16_F32_X6. Use one of these, or a Precision."
    )


@pytest.mark.parametrize(
    "shape, k, recall, parts",
    [
        ((2, 1000), 10, 0.95, -1),
        ((2, 1000), 10, 0.95, 100_000),
        ((2, 100), 5, 0.9, -1),
        ((2, 1000), 200, 0.95, -1),
        ((2, 1000), 10, 1.0, -1),
        ((2, 1000), 1, 1.0, -1),
        ((4000,), 10, 0.95, -1),
    ],
)
def test_candidates_for_the_largest_of_several_parts(shape, k, recall, parts):
    x = RNG.permutation(np.prod(shape)).reshape(shape).astype(np.float32)  # without ties

    def found(lib, kind):
        f = getattr(lib.lax, f"approx_{kind}_k")
        return f(
            x, k, recall_target=recall, reduction_input_size_override=parts, aggregate_to_topk=False
        )

    for kind in ("max", "min"):
        for got, wanted in zip(found(sw, kind), found(jax, kind), strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", list(PRESETS.__members__))
def test_facts_about_algorithms(name):
    own, theirs = PRESETS[name], jax.lax.DotAlgorithmPreset[name]
    for fact in ("supported_lhs_types", "supported_rhs_types", "accumulation_type"):
        assert getattr(own, fact) == getattr(theirs, fact)
    for pair in [("float16", "float16"), ("bfloat16", "bfloat16"), ("float16", "float32")]:
        kinds = [np.dtype(snp.dtype(kind)) for kind in pair]
        assert own.supported_output_types(*kinds) == theirs.supported_output_types(*kinds)


def lowered_for_cuda(dtype, algorithm, preferred=None):
    t = sw.ShapeDtypeStruct((2, 2), dtype)
    f = sw.jit(lambda x, y: lax.dot(x, y, algorithm, preferred))
    return f.trace(t, t).lower(lowering_platforms=("cuda",)).as_text()


def test_algorithms_for_8_bit_floats():
    assert list(PRESETS.__members__) == list(jax.lax.DotAlgorithmPreset.__members__)
    text = lowered_for_cuda("float8_e4m3fn", "ANY_F8_ANY_F8_F32_FAST_ACCUM", np.float32)
    assert "accumulation_type = f32" in text
    assert "allow_imprecise_accumulation = true" in text and "convert" not in text
    text = lowered_for_cuda("float8_e4m3fn", "ANY_F8_ANY_F8_ANY", np.float16)
    assert "allow_imprecise_accumulation = false" in text and "xf16>" in text
    assert "convert" not in text
    with pytest.raises(ValueError, match=r"ANY_F8_ANY_F8_ANY is for operands of 8-bit floats"):
        lowered_for_cuda("float32", "ANY_F8_ANY_F8_ANY")


def test_algorithms_that_return_the_dtype_of_the_operands():
    assert "convert" not in lowered_for_cuda("float16", "F16_F16_F32")
    assert "convert" in lowered_for_cuda("float32", "F16_F16_F32")
    with sw.default_matmul_precision("F32_F32_F32"):
        assert "algorithm = <lhs_precision_type = f32" in lowered_for_cuda("float32", None)
        x, w = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)
        np.testing.assert_array_equal(lax.conv(x, w, (1,), "VALID"), np.full((1, 1, 3), 2))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_upper_halves_of_products(dtype):
    info = np.iinfo(dtype)
    x, y = RNG.integers(info.min, info.max, (2, 40), dtype=dtype, endpoint=True)
    x[:3], y[:3] = info.min, (info.min, info.max, 1)
    with sw.enable_x64("64" in dtype or sw.config.enable_x64):
        found = np.asarray(lax.mulhi(x, y))
    assert found.dtype == dtype
    wanted = (x.astype(object) * y.astype(object)) >> info.bits
    assert (found.astype(object) == wanted).all()


def test_extremes_that_may_be_missed():
    close([*lax.approx_max_k(X, 3)], jax.lax.approx_max_k(X, 3))
    close([*lax.approx_min_k(X, 3, 0)], jax.lax.approx_min_k(X, 3, 0))
    close(
        sw.grad(lambda x: lax.approx_max_k(x, 2)[0].sum())(X),
        jax.grad(lambda x: jax.lax.approx_max_k(x, 2)[0].sum())(X),
    )


def test_platforms_and_bits():
    here = sw.default_backend()
    close(lax.platform_dependent(X, **{here: lax.sin}, other=lax.cos), np.sin(X))
    close(lax.platform_dependent(X, other=lax.sin, default=lax.cos), np.cos(X))

    def choose(x):  # only the function of this platform is called
        return lax.platform_dependent(x, other=lambda x: x.missing, default=lax.sin)

    close(sw.vmap(choose)(X), np.sin(X))
    close(sw.jvp(choose, (X,), (X,))[1], np.cos(X) * X)
    close(sw.grad(lambda x: choose(x).sum())(X), np.cos(X))
    key = np.arange(4, dtype=np.uint32)
    for name in ("RNG_DEFAULT", "RNG_THREE_FRY", "RNG_PHILOX"):
        close(
            *[
                lib.rng_bit_generator(key, (3, 2), np.uint32, lib.RandomAlgorithm[name])
                for lib in (lax, jax.lax)
            ]
        )


def test_elements_at_places():
    places = [np.array([0, -1, 5], np.int32), np.array([1, 2, 3], np.int32)]
    for n, axes in ((1, (0,)), (2, (0, 1)), (1, (1,))):
        close(*[lib.index_take(X, places[:n], axes) for lib in (lax, jax.lax)])
    idx = np.array([[1], [1], [3], [20]], np.int32)

    def applied(lib, **options):
        numbers = lib.ScatterDimensionNumbers((), (0,), (0,))
        x = jax.numpy.asarray(X[0]) if lib is jax.lax else X[0]
        return lib.scatter_apply(x, idx, lambda t: t * 2 + 1, numbers, update_shape=(4,), **options)

    close(applied(lax), applied(jax.lax))
    once = applied(lax, unique_indices=True)
    close(once, np.where(np.isin(np.arange(9), [1, 3]), 2 * X[0] + 1, X[0]))


def test_small_ones():
    close(lax.broadcast_like(X[0], X), np.broadcast_to(X[0], X.shape))
    assert lax.dtype(X) == lax.dtype(1.0) == np.float32
    close(lax.mul(X, X, out_dtype=np.float16), X.astype(np.float16) ** 2, 1e-2)
    close(lax.stage(np.int32(2)), np.int32(2))
    close(lax.empty((2, 3), np.int32), np.zeros((2, 3), np.int32))
    assert lax.shape_as_value((2, 3)).tolist() == [2, 3]
    for name in "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh".split():
        f, x = getattr(lax, name), 1 + np.abs(X)
        for accuracy in (None, lax.AccuracyMode.HIGHEST, lax.AccuracyMode.DEFAULT):
            close(f(x, accuracy=accuracy), f(x))


RAGGED = lax.RaggedDotDimensionNumbers


test_mistakes = messages(
    """
lax.exp(X, accuracy=lax.Tolerance(ulps=1))
    NotImplementedError: exp: XLA chooses implementations by a Tolerance on TPU only; got
    Tolerance(atol=0.0, rtol=0.0, ulps=1). Leave accuracy out, or give AccuracyMode.HIGHEST.
lax.exp(X, accuracy=3)
    TypeError: exp: accuracy must be None, an AccuracyMode or a Tolerance; got 3.
lax.Tolerance(-1.0)
    ValueError: Tolerance: atol, rtol and ulps must not be negative; got Tolerance(atol=-1.0,
    rtol=0.0, ulps=0).
lax.ragged_dot(LHS, RHS, GROUPS, group_offset=0)
    NotImplementedError: ragged_dot_general: group_offset is not implemented, nor is it in JAX.
    Slice `group_sizes` and the groups of rhs instead.
lax.ragged_dot(LHS, RHS[:2], GROUPS)
    TypeError: ragged_dot: ragged_dot_general: rhs must have an entry for each of 3 groups along
    dimension 0; got f32[2,3,4].
lax.ragged_dot(LHS, RHS, X[0])
    TypeError: ragged_dot: ragged_dot_general: group_sizes must be integers i[g]; got f32[9].
lax.ragged_dot_general(LHS, RHS, GROUPS, RAGGED((((1,), (1,)), ((), ())), (0,), ()))
    TypeError: ragged_dot_general: rhs_group_dimensions must be one dimension that is neither
    contracted nor batch if the ragged one is neither, and empty otherwise; got () of f32[3,3,4].
lax.ragged_dot_general(LHS, RHS, GROUPS, RAGGED((((1,), (1,)), ((), ())), (2,), (0,)))
    TypeError: ragged_dot_general: lhs_ragged_dimensions must be one of the dimensions of f32[7,3];
    got (2,).
lax.scaled_dot(X, X.T, lhs_scale=X[:, :2])
    TypeError: scaled_dot: lhs_scale must have lhs's shape, (4, 9), with contracted dimensions
    optionally divided by integers; got (4, 2).
lax.approx_max_k(X, 2, reduction_input_size_override=8, aggregate_to_topk=False)
    ValueError: approx_max_k: reduction_input_size_override must be at least the size 9; got 8.
lax.approx_min_k(X, 2, recall_target=0)
    ValueError: approx_min_k: recall_target must be above 0 and at most 1; got 0.
lax.platform_dependent(X, tpu=lax.sin)
    NotImplementedError: platform_dependent: there is no function for 'cpu', on which this runs,
    and no default; got tpu.
lax.mulhi(X, X)
    TypeError: mulhi takes integers; got f32[4,9].
lax.broadcast_like(X, X[0])
    ValueError: broadcast_like: f32[4,9] has more dimensions than f32[9].
""",
    globals(),
)

"""`shardwise.lax` against `jax.lax`: the same calls, the same types and values."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
POSITIVE = np.abs(X) + 0.5
SMALL = X / 8
INTS = RNG.integers(0, 9, (3, 4)).astype(np.int32)

UNARY = """
neg sign abs square floor ceil is_finite exp exp2 expm1 log1p logistic cbrt sin cos tan atan sinh
cosh tanh asinh reciprocal erf erfc bessel_i0e bessel_i1e
""".split()
UNARY_ON = {
    **{name: X for name in UNARY},
    **{name: POSITIVE for name in ("log", "sqrt", "rsqrt", "lgamma", "digamma", "acosh")},
    **{name: np.tanh(SMALL) for name in ("asin", "acos", "atanh", "erf_inv")},
    **{name: INTS for name in ("bitwise_not", "population_count", "clz")},
    **{name: X + 1j * Y for name in ("real", "imag", "conj")},
}
BINARY_ON = {
    **{name: (X, Y) for name in "add sub mul div rem max min nextafter atan2 complex".split()},
    **{name: (X, X.round()) for name in "eq ne lt le gt ge".split()},
    **{name: (INTS, INTS[::-1].copy()) for name in "bitwise_and bitwise_or bitwise_xor".split()},
    **{
        name: (INTS, np.int32(2))
        for name in "shift_left shift_right_arithmetic shift_right_logical".split()
    },
    "pow": (POSITIVE, Y),
    "igamma": (POSITIVE, POSITIVE + 1),
    "igammac": (POSITIVE, POSITIVE + 1),
    "zeta": (POSITIVE + 2, POSITIVE),
    "polygamma": (np.float32(1), POSITIVE),
}


def same(got, expected, tolerance=2e-6):
    got, expected = sw.tree.leaves(got), jax.tree.leaves(expected)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert ours.aval.weak_type == theirs.weak_type
        np.testing.assert_allclose(
            np.asarray(ours), np.asarray(theirs), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("name", everyday(sorted(UNARY_ON), 22))
def test_functions_of_each_element(name):
    x = UNARY_ON[name]
    same(getattr(lax, name)(x), getattr(jax.lax, name)(x), 1e-5)


@pytest.mark.parametrize("name", everyday(sorted(BINARY_ON), 6))
def test_functions_of_pairs_of_elements(name):
    args = BINARY_ON[name]
    same(getattr(lax, name)(*args), getattr(jax.lax, name)(*args), 1e-5)


CALLS = {
    "betainc": lambda lax: lax.betainc(POSITIVE, POSITIVE, np.float32(0.3)),
    "scalars are weak": lambda lax: (lax.add(X, 1.0), lax.mul(2.0, X), lax.add(1.0, 2.0)),
    "round": lambda lax: (
        lax.round(POSITIVE),
        lax.round(X * 0 + 2.5, lax.RoundingMethod.TO_NEAREST_EVEN),
    ),
    "integer_pow": lambda lax: (lax.integer_pow(X, 3), lax.integer_pow(POSITIVE, -2)),
    "select": lambda lax: (lax.select(X > 0, X, Y), lax.select(True, X, Y)),
    "select_n": lambda lax: lax.select_n(INTS % 3, X, Y, SMALL),
    "clamp": lambda lax: lax.clamp(-0.5, X, 0.5),
    "stop_gradient": lambda lax: lax.stop_gradient({"a": lax.neg(X), "b": [lax.neg(Y)]}),
    "broadcast_in_dim": lambda lax: lax.broadcast_in_dim(X, (2, 3, 4), (1, 2)),
    "broadcast": lambda lax: lax.broadcast(X, [2]),
    "broadcast_to_rank": lambda lax: lax.broadcast_to_rank(X, 4),
    "expand_dims": lambda lax: lax.expand_dims(X, (0, -1)),
    "squeeze": lambda lax: lax.squeeze(X[:, None, :, None], (1, -1)),
    "reshape": lambda lax: (lax.reshape(X, (2, 6)), lax.reshape(X, [12], (1, 0))),
    "transpose": lambda lax: lax.transpose(X, (1, 0)),
    "collapse": lambda lax: (lax.collapse(X[None], 1), lax.collapse(X[None], 0, 2)),
    "rev": lambda lax: lax.rev(X, [1]),
    "tile": lambda lax: lax.tile(X, (2, 3)),
    "slice": lambda lax: (lax.slice(X, (0, 1), (3, 4), (2, 1)), lax.slice(X, [1, 0], [2, 2])),
    "slice_in_dim": lambda lax: (
        lax.slice_in_dim(X, 1, None, axis=1),
        lax.slice_in_dim(X, None, -1),
        lax.slice_in_dim(X, 0, 4, stride=2, axis=-1),
    ),
    "index_in_dim": lambda lax: (lax.index_in_dim(X, -1), lax.index_in_dim(X, 1, 1, False)),
    "split": lambda lax: lax.split(X, [1, 3], axis=1),
    "pad": lambda lax: lax.pad(X, np.float32(7), [(1, 0, 1), (-1, 2, 0)]),
    "concatenate": lambda lax: lax.concatenate([X, Y, X], 1),
    "stack": lambda lax: (lax.stack([X, Y], -1), lax.unstack(X, 1)),
    "full": lambda lax: (lax.full((2,), 3), lax.full((2, 2), 1.5, np.int32), lax.full((), True)),
    "full_like": lambda lax: (lax.full_like(X, 2), lax.full_like(X, 2, np.int32, (2,))),
    "iota": lambda lax: (lax.iota(np.int32, 5), lax.broadcasted_iota("float32", (2, 3), 1)),
    "convert_element_type": lambda lax: (
        lax.convert_element_type(X, np.int32),
        lax.convert_element_type(1, np.float32),
        lax.convert_element_type(INTS, float),
    ),
    "bitcast_convert_type": lambda lax: lax.bitcast_convert_type(X, np.uint32),
    "reduce_precision": lambda lax: lax.reduce_precision(X, 5, 10),
    "reductions": lambda lax: (
        lax.reduce_sum(X, (0,)),
        lax.reduce_prod(X, [1]),
        lax.reduce_max(X, (0, 1)),
        lax.reduce_min(X, (1,)),
        lax.reduce_and(X > 0, (0,)),
        lax.reduce_or(X > 0, (0,)),
        lax.reduce_xor(INTS, (0,)),
    ),
    "reduce": lambda lax: lax.reduce(X, np.float32(0), lambda a, b: lax.add(a, b), (1,)),
    "places": lambda lax: (lax.argmax(X, 0, np.int32), lax.argmin(X, 1, np.int32)),
    "running": lambda lax: (
        lax.cumsum(X, 1),
        lax.cumprod(X),
        lax.cummax(X, 1, reverse=True),
        lax.cummin(X),
        lax.cumlogsumexp(X, 1),
    ),
    "sort": lambda lax: (lax.sort(X), lax.sort(X, 0), lax.sort_key_val(X, Y, 1)),
    "sort several": lambda lax: lax.sort((INTS, INTS[::-1].copy(), X), 0, num_keys=2),
    "top_k": lambda lax: lax.top_k(X, 2),
    "dot": lambda lax: (lax.dot(X, Y.T), lax.dot(X[0], Y[0]), lax.dot(X, Y[0])),
    "dot_general": lambda lax: lax.dot_general(X, Y, (((1,), (1,)), ((0,), (0,)))),
    "dot_general as another type": lambda lax: lax.dot_general(
        INTS, INTS, (([0], [0]), ([], [])), preferred_element_type=np.float32
    ),
    "batch_matmul": lambda lax: lax.batch_matmul(X[None], Y.T[None]),
    "dynamic_slice": lambda lax: (
        lax.dynamic_slice(X, (1, 1), (2, 2)),
        lax.dynamic_slice(X, (np.int32(2), -1), (2, 2)),
        lax.dynamic_slice(X, np.array([1, 2]), (1, 2)),
    ),
    "dynamic_slice_in_dim": lambda lax: lax.dynamic_slice_in_dim(X, 2, 2, axis=1),
    "dynamic_index_in_dim": lambda lax: (
        lax.dynamic_index_in_dim(X, -1),
        lax.dynamic_index_in_dim(X, 1, 1, keepdims=False),
    ),
    "dynamic updates": lambda lax: (
        lax.dynamic_update_slice(X, Y[:1, :2], (1, 1)),
        lax.dynamic_update_slice_in_dim(X, Y[:, :1], 2, axis=1),
        lax.dynamic_update_index_in_dim(X, Y[0], 1, axis=0),
    ),
    "gather": lambda lax: lax.gather(
        X,
        np.array([[0, 1], [2, 9]], np.int32),
        lax.GatherDimensionNumbers((), (0, 1), (0, 1)),
        (1, 1),
        mode="clip",
    ),
    "scatters": lambda lax: [
        getattr(lax, f"scatter{kind}")(
            X,
            np.array([[0], [2]], np.int32),
            Y[:2],
            lax.ScatterDimensionNumbers((1,), (0,), (0,)),
        )
        for kind in ("", "_add", "_mul", "_min", "_max")
    ],
    "scan": lambda lax: lax.scan(lambda c, x: (lax.add(c, x), lax.mul(c, x)), Y[0], X),
}


@pytest.mark.parametrize("name", everyday(CALLS, 8))
def test_calls(name):
    same(CALLS[name](lax), CALLS[name](jax.lax))


@pytest.mark.parametrize("name", ["reductions", "dynamic_slice", "gather", "pad"])
def test_calls_under_jit(name):
    same(sw.jit(lambda: CALLS[name](lax))(), jax.jit(lambda: CALLS[name](jax.lax))())


def test_indices_may_be_traced():
    def part(lax, i):
        return lax.dynamic_slice(X, (i, -2), (2, 2))

    same(sw.jit(lambda i: part(lax, i))(-2), jax.jit(lambda i: part(jax.lax, i))(-2))


def test_dtypes_must_agree():
    assert message(TypeError, lax.add, X, 1) == (
        "add: operands must have equal dtypes; got f32[3,4] and ~i32[]. "
        "The functions of shardwise.numpy promote."
    )


def test_select_cases_must_have_one_shape():
    assert message(
        TypeError, lax.select, X > 0, X, 1.0
    ) == "select: cases must have the same shape; got ~f32[], f32[3,4]."


def test_dot_takes_vectors_and_matrices():
    assert message(TypeError, lax.dot, X[None], Y) == (
        "[dot] takes vectors and matrices; got f32[1,3,4] and f32[3,4]. Use dot_general."
    )


def test_every_name_is_one_of_jax():
    ours = {n for n in dir(lax) if not n.startswith("_") and callable(getattr(lax, n))}
    # jax has the first two as private names; it had the others until 2024.
    theirs = {*dir(jax.lax), "all_gather_invariant", "pvary", "pdot", "xeinsum"}
    theirs |= {"log2", "one_minus_square", "one_minus_square_p", "polynomial"}  # since 0.12
    assert ours <= theirs, sorted(ours - theirs)


def test_a_value_of_the_dtype_already_is_no_copy():
    for x in (snp.arange(3.0), snp.ones(2, int), sw.random.key(0)):
        assert lax.convert_element_type(x, x.dtype) is x
    x, weak = snp.arange(3.0), snp.asarray(1.0)
    assert lax.convert_element_type(x, float) is x
    strong = lax.convert_element_type(weak, np.float32)
    assert weak.weak_type and not strong.weak_type
    program = sw.make_jaxpr(lambda a: lax.convert_element_type(a, np.float32))
    assert not program(x).eqns and len(program(weak).eqns) == 1
    with pytest.raises(TypeError, match="key"):
        lax.convert_element_type(sw.random.key(0), np.float32)


def test_counts_are_integers():
    two = np.float32(2)
    assert message(TypeError, lax.top_k, X, two) == f"top_k: k must be an integer; got {two!r}."
    assert message(TypeError, lax.sort, (X, X), num_keys=1.0) == (
        "sort: num_keys must be an integer; got 1.0."
    )
    for k in (np.int8(2), np.array(2)):
        np.testing.assert_array_equal(lax.top_k(X, k)[1], lax.top_k(X, 2)[1])

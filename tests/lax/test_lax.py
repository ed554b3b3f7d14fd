"""`shardwise.lax` against `jax.lax`: the same calls, the same types and values."""

import re

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from tests.helpers.beside_jax import assert_same
from tests.helpers.errors import message, messages
from tests.helpers.oracle import as_jax, cases, names

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)
VALUES = {
    "X": X,
    "Y": Y,
    "Z": X + 1j * Y,
    "POSITIVE": np.abs(X) + 0.5,
    "SMALL": X / 8,
    "UNIT": np.tanh(X / 8),
    "INTS": RNG.integers(0, 9, (3, 4)).astype(np.int32),
    "INDICES": np.array([[0, 1], [2, 9]], np.int32),
}

ON_ONE = {  # each is called with an array of its domain
    """neg sign abs square floor ceil is_finite exp exp2 expm1 log1p logistic cbrt sin cos tan atan
       sinh cosh tanh asinh reciprocal erf erfc bessel_i0e bessel_i1e""": "X",
    "log sqrt rsqrt lgamma digamma acosh": "POSITIVE",
    "asin acos atanh erf_inv": "UNIT",
    "bitwise_not population_count clz": "INTS",
    "real imag conj": "Z",
}
ON_TWO = {
    "add sub mul div rem max min nextafter atan2 complex": "X, Y",
    "eq ne lt le gt ge": "X, X.round()",
    "bitwise_and bitwise_or bitwise_xor": "INTS, INTS[::-1].copy()",
    "shift_left shift_right_arithmetic shift_right_logical": "INTS, np.int32(2)",
    "pow": "POSITIVE, Y",
    "igamma igammac": "POSITIVE, POSITIVE + 1",
    "zeta": "POSITIVE + 2, POSITIVE",
    "polygamma": "np.float32(1), POSITIVE",
}
CALLS = """
lax.betainc(POSITIVE, POSITIVE, np.float32(0.3)); lax.add(X, 1.0); lax.mul(2.0, X)
lax.add(1.0, 2.0); lax.round(POSITIVE); lax.round(X * 0 + 2.5, lax.RoundingMethod.TO_NEAREST_EVEN)
lax.integer_pow(X, 3); lax.integer_pow(POSITIVE, -2); lax.select(X > 0, X, Y)
lax.select(True, X, Y); lax.select_n(INTS % 3, X, Y, SMALL); lax.clamp(-0.5, X, 0.5)
lax.stop_gradient({"a": lax.neg(X), "b": [lax.neg(Y)]})
lax.broadcast_in_dim(X, (2, 3, 4), (1, 2)); lax.broadcast(X, [2]); lax.broadcast_to_rank(X, 4)
lax.expand_dims(X, (0, -1)); lax.squeeze(X[:, None, :, None], (1, -1)); lax.reshape(X, (2, 6))
lax.reshape(X, [12], (1, 0)); lax.transpose(X, (1, 0)); lax.collapse(X[None], 1)
lax.collapse(X[None], 0, 2); lax.rev(X, [1]); lax.tile(X, (2, 3))
lax.slice(X, (0, 1), (3, 4), (2, 1)); lax.slice(X, [1, 0], [2, 2])
lax.slice_in_dim(X, 1, None, axis=1); lax.slice_in_dim(X, None, -1)
lax.slice_in_dim(X, 0, 4, stride=2, axis=-1); lax.index_in_dim(X, -1)
lax.index_in_dim(X, 1, 1, False); lax.split(X, [1, 3], axis=1)
lax.pad(X, np.float32(7), [(1, 0, 1), (-1, 2, 0)]); lax.concatenate([X, Y, X], 1)
lax.stack([X, Y], -1); lax.unstack(X, 1); lax.full((2,), 3); lax.full((2, 2), 1.5, np.int32)
lax.full((), True); lax.full_like(X, 2); lax.full_like(X, 2, np.int32, (2,))
lax.iota(np.int32, 5); lax.broadcasted_iota("float32", (2, 3), 1)
lax.convert_element_type(X, np.int32); lax.convert_element_type(1, np.float32)
lax.convert_element_type(INTS, float); lax.bitcast_convert_type(X, np.uint32)
lax.reduce_precision(X, 5, 10); lax.reduce_sum(X, (0,)); lax.reduce_prod(X, [1])
lax.reduce_max(X, (0, 1)); lax.reduce_min(X, (1,)); lax.reduce_and(X > 0, (0,))
lax.reduce_or(X > 0, (0,)); lax.reduce_xor(INTS, (0,))
lax.reduce(X, np.float32(0), lambda a, b: lax.add(a, b), (1,)); lax.argmax(X, 0, np.int32)
lax.argmin(X, 1, np.int32); lax.cumsum(X, 1); lax.cumprod(X); lax.cummax(X, 1, reverse=True)
lax.cummin(X); lax.cumlogsumexp(X, 1); lax.sort(X); lax.sort(X, 0); lax.sort_key_val(X, Y, 1)
lax.sort((INTS, INTS[::-1].copy(), X), 0, num_keys=2); lax.top_k(X, 2); lax.dot(X, Y.T)
lax.dot(X[0], Y[0]); lax.dot(X, Y[0]); lax.dot_general(X, Y, (((1,), (1,)), ((0,), (0,))))
lax.dot_general(INTS, INTS, (([0], [0]), ([], [])), preferred_element_type=np.float32)
lax.batch_matmul(X[None], Y.T[None]); lax.dynamic_slice(X, (1, 1), (2, 2))
lax.dynamic_slice(X, (np.int32(2), -1), (2, 2)); lax.dynamic_slice(X, np.array([1, 2]), (1, 2))
lax.dynamic_slice_in_dim(X, 2, 2, axis=1); lax.dynamic_index_in_dim(X, -1)
lax.dynamic_index_in_dim(X, 1, 1, keepdims=False); lax.dynamic_update_slice(X, Y[:1, :2], (1, 1))
lax.dynamic_update_slice_in_dim(X, Y[:, :1], 2, axis=1)
lax.dynamic_update_index_in_dim(X, Y[0], 1, axis=0)
lax.scan(lambda c, x: (lax.add(c, x), lax.mul(c, x)), Y[0], X)
lax.gather(X, INDICES, lax.GatherDimensionNumbers((), (0, 1), (0, 1)), (1, 1), mode="clip")
lax.scatter(X, INDICES[:, :1], Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_add(X, INDICES[:, :1], Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_mul(X, INDICES[:, :1], Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_min(X, INDICES[:, :1], Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
lax.scatter_max(X, INDICES[:, :1], Y[:2], lax.ScatterDimensionNumbers((1,), (0,), (0,)))
"""


def elementwise(table):
    return sorted(f"lax.{name}({args})" for names, args in table.items() for name in names.split())


@pytest.mark.parametrize("text", [*elementwise(ON_ONE), *elementwise(ON_TWO)])
def test_functions_of_each_element(text):
    as_jax(text, VALUES, 1e-5)


@pytest.mark.parametrize("text", cases(CALLS))
def test_calls(text):
    as_jax(text, VALUES, 2e-6)


def test_calls_under_jit():
    texts = [c for c in cases(CALLS) if re.match(r"lax\.(reduce_|dynamic_slice|gather|pad)", c)]
    found, wanted = [
        lib.jit(lambda lib=lib: [eval(c, names(lib, VALUES)) for c in texts])() for lib in (sw, jax)
    ]
    assert_same(found, wanted, 2e-6)


def test_indices_may_be_traced():
    def part(lax, i):
        return lax.dynamic_slice(X, (i, -2), (2, 2))

    found, wanted = sw.jit(lambda i: part(lax, i))(-2), jax.jit(lambda i: part(jax.lax, i))(-2)
    assert_same(found, wanted, 2e-6)


test_messages = messages(
    """
lax.add(X, 1)
    TypeError: add: operands must have equal dtypes; got f32[3,4] and ~i32[]. The functions of
    shardwise.numpy promote.
lax.select(X > 0, X, 1.0)
    TypeError: select: cases must have the same shape; got ~f32[], f32[3,4].
lax.dot(X[None], Y)
    TypeError: [dot] takes vectors and matrices; got f32[1,3,4] and f32[3,4]. Use dot_general.
""",
    globals(),
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

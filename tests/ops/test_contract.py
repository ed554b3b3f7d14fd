"""dot_general: dtypes, precision and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from shardwise._src.base.config import default_matmul_precision
from shardwise._src.core.infer import type_of
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.contract import dot, dot_general
from shardwise._src.ops.precision import DotAlgorithmPreset, Precision, canonical_precision
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.batch import batch
from shardwise._src.transforms.stage import stage
from tests.helpers.eager import pulled_back
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(2)
MATMUL = (((1,), (0,)), ((), ()))
DTYPES = ["bool", "int8", "int32", "uint8", "float16", "bfloat16", "float32", "complex64"]


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def einsum(text):
    return lambda x, y: np.einsum(text, x, y)


@pytest.mark.parametrize("left", everyday(DTYPES, 2))
@pytest.mark.parametrize("preferred", [None, "int32", "float32", "complex64"])
def test_dtypes_are_those_of_jax(left, preferred):
    wide = preferred and np.dtype(preferred)
    for right in [left] if preferred is None else [left, "float32"]:
        x = jnp.asarray(np.arange(6).reshape(2, 3) % 4).astype(left)
        y = jnp.asarray(np.arange(6).reshape(3, 2) % 3).astype(right)
        if "complex64" in (left, right) and wide != x.dtype:
            continue  # rejected here, silently converted to real in jax
        wanted = lax.dot_general(x, y, MATMUL, preferred_element_type=wide)
        came = dot_general(
            EAGER.array(np.asarray(x)),
            EAGER.array(np.asarray(y)),
            dimension_numbers=MATMUL,
            preferred_element_type=wide,
        )
        assert came.dtype == wanted.dtype
        np.testing.assert_array_equal(np.asarray(came), np.asarray(wanted))


SMALL = ["float8_e5m2", "float8_e4m3fn", "int4", "uint4"]


@pytest.mark.parametrize("left", [*SMALL, "bfloat16"])
def test_dtypes_that_do_not_promote_are_multiplied_as_in_jax(left):
    x, y = np.arange(6).reshape(2, 3) % 4, np.arange(6).reshape(3, 2) % 3
    for right in [*SMALL, "float16", "float32", "int8"]:
        for preferred in [None] if left == right else [None, "float32"]:
            operands = jnp.asarray(x).astype(left), jnp.asarray(y).astype(right)
            wide = preferred and np.dtype(preferred)
            wanted = lax.dot_general(*operands, MATMUL, preferred_element_type=wide)
            came = dot(*[EAGER.array(np.asarray(a)) for a in operands], MATMUL, None, wide)
            assert came.dtype == wanted.dtype, (left, right)
            np.testing.assert_array_equal(
                np.asarray(came).astype("f"), np.asarray(wanted).astype("f")
            )


@pytest.mark.parametrize("narrow", ["float16", "bfloat16", "float8_e5m2"])
def test_integers_do_not_pass_through_the_dtype_of_a_narrow_operand(narrow):
    """A preferred dtype has room for integers that the dtype of the other operand has not."""
    x, y = np.array([1000001, 3], np.int32), jnp.asarray([1000.0, 3.0]).astype(narrow)
    numbers = (((0,), (0,)), ((), ()))
    for operands in ((x, y), (y, x)):
        wanted = lax.dot_general(*operands, numbers, preferred_element_type=np.float32)
        came = dot(*[EAGER.array(np.asarray(a)) for a in operands], numbers, None, np.dtype("f"))
        np.testing.assert_array_equal(np.asarray(came), np.asarray(wanted))
    assert np.asarray(wanted) > 1e9


def test_mixed_precision_gradients_have_the_dtypes_of_the_operands():
    x, y = normal(2, 3).astype(np.float16), normal(3, 2).astype(np.float16)
    ct = np.ones((2, 2), np.float32)
    numbers = {"dimension_numbers": MATMUL, "preferred_element_type": np.dtype(np.float32)}
    _, pull = jax.vjp(lambda a, b: lax.dot_general(a, b, **numbers), x, y)
    _, grads = pulled_back(lambda a, b: dot_general(a, b, **numbers), [x, y], ct)
    for came, wanted in zip(grads, pull(jnp.asarray(ct)), strict=True):
        assert came.dtype == wanted.dtype == np.float16
        np.testing.assert_allclose(np.asarray(came), wanted, rtol=1e-3)


def test_cotangents_where_contracted_dimensions_are_in_another_order():
    x, y = normal(2, 3, 4, 5), normal(4, 6, 3, 2)
    ct = normal(5, 6)
    numbers = {"dimension_numbers": (((0, 2, 1), (3, 0, 2)), ((), ()))}
    _, pull = jax.vjp(lambda a, b: lax.dot_general(a, b, **numbers), x, y)
    _, grads = pulled_back(lambda a, b: dot_general(a, b, **numbers), [x, y], ct)
    for came, wanted in zip(grads, pull(jnp.asarray(ct)), strict=True):
        np.testing.assert_allclose(np.asarray(came), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dims", [(0, None), (2, None), (None, 1), (1, 2)])
def test_batching_broadcasts_nothing(dims):
    """A single batched operand has its batch dimension as a free one."""
    x, y = normal(2, 3), normal(3, 4)
    pairs = zip((x, y), dims, strict=True)
    args = [a if d is None else np.stack([a, 2 * a, -a, a], d) for a, d in pairs]

    def product(a, b):
        return [dot_general(a, b, dimension_numbers=MATMUL)]

    def fun(*tracers):
        return batch(product, tracers, dims, 4)[0]

    program, _ = stage(fun, [type_of(a) for a in args])
    assert [e.op.name for e in program.eqns] == ["dot_general"]
    outs, (d,) = batch(product, [EAGER.array(a) for a in args], dims, 4)
    factors = [1, 2, -1, 1]
    powers = sum(d is not None for d in dims)
    wanted = np.stack([x @ y * f**powers for f in factors], d)
    np.testing.assert_allclose(np.asarray(outs[0]), wanted, rtol=1e-5, atol=1e-6)  # terms cancel


def test_weak_operands_give_a_weak_result():
    x = broadcast_in_dim(1.0, shape=(2, 2), dims=())
    assert dot_general(x, x, dimension_numbers=MATMUL).aval.weak_type
    strong = dot_general(x, EAGER.array(normal(2, 2)), dimension_numbers=MATMUL)
    assert not strong.aval.weak_type


def test_precision_forms():
    high, highest = Precision.HIGH, Precision.HIGHEST
    assert canonical_precision(None) is None
    assert canonical_precision("float32") == (highest, highest)
    assert canonical_precision(("high", None)) == (high, Precision.DEFAULT)
    assert canonical_precision(lax.Precision.HIGH) == (high, high)
    assert canonical_precision("BF16_BF16_F32") is DotAlgorithmPreset.BF16_BF16_F32
    with default_matmul_precision("tensorfloat32"):
        assert canonical_precision(None) == (high, high)


def test_precision_reaches_the_compiler():
    t = type_of(normal(2, 2))

    def text(precision):
        program, _ = stage(lambda a, b: [dot(a, b, MATMUL, precision)], [t, t])
        e = Emitter()
        e.program(program, ["%a", "%b"])
        return e.lines[-1]

    plain = (
        "%1 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0], precision = [{}] : "
        "(tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>"
    )
    assert text(None) == plain.format("DEFAULT, DEFAULT")
    assert text(("highest", "default")) == plain.format("HIGHEST, DEFAULT")
    with default_matmul_precision("highest"):
        assert text(None) == plain.format("HIGHEST, HIGHEST")
    x = EAGER.array(normal(2, 2))
    found = dot(x, x, MATMUL, "F32_F32_F32")
    np.testing.assert_allclose(np.asarray(found), np.asarray(x) @ np.asarray(x), rtol=1e-6)


X, Y = EAGER.array(normal(2, 3)), EAGER.array(normal(2, 3).astype(np.int32))
test_messages = messages(
    """
dot_general(X, Y, dimension_numbers=MATMUL)
    TypeError: [dot_general] contracted dimensions must have equal sizes; got (3,) and (2,) of
    f32[2,3] and i32[2,3] at (1,) and (0,).
dot_general(X, Y, dimension_numbers=(((1,), (1,)), ((1,), (0,))))
    TypeError: [dot_general] the dimensions of lhs, contracted (1,) and batch (1,), must be
    distinct and within the 2 dimensions of f32[2,3].
dot_general(X, Y, dimension_numbers=(((1,), (4,)), ((), ())))
    TypeError: [dot_general] the dimensions of rhs, contracted (4,) and batch (), must be distinct
    and within the 2 dimensions of i32[2,3].
dot_general(Y, Y, dimension_numbers=(((1,), (1,)), ((), ())),
        preferred_element_type=np.dtype(np.int8))
    TypeError: [dot_general] preferred_element_type i8 is narrower than the operands i32[2,3] and
    i32[2,3].
canonical_precision("exact")
    ValueError: precision must be None, one of default, bfloat16, fastest, high, bfloat16_3x,
    tensorfloat32, highest, float32, a Precision, a pair of these, or a DotAlgorithmPreset or its
    name; got 'exact'.
""",
    globals(),
)

"""Functions for neural networks: values and derivatives against jax.nn, dtypes, edge cases."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from shardwise import nn, random
from shardwise._src.autodiff.grad import grad, jvp
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.elementwise import mul
from shardwise.nn import initializers
from shardwise.testing import check_grads
from tests.helpers import comparing
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

F32 = np.float32
EDGES = np.array(
    [-100, -20, -6, -3, -1.5, -1, -0.5, -0.0, 0, 1e-8, 0.5, 1, 2, 3, 6, 7, 20, 100], F32
)
SPECIAL = np.array([np.inf, -np.inf, np.nan], F32)
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "identity",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_sign",
    "softplus",
    "sparse_plus",
    "sparse_sigmoid",
    "squareplus",
    "swish",
    "tanh",
]
X = np.random.default_rng(0).normal(size=(4, 6)).astype(F32)
W = np.random.default_rng(1).normal(size=(4, 6)).astype(F32)
MASK = np.random.default_rng(2).uniform(size=(4, 6)) > 0.4
MASK[2] = False


close = functools.partial(comparing.close, rtol=3e-6)


# -- activations --


def every(lib):
    return lambda x: [getattr(lib, name)(x) for name in ACTIVATIONS]


def test_activations():
    x = np.concatenate([EDGES, SPECIAL])
    close(jit(every(nn))(x), jax.jit(every(jax.nn))(x))


def test_activations_in_bfloat16():
    x = EDGES.astype(ml_dtypes.bfloat16)
    close(jit(every(nn))(x), jax.jit(every(jax.nn))(x), rtol=0.01)


def test_derivatives_of_activations():
    """At kinks too: those of relu, relu6 and hard_tanh are 0, as jax's are."""
    x = EDGES[np.abs(EDGES) != 1]  # where clip has half a derivative, as jax writes it
    ours = jit(lambda x: [vmap(grad(getattr(nn, name)))(x) for name in ACTIVATIONS])
    theirs = jax.jit(lambda x: [jax.vmap(jax.grad(getattr(jax.nn, n)))(x) for n in ACTIVATIONS])
    close(ours(x), theirs(x), rtol=1e-5)


def test_derivatives_where_functions_saturate():
    for name in ["softplus", "log_sigmoid", "elu", "celu", "selu", "sigmoid", "mish", "silu"]:
        slopes = np.asarray(vmap(grad(getattr(nn, name)))(np.array([-1e4, -200, 200, 1e4], F32)))
        assert np.isfinite(slopes).all(), name


def test_second_derivatives():
    points = np.array([-1.3, -0.2, 0.4, 2.1], F32)
    for fun in [nn.softplus, nn.gelu, nn.silu, nn.mish, nn.log_sigmoid]:
        check_grads(fun, (points,), 2, atol=2e-2, rtol=2e-2)


def test_integers_are_taken_as_floats():
    ints = np.arange(-3, 4, dtype=np.int32)
    for name in ["sigmoid", "silu", "elu", "gelu", "softplus", "relu6"]:
        fun = getattr(nn, name)
        close(fun(ints), fun(ints.astype(F32)))
    assert nn.relu(ints).dtype == nn.hard_tanh(ints).dtype == np.int32


def test_parameters_of_activations():
    close(nn.elu(EDGES, 0.5), jax.nn.elu(EDGES, 0.5))
    close(nn.celu(EDGES, 0.5), jax.nn.celu(EDGES, 0.5))
    close(nn.leaky_relu(EDGES, 0.3), jax.nn.leaky_relu(EDGES, 0.3))
    close(nn.squareplus(EDGES, 2), jax.nn.squareplus(EDGES, 2))
    close(nn.gelu(EDGES, approximate=False), jax.nn.gelu(EDGES, approximate=False))
    close(nn.log1mexp(np.abs(EDGES)), jax.nn.log1mexp(np.abs(EDGES)))
    close([nn.glu(X), nn.glu(X, 0)], [jax.nn.glu(X), jax.nn.glu(X, 0)])


def test_glu_needs_an_even_size():
    assert message(ValueError, lambda: nn.glu(X[:3], 0)) == (
        "glu: dimension 0 must be of even size; got f32[3,6]."
    )


# -- softmax and similar functions --


@pytest.mark.parametrize("axis", everyday([-1, 0, (0, 1)], 1))
def test_softmax_and_its_like(axis):
    def run(lib, x, mask):
        return [
            lib.softmax(x, axis),
            lib.log_softmax(x, axis),
            lib.standardize(x, axis),
            lib.softmax(x, axis, where=mask),
            lib.log_softmax(x, axis, where=mask),
            lib.logsumexp(x, axis),
            lib.logsumexp(x, axis, where=mask, keepdims=True),
            lib.logsumexp(x, axis, b=x[:1]),
            lib.logsumexp(x, axis, b=x, return_sign=True),
            lib.logmeanexp(x, axis),
            lib.logmeanexp(x, axis, mask, keepdims=True),
        ]

    wanted = jax.jit(lambda x, m: run(jax.nn, x, m))(X, MASK)
    close(jit(lambda x, m: run(nn, x, m))(X, MASK), wanted)


def test_eager_softmax():
    close(nn.softmax(X), jax.nn.softmax(X))
    close(nn.softmax(X, where=MASK), jax.nn.softmax(X, where=MASK))
    close(nn.logsumexp(X), jax.nn.logsumexp(X))


def test_large_values():
    x = np.array([1e4, 1e4 - 1, -1e4], F32)
    close(nn.softmax(x), jax.nn.softmax(x))
    close(nn.log_softmax(x), jax.nn.log_softmax(x))
    close(nn.logsumexp(x), jax.nn.logsumexp(x))


@pytest.mark.sweep
def test_derivatives_of_softmax():
    def run(lib, product, diff):
        return lambda x: [
            diff(lambda v: product(lib.softmax(v)))(x),
            diff(lambda v: product(lib.softmax(v, where=MASK)))(x),
            diff(lambda v: product(lib.log_softmax(v)))(x),
            diff(lambda v: product(lib.standardize(v)))(x),
        ]

    ours = run(nn, lambda y: reduce_sum(mul(y, W), axes=(0, 1)), grad)
    theirs = run(jax.nn, lambda y: (y * W).sum(), jax.grad)
    close(jit(ours)(X), jax.jit(theirs)(X), rtol=1e-5)
    _, tangent = jvp(nn.softmax, (X,), (W,))
    close(tangent, jax.jvp(jax.nn.softmax, (X,), (W,))[1])


def test_logsumexp_of_nothing():
    inf = np.inf
    rows = np.array([[-inf, -inf], [-inf, 1], [inf, 1]], F32)
    np.testing.assert_array_equal(np.asarray(nn.logsumexp(rows, 1)), np.array([-inf, 1, inf], F32))
    slopes = vmap(grad(nn.logsumexp))(rows[:2])
    np.testing.assert_array_equal(np.asarray(slopes), np.array([[0, 0], [0, 1]], F32))


def test_logsumexp_with_factors():
    a = np.array([1.0, 2.0, -np.inf], F32)
    b = np.array([1.0, 0.0, 5.0], F32)
    close(nn.logsumexp(a, b=b), F32(1))
    assert np.isnan(nn.logsumexp(a, b=-b))
    value, sign = nn.logsumexp(a, b=-b, return_sign=True)
    assert (float(value), float(sign)) == (1, -1)
    z = (X + 1j * X[::-1]).astype(np.complex64)
    close(nn.logsumexp(z, 1), jax.nn.logsumexp(z, 1))


def test_standardize_with_given_moments():
    close(
        nn.standardize(X, mean=F32(1), variance=F32(4), epsilon=0.0),
        jax.nn.standardize(X, mean=F32(1), variance=F32(4), epsilon=0.0),
    )


def test_one_hot():
    x = np.array([0, 2, 5, -1])
    close(nn.one_hot(x, 3), jax.nn.one_hot(x, 3))
    close(nn.one_hot(x, 3, axis=0, dtype="int32"), jax.nn.one_hot(x, 3, axis=0, dtype="int32"))
    close(nn.one_hot(1, 3), jax.nn.one_hot(1, 3))


# -- attention --


def heads(b=2, t=5, s=7, n=4, k=4, h=8):
    rng = np.random.default_rng(3)
    sizes = [(b, t, n, h), (b, s, k, h), (b, s, k, h), (1, n, t, s)]
    return [rng.normal(size=size).astype(F32) for size in sizes]


SEEN = np.random.default_rng(4).uniform(size=(2, 1, 5, 7)) > 0.3
LENGTHS = np.array([3, 5], np.int32)
SETTINGS = [
    {},
    {"mask": SEEN},
    {"is_causal": True},
    {"scale": 0.3},
    {"key_value_seq_lengths": LENGTHS},
    {"query_seq_lengths": np.array([3, 4], np.int32), "key_value_seq_lengths": LENGTHS},
    {"local_window_size": 2},
    {"return_residual": True},
    {"local_window_size": (1, 0), "mask": SEEN, "is_causal": True},
]


@pytest.mark.parametrize("groups", everyday([4, 2, 1], 1))
def test_attention(groups):
    q, k, v, bias = heads(k=groups)

    def run(lib):
        attend = lib.dot_product_attention
        return lambda q, k, v, bias: [
            attend(q, k, v, bias),
            *[attend(q, k, v, **settings) for settings in SETTINGS],
        ]

    close(jit(run(nn))(q, k, v, bias), jax.jit(run(jax.nn))(q, k, v, bias), rtol=1e-5)


def test_attention_without_a_batch():
    q, k, v, _ = (x[0] for x in heads())
    close(nn.dot_product_attention(q, k, v), jax.nn.dot_product_attention(q, k, v), rtol=1e-5)


def test_attention_in_bfloat16():
    q, k, v = (x.astype(ml_dtypes.bfloat16) for x in heads()[:3])
    wanted = jax.nn.dot_product_attention(*map(jnp.asarray, (q, k, v)))
    close(nn.dot_product_attention(q, k, v), wanted, rtol=0.02)


def test_derivatives_of_attention():
    q, k, v, _ = heads(k=2)

    def loss(lib, total):
        return lambda a, b, c: total(lib.dot_product_attention(a, b, c, is_causal=True))

    ours = grad(loss(nn, lambda y: reduce_sum(mul(y, q), axes=(0, 1, 2, 3))), argnums=(0, 1, 2))
    theirs = jax.grad(loss(jax.nn, lambda y: (y * q).sum()), argnums=(0, 1, 2))
    close(jit(ours)(q, k, v), jax.jit(theirs)(q, k, v), rtol=1e-5)


def test_a_row_that_sees_nothing_is_finite():
    q, k, v, _ = heads()
    out = nn.dot_product_attention(q, k, v, mask=np.zeros((1, 1, 5, 7), bool))
    close(out, np.broadcast_to(v.mean(1, keepdims=True), (2, 5, 4, 8)), rtol=1e-5)


def test_messages_of_attention():
    q, k, v, bias = heads()
    attend = nn.dot_product_attention
    start = "dot_product_attention: query, key and value "
    assert message(ValueError, lambda: attend(q[0], k, v)) == (
        start + "must all have 4 dimensions, or all 3; got f32[5,4,8], f32[2,7,4,8], f32[2,7,4,8]."
    )
    assert message(ValueError, lambda: attend(q[:, :, :3], k[:, :, :2], v[:, :, :2])) == (
        start + "must have a number of query heads that is a multiple of that of key heads; got "
        "f32[2,5,3,8], f32[2,7,2,8], f32[2,7,2,8]."
    )
    assert message(ValueError, lambda: attend(q, k, v[:, 1:])) == (
        start + "must have equal shapes for key and value; got f32[2,5,4,8], f32[2,7,4,8], "
        "f32[2,6,4,8]."
    )
    assert message(ValueError, lambda: attend(q, k, v, mask=bias)) == (
        "dot_product_attention: mask must be boolean; got f32[1,4,5,7]. Pass an array of numbers "
        "to add as `bias`."
    )
    assert message(ValueError, lambda: attend(q, k, v, implementation="flash")) == (
        "dot_product_attention: implementation must be None, 'xla' or 'cudnn'; got 'flash'."
    )
    assert message(ValueError, lambda: attend(q, k, v, query_seq_lengths=np.ones(3))) == (
        "dot_product_attention: sequence lengths must be integers of shape (2,); got f32[3]."
    )


# -- initializers --


SCALED = [f"{name}_{kind}" for name in ("glorot", "lecun", "he") for kind in ("uniform", "normal")]


@pytest.mark.parametrize("name", everyday(SCALED, 2))
def test_initializers(name):
    key, theirs = random.key(3), jax.random.key(3)
    ours, wanted = getattr(initializers, name), getattr(jax.nn.initializers, name)
    close(ours()(key, (5, 7)), wanted()(theirs, (5, 7)))
    close(ours()(key, (5, 7), "complex64"), wanted()(theirs, (5, 7), "complex64"), rtol=1e-5)


def test_initializers_of_a_given_size():
    key, theirs = random.PRNGKey(3), jax.random.PRNGKey(3)
    for name in ["uniform", "normal", "truncated_normal"]:
        ours, wanted = getattr(initializers, name), getattr(jax.nn.initializers, name)
        close(ours(0.3)(key, (5, 7)), wanted(0.3)(theirs, (5, 7)))
    close(initializers.zeros(key, (2, 3)), np.zeros((2, 3), F32))
    close(initializers.ones(key, (2,), "int32"), np.ones(2, np.int32))
    close(initializers.constant(2.5)(key, (2,)), np.full(2, 2.5, F32))
    rows = initializers.constant(np.arange(3.0))(key, (2, 3))
    close(rows, np.tile(np.arange(3, dtype=F32), (2, 1)))
    assert initializers.kaiming_normal is initializers.he_normal


def test_variance_scaling_of_convolutions():
    key, theirs = random.key(0), jax.random.key(0)
    args = (2.0, "fan_geo_avg", "normal", 0, (1, 2), ())
    ours = initializers.variance_scaling(*args)
    wanted = jax.nn.initializers.variance_scaling(*args)
    close(ours(key, (5, 7, 2, 3)), wanted(theirs, (5, 7, 2, 3)))
    spread = np.asarray(initializers.he_normal()(key, (3, 3, 32, 64))).std()
    np.testing.assert_allclose(spread, np.sqrt(2 / (9 * 32)), rtol=0.02)


def test_messages_of_initializers():
    make = initializers.variance_scaling
    assert message(ValueError, lambda: make(1.0, "fan", "normal")) == (
        "variance_scaling: mode must be one of 'fan_in', 'fan_out', 'fan_avg', 'fan_geo_avg'; got "
        "'fan'."
    )
    assert message(ValueError, lambda: make(1.0, "fan_in", "cauchy")) == (
        "variance_scaling: distribution must be one of 'truncated_normal', 'normal', 'uniform'; "
        "got 'cauchy'."
    )
    assert message(ValueError, lambda: initializers.he_normal()(random.key(0), (3,))) == (
        "the number of inputs of weights of shape (3,) is unknown: they must have at least two "
        "dimensions, or `in_axis` must specify the input dimension."
    )


def test_one_hot_of_a_list():
    np.testing.assert_array_equal(nn.one_hot([0, 2], 3), [[1, 0, 0], [0, 0, 1]])
    assert nn.one_hot([[0], [1]], 2).shape == (2, 1, 2)
    np.testing.assert_array_equal(jit(lambda i: nn.one_hot([i, 0], 2))(1), [[0, 1], [1, 0]])

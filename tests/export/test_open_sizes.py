"""Symbolic sizes without constraints: slices that may be empty, and pads of symbolic length."""

import jax.export
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import export
from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.export.symbolic_dims import bounds, max_dim, min_dim
from tests.helpers.everyday import everyday

A, B = export.symbolic_shape("a, b")
X = sw.ShapeDtypeStruct((A, B), np.float32)

CASES = {
    "tail": lambda x, a, b: x[1:], "columns": lambda x, a, b: x[:, :3],
    "but the last": lambda x, a, b: x[:-1], "both": lambda x, a, b: x[1:, 1:-1],
    "backwards": lambda x, a, b: x[::-1, 1:-1:3], "half": lambda x, a, b: x[: a // 2],
    "negative": lambda x, a, b: x[-2:, -5:-1], "strided": lambda x, a, b: x[2::5, 1::2],
    "to the front": lambda x, a, b: x[:1:-2, ::-3], "flat": lambda x, a, b: x[1:].reshape(-1),
    "with a traced one": lambda x, a, b: x[jnp.int32(0), 1::2],
    "sum": lambda x, a, b: x[1:].sum(0), "dot": lambda x, a, b: x[1:].T @ x[1:],
    "gradient": lambda x, a, b: sw.grad(lambda x: (x[1:, ::2] ** 2).sum())(x),
    "set": lambda x, a, b: jnp.asarray(x).at[1:].set(3.0),
    "set backwards": lambda x, a, b: jnp.asarray(x).at[::-1].add(jnp.cumsum(x, 0)),
    "add with strides": lambda x, a, b: jnp.asarray(x).at[1::2, ::-3].add(1.0),
    "pad": lambda x, a, b: jnp.pad(x, ((0, a), (b, 0))), "pad all": lambda x, a, b: jnp.pad(x, a),
    "pad by axis": lambda x, a, b: jnp.pad(x, {0: (a, 1)}, constant_values=2.0),
    "pad to a multiple": lambda x, a, b: jnp.pad(x, ((0, -a % 4), (1, 0))),
    "pad with each": lambda x, a, b: jnp.pad(
        x, ((1, a), (0, 3)), constant_values=((1.0, 2.0), (3.0, 4.0))),
    "pad a tail": lambda x, a, b: jnp.pad(x[1:], ((1, 0), (0, 0)), constant_values=np.nan),
    "edge": lambda x, a, b: jnp.pad(x, ((b, a), (0, -b % 3)), mode="edge"),
    "wrap": lambda x, a, b: jnp.pad(x, ((a, 0), (1, b)), mode="wrap"),
    "symmetric": lambda x, a, b: jnp.pad(x, ((a, 1), (1, b)), mode="symmetric"),
    "reflect": lambda x, a, b: jnp.pad(x, ((a - 1, 0), (0, b - 1)), mode="reflect"),
    "maximum": lambda x, a, b: jnp.pad(x, ((-a % 4, a), (0, 0)), mode="maximum"),
    "gradient of a pad": lambda x, a, b: sw.grad(
        lambda x: (jnp.pad(x, ((0, -a % 4), (1, 0)), constant_values=2.0) ** 2).sum())(x),
}  # fmt: skip


@pytest.mark.parametrize("name", everyday(CASES, 5))
def test_sizes_of_calls(name):
    fun = CASES[name]
    made = export.export(sw.jit(lambda x: fun(x, *x.shape)))(X)
    by_jax = jax.export.deserialize(made.serialize()).call
    for shape in ((1, 1), (1, 2), (2, 1), (3, 4), (5, 13)):
        x = np.cos(np.arange(np.prod(shape)) * 1.7).reshape(shape).astype(np.float32)
        x.flat[-1] = np.nan
        want = np.asarray(fun(x, *shape))
        for call in (made.call, by_jax):
            got = np.asarray(call(x))
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_bounds():
    a, b = A, B
    for x, low, high in (
        (a * b - b, 0, np.inf),
        (b - min_dim(3, b), 0, np.inf),
        (max_dim(a, 4) - a, 0, 3),
        (a - max_dim(a - 2, 0), 1, 2),
        (max_dim(a, b) - min_dim(a, b), 0, np.inf),
        (a * a - 2 * a + 1, 0, np.inf),
        (2 * a * b - a - b, 0, np.inf),
        (1 - a * b, -np.inf, 0),
    ):
        assert bounds(x) == (low, high)


def test_refusals():
    def exported(fun):
        return export.export(sw.jit(lambda x: fun(x, *x.shape)))(X)

    with pytest.raises(InconclusiveDimensionOperation) as caught:
        exported(lambda x, a, b: jnp.pad(x, ((3, 0), (0, 0)), mode="reflect"))
    assert str(caught.value) == (
        "pad: whether a - 1 >= 3 depends on the sizes of symbolic dimensions. Add a constraint, "
        "as in symbolic_shape(..., constraints=['a - 1 >= 3'])."
    )
    for mode, options, text in (
        (
            "wrap",
            {},
            "mode 'wrap' of f32[a,b] by (2*a, 0) along dimension 0 needs concrete sizes: "
            "with symbolic ones, no element may be used twice, and reflect_type must be 'even'. "
            "Export the function for concrete sizes.",
        ),
        (
            "symmetric",
            {"reflect_type": "odd"},
            "mode 'symmetric' of f32[a,b] by (2*a, 0) along "
            "dimension 0 needs concrete sizes: with symbolic ones, no element may be used twice, and "
            "reflect_type must be 'even'. Export the function for concrete sizes.",
        ),
        (
            "linear_ramp",
            {},
            "mode 'linear_ramp' needs concrete widths; got (2*a, 0) along "
            "dimension 0. Export the function for concrete sizes.",
        ),
    ):
        with pytest.raises(NotImplementedError) as caught:
            exported(lambda x, a, b: jnp.pad(x, ((2 * a, 0), (0, 0)), mode=mode, **options))  # noqa: B023
        assert str(caught.value) == f"pad: {text}"
    with pytest.raises(TypeError) as caught:
        exported(lambda x, a, b: jnp.pad(x, ((a, 0.5), (0, 0))))
    assert str(caught.value) == ("pad: pad_width must consist of integers; got ((a, 0.5), (0, 0)).")

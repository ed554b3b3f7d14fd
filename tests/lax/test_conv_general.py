"""Convolutions against jax's: values, derivatives, maps; shardings, shapes, and mistakes."""

import functools
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers import comparing
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday

LINE = Mesh(np.array(sw.devices()[:4]), ("x",))
GRID = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))


def problem(seed):
    """Operands and parameters that fit each other."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    space = "HWD"[: rng.choice([0, 1, 1, 2, 2, 3])]
    orders = ["".join(rng.sample(text, len(text))) for text in ("NC" + space, "OI" + space) * 2]
    groups = rng.choice([1, 1, 2, 3])
    parts = 1 if groups > 1 else rng.choice([1, 1, 2])
    sizes = {"N": rng.choice([1, 2, 3]) * parts, "I": rng.choice([1, 2])}
    sizes |= {"C": sizes["I"] * groups, "O": rng.choice([1, 2]) * groups * parts}
    lengths = {c: rng.choice([1, 3, 4, 7]) for c in space}
    window = {c: rng.choice([1, 2, 3]) for c in space}
    holes = [rng.choice([1, 1, 2]) for _ in space]
    padding = [(rng.choice([-1, 0, 1, 2]), rng.choice([-1, 0, 1, 3])) for _ in space]
    if rng.random() < 0.4:
        holes, padding = None, rng.choice(["SAME", "valid", "SAME_LOWER"])
    how = {
        "window_strides": [rng.choice([1, 2, 3]) for _ in space],
        "padding": padding,
        "lhs_dilation": holes,
        "rhs_dilation": [rng.choice([1, 1, 2]) for _ in space],
        "dimension_numbers": tuple(orders[:3]),
        "feature_group_count": groups,
        "batch_group_count": parts,
    }
    x, k = (
        values.standard_normal([({**sizes, **own})[c] for c in order]).astype(np.float32)
        for order, own in zip(orders, (lengths, window), strict=False)
    )
    return x, k, how


close = functools.partial(comparing.close, rtol=1e-3)


def with_derivatives(lib, f):
    def both(x, k):
        loss = lambda x, k: lib.numpy.sum(lib.numpy.sin(f(x, k)))  # noqa: E731
        return f(x, k), lib.grad(loss, (0, 1))(x, k)

    return lib.jit(both)


@pytest.mark.parametrize("seed", everyday(range(60), 2))
def test_like_jax(seed):
    x, k, how = problem(seed)
    try:
        wanted = with_derivatives(jax, lambda x, k: jax.lax.conv_general_dilated(x, k, **how))(x, k)
    except ValueError:
        with pytest.raises(ValueError):
            lax.conv_general_dilated(x, k, **how)
        return
    close(with_derivatives(sw, lambda x, k: lax.conv_general_dilated(x, k, **how))(x, k), wanted)


@pytest.mark.parametrize("seed", everyday(range(100, 140), 1 / 20))
def test_mapped_like_jax(seed):
    x, k, how = problem(seed)
    rng = random.Random(seed)
    i, j, o = (rng.randrange(x.ndim + 1) for _ in range(3))
    mapped = np.stack([x, x + 1, -x], i), np.stack([k, 2 * k, k + 1], j)
    for axes, args in (((i, j), mapped), ((i, None), (mapped[0], k)), ((None, j), (x, mapped[1]))):

        def run(lib, axes=axes):
            return lib.vmap(lambda x, k: lib.lax.conv_general_dilated(x, k, **how), axes, o)

        try:
            wanted = jax.jit(run(jax))(*args)
        except ValueError:
            continue
        close(sw.jit(run(sw))(*args), wanted)


@pytest.mark.parametrize("seed", everyday(range(200, 300), 2))
def test_split_as_on_one_device(seed):
    """Under any shardings, including uneven ones and shardings of results."""
    x, k, how = problem(seed)
    rng = random.Random(seed)
    mesh = rng.choice([LINE, GRID])

    def place():
        spec = [None] * x.ndim
        for axis in mesh.axis_names:
            spec[rng.randrange(x.ndim)] = axis
        return NamedSharding(mesh, P(*spec))

    def run(x, k):
        out, pull = sw.vjp(lambda x, k: lax.conv_general_dilated(x, k, **how), x, k)
        return (out, *pull(sw.numpy.cos(out)))

    try:
        wanted = sw.jit(run)(x, k)
    except ValueError:
        return
    places = tuple(place() for _ in range(3))
    found = sw.jit(run, out_shardings=places)(sw.device_put(x, place()), sw.device_put(k, place()))
    close(found, wanted)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 0), (2, 1)]])
@pytest.mark.parametrize(
    "options",
    everyday(
        [
            {},
            {"transpose_kernel": True},
            {"use_consistent_padding": True},
            {"rhs_dilation": (2, 1)},
            {"dimension_numbers": ("NCHW", "OIHW", "NHWC"), "transpose_kernel": True},
        ],
        8,
    ),
)
def test_transposed(padding, options):
    rng = np.random.default_rng(0)
    first = "dimension_numbers" in options
    x = rng.standard_normal((2, 3, 4, 5) if first else (2, 4, 5, 3)).astype(np.float32)
    k = rng.standard_normal((3, 3, 2, 3) if first else (2, 3, 3, 3)).astype(np.float32)
    args = x, k, (2, 3), padding
    if isinstance(padding, list) and not options.get("use_consistent_padding"):
        args = x, k, (2, 3), [(3, 2), (2, 4)]
    close(lax.conv_transpose(*args, **options), jax.lax.conv_transpose(*args, **options))


def test_patches_and_kernels_by_place():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 6, 5, 3)).astype(np.float32)
    numbers = "NHWC", "HWIO", "NHWC"
    args = (x, (2, 3), (2, 1), "SAME", None, (1, 2), numbers)
    found = lax.conv_general_dilated_patches(*args)
    close(found, jax.lax.conv_general_dilated_patches(*args))
    kernels = rng.standard_normal((*found.shape[1:3], found.shape[3], 4)).astype(np.float32)
    options = (x, kernels, (2, 1), "SAME", (2, 3), None, (1, 2), numbers)
    close(lax.conv_general_dilated_local(*options), jax.lax.conv_general_dilated_local(*options))
    holes = np.where(x > 0, x, np.inf)
    moved = lax.conv_general_dilated_patches(holes, *args[1:])
    assert np.isfinite(np.asarray(moved)).any() and not np.isnan(moved).any()
    half = lax.conv_general_dilated_patches(
        x, (2, 2), (1, 1), "VALID", preferred_element_type=np.float16
    )
    assert half.dtype == np.float16 and half.shape == (2, 24, 4, 2)


@pytest.mark.parametrize(
    "dtype", everyday(["int8", "uint8", "int32", "bool", "float16", "complex64"], 2)
)
def test_dtypes(dtype):
    rng = np.random.default_rng(2)
    x = (3 * rng.standard_normal((2, 4, 5))).astype(dtype)
    k = (3 * rng.standard_normal((4, 2, 2))).astype(dtype)
    args = x, k, (1,), "SAME", None, None, None, 2
    wanted = jax.lax.conv_general_dilated(*args)
    found = lax.conv_general_dilated(*args)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=5e-2, atol=5e-2)
    split = sw.device_put(x, NamedSharding(LINE, P(None, "x")))
    np.testing.assert_allclose(
        lax.conv_general_dilated(split, *args[1:]), wanted, rtol=5e-2, atol=5e-2
    )


def test_wider_results_and_their_derivatives():
    x, k = jnp.ones((1, 1, 4), jnp.bfloat16), jnp.ones((1, 1, 2), jnp.bfloat16)
    wide = {"preferred_element_type": np.float32, "precision": ("high", "highest")}
    a, b = np.asarray(x), np.asarray(k)
    found = lax.conv(a, b, (1,), "VALID", **wide)
    assert found.dtype == np.float32 and found.tolist() == [[[2, 2, 2]]]
    slopes = sw.grad(lambda a, b: lax.conv(a, b, (1,), "VALID", **wide).sum(), (0, 1))(a, b)
    assert [g.dtype.name for g in slopes] == ["bfloat16"] * 2
    assert [np.asarray(g, np.float32).tolist() for g in slopes] == [[[[1, 2, 2, 1]]], [[[3, 3]]]]


def test_shapes():
    for name, args in {
        "conv_shape_tuple": [
            ((2, 3, 7, 8), (4, 3, 2, 3), (1, 2), "SAME"),
            ((4, 3, 7), (4, 3, 2), (2,), [(1, -2)], 2),
        ],
        "conv_general_shape_tuple": [
            ((2, 7, 8, 3), (2, 3, 3, 4), (1, 2), "SAME", ("NHWC", "HWIO", "NCHW"))
        ],
        "conv_transpose_shape_tuple": [
            ((2, 7, 8, 3), (2, 3, 3, 4), (2, 2), padding, ("NHWC", "HWOI", "NHWC"))
            for padding in ("SAME", "VALID")
        ],
        "conv_dimension_numbers": [
            ((1,) * 4, (1,) * 4, None),
            ((1,) * 4, (1,) * 4, ("NHWC", "WHIO", "CWHN")),
        ],
        "conv_general_permutations": [(("NHWC", "WHIO", "CWHN"),)],
        "padtype_to_pads": [
            ((5, 6), (3, 2), (2, 2), kind) for kind in ("SAME", "SAME_LOWER", "valid")
        ],
    }.items():
        for one in args:
            found, wanted = getattr(lax, name)(*one), getattr(jax.lax, name)(*one)
            assert [*map(tuple, map(np.atleast_1d, found))] == [
                *map(tuple, map(np.atleast_1d, wanted))
            ]


def test_explicit_shardings():
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"), (AxisType.Explicit,) * 2)
    rng = np.random.default_rng(3)
    x, k = (rng.standard_normal(s).astype(np.float32) for s in ((4, 4, 6), (8, 4, 3)))
    wanted = np.asarray(lax.conv(x, k, (1,), "SAME"))
    with sw.set_mesh(mesh):

        def run(xs, ks, **more):
            a, b = sw.device_put(x, P(*xs)), sw.device_put(k, P(*ks))
            found = lax.conv_general_dilated(a, b, (1,), "SAME", **more)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
            slopes = sw.jit(
                sw.grad(
                    lambda a, b: (lax.conv_general_dilated(a, b, (1,), "SAME", **more) ** 2).sum(),
                    (0, 1),
                )
            )(a, b)
            assert [g.aval for g in slopes] == [a.aval, b.aval]
            return sw.typeof(found).str_short(True)

        assert run(("x",), ("y",)) == "f32[4@x,8@y,6]"
        assert run(("x", None, "y"), ()) == "f32[4@x,8,6@y]"
        assert run((None, "x"), (None, "x"), out_sharding=P("x")) == "f32[4@x,8,6]"
        assert message(Exception, run, (None, "x"), (None, "x")) == (
            "conv_general_dilated: operands f32[4,4@x,6], f32[8,4@x,3] are sharded over ('x',) "
            "along a contracted dimension, so the result's sharding is ambiguous. Use "
            "`shardwise.sharding.reshard(rhs, P())`, or specify how the result is sharded: "
            "`shardwise.lax.conv_general_dilated(lhs, rhs, window_strides, padding, "
            "out_sharding=P(...))`."
        )


X, K = np.zeros((2, 4, 5), np.float32), np.zeros((4, 2, 3), np.float32)


test_mistakes = messages(
    """
lax.conv_general_dilated(X, K[0], (1,), "SAME")
    TypeError: conv_dimension_numbers: lhs and rhs must have the same number of dimensions; got (2,
    4, 5) and (2, 3).
lax.conv_general_dilated(X, K, (1,), "SAME", dimension_numbers=("NCH", "OIH"))
    TypeError: conv_dimension_numbers: dimension_numbers must be None, ConvDimensionNumbers, or
    three strings with a letter for each of 3 dimensions, such as ('NCHW', 'OIHW', 'NCHW'); got
    ('NCH', 'OIH').
lax.conv_general_dilated(X, K, (1,), "SAME", dimension_numbers=("NCH", "OIW", "NCH"))
    ValueError: conv_general_permutations: the strings must have the letters N and C (lhs, result),
    O and I (rhs), and the same other letters, each once; got ('NCH', 'OIW', 'NCH').
lax.conv_general_dilated(X, K, (1,), "SAME", lhs_dilation=(2,))
    ValueError: conv_general_dilated: padding 'SAME' is ambiguous if lhs is dilated, here by (2,).
    Pass pairs (low, high), or use conv_transpose.
lax.conv_general_dilated(X, K, (1,), "WIDE")
    RuntimeError: padding must be 'VALID', 'SAME' or 'SAME_LOWER', or pairs (low, high); got 'WIDE'.
lax.conv(X, K, (1, 1), "SAME")
    ShapeError: padding: a window needs a size and a stride for each of the dimensions (5,); got
    (3,) and (1, 1).
lax.conv(X, K, (0,), "SAME")
    ShapeError: padding: strides must be positive; got (0,).
lax.conv_transpose(X, K, (1, 1), "SAME")
    ShapeError: conv_transpose: strides must have an entry for each of 1 spatial dimensions; got
    (1, 1).
lax.conv_general_dilated(X, K, (1,), [1])
    ValueError: conv_general_dilated: padding must be 'VALID', 'SAME' or 'SAME_LOWER', or pairs
    (low, high); got [1].
lax.conv_general_dilated(X, K, (1,), "VALID")
    ShapeError: conv_general_dilated: the 2 input features of rhs must be those of lhs, 4, divided
    by feature_group_count, 1; got f32[2,4,5] and f32[4,2,3].
lax.conv_general_dilated(X, K, (1, 1), [(0, 0)], feature_group_count=2)
    ShapeError: conv_general_dilated: window_strides must have an entry for each of 1 spatial
    dimensions, not (1, 1); got f32[2,4,5] and f32[4,2,3].
lax.conv_general_dilated(X, K, (0,), [(0, 0)], feature_group_count=2)
    ShapeError: conv_general_dilated: window_strides must be positive, not (0,); got f32[2,4,5] and
    f32[4,2,3].
lax.conv_general_dilated(X, K[:, :1], (1,), [(0, 0)], feature_group_count=4, batch_group_count=2)
    ShapeError: conv_general_dilated: feature_group_count and batch_group_count must be positive,
    and one of them 1, not 4 and 2; got f32[2,4,5] and f32[4,1,3].
lax.conv_general_dilated(X, K[:3], (1,), [(0, 0)], feature_group_count=2)
    ShapeError: conv_general_dilated: the groups, 2, must divide the output features of rhs, 3; got
    f32[2,4,5] and f32[3,2,3].
lax.conv_general_dilated(X, np.zeros((6, 4, 3), np.float32), (1,), [(0, 0)], batch_group_count=3)
    ShapeError: conv_general_dilated: batch_group_count, 3, must divide the batch of lhs, 2; got
    f32[2,4,5] and f32[6,4,3].
lax.conv_general_dilated(X, K, (1,), [(-4, -2)], feature_group_count=2)
    ValueError: conv_general_dilated: padding ((-4, -2),) removes more elements than there are in
    f32[2,4,5] and f32[4,2,3].
lax.conv_general_dilated(X, K.astype(np.int32), (1,), [(0, 0)], feature_group_count=2)
    TypeError: conv_general_dilated: operands must have equal dtypes; got f32[2,4,5] and
    i32[4,2,3]. The functions of shardwise.numpy promote.
lax.conv_general_dilated(X, K, (1,), "VALID", feature_group_count=2, precision="BF16_BF16_F32")
    ValueError: conv_general_dilated: XLA does not support the algorithm BF16_BF16_F32 for
    convolutions. Pass a `Precision`, its name, or a pair.
""",
    globals(),
)


def test_patches_look_at_their_precision():
    x = np.ones((1, 1, 4, 4), np.float32)
    with pytest.raises(ValueError, match="precision must be None, one of "):
        lax.conv_general_dilated_patches(x, (2, 2), (1, 1), "SAME", precision="great")

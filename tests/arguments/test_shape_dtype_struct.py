"""`ShapeDtypeStruct.like`: the type of a value, and its sharding if that was requested."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import NamedSharding, P, ShapeDtypeStruct
from shardwise.experimental.layout import Format, Layout
from tests.helpers.errors import message


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.numpy.ones((2, 3), lib.numpy.bfloat16),
        lambda lib: np.ones(3, np.int8),
        lambda lib: 2.0,
        lambda lib: lib.numpy.asarray(1),
        lambda lib: lib.ShapeDtypeStruct((2,), "float32", weak_type=True),
        lambda lib: lib.device_put(np.ones(3), lib.devices()[0]),
    ],
    ids=["array", "NumPy", "number", "weak", "struct", "committed"],
)
def test_types_are_those_of_jax(make):
    ours, theirs = ShapeDtypeStruct.like(make(sw)), jax.ShapeDtypeStruct.like(make(jax))
    assert (ours.shape, ours.dtype, ours.weak_type) == (
        theirs.shape,
        theirs.dtype,
        theirs.weak_type,
    )
    assert (ours.sharding is None) == (theirs.sharding is None)


def test_committed_arrays_say_where_they_are():
    over = NamedSharding(sw.make_mesh((4,), ("x",)), P("x"))
    x = sw.device_put(jnp.ones(8), over)
    assert x.committed and not jnp.ones(8).committed
    like = ShapeDtypeStruct.like(x)
    assert like == ShapeDtypeStruct((8,), "float32", sharding=over)
    assert sw.jit(lambda x: x + 1).lower(like).compile()(x).sharding == over


def test_traced_values_say_how_they_are_split():
    found = []
    with sw.set_mesh(sw.make_mesh((4,), ("x",))):
        sw.jit(lambda x: found.append(ShapeDtypeStruct.like(x)) or x)(
            jnp.zeros(8, out_sharding=P("x"))
        )
    assert found[0].sharding.spec == P("x")


def test_refs_are_no_arrays():
    ref = sw.new_ref(jnp.ones(3))
    assert message(TypeError, ShapeDtypeStruct.like, ref) == (
        f"ShapeDtypeStruct.like takes an array; got {ref!r}. Pass `ref[...]`."
    )


def test_mapped_functions_say_so():
    def loss(x):
        """The loss of one example."""

    assert sw.vmap(loss).__doc__ == (
        "`loss`, mapped over an axis of its arguments.\n\nOf one example:\n\n"
        "The loss of one example."
    )
    assert sw.vmap(lambda x: x).__doc__ == "`<lambda>`, mapped over an axis of its arguments."


def test_types_among_results():
    s = sw.ShapeDtypeStruct((2, 3), jnp.float32)
    found = sw.eval_shape(lambda x: {"x": x * 2, "s": s}, jnp.arange(2))
    assert found["s"] == s and found["x"].shape == (2,)
    inner = sw.eval_shape(lambda: sw.jit(lambda: s)())
    assert inner == s
    with pytest.raises(TypeError) as failure:
        sw.jit(lambda: [s])()
    assert str(failure.value) == (
        "jit of <lambda>: the result at [0] is a ShapeDtypeStruct of type f32[2,3], which has no "
        "value. Only `shardwise.eval_shape` and `shardwise.make_jaxpr` accept it in place of an "
        "array."
    )


def test_64_bits_are_kept_as_given_and_traced_as_what_they_become():
    like = ShapeDtypeStruct((2,), np.float64)
    assert like.dtype == jax.ShapeDtypeStruct((2,), np.float64).dtype == np.float64
    assert repr(like) == "ShapeDtypeStruct(shape=(2,), dtype=float64)"
    assert like == ShapeDtypeStruct((2,), "float64") != ShapeDtypeStruct((2,), np.float32)
    assert hash(like) == hash(ShapeDtypeStruct((2,), float))
    assert like.update(shape=(3,)) == ShapeDtypeStruct((3,), np.float64)
    assert ShapeDtypeStruct((), int).dtype == jax.ShapeDtypeStruct((), int).dtype == np.int64
    assert like.aval.str_short() == "float32[2]" == str(sw.typeof(like))
    assert sw.eval_shape(lambda x: x * 2, like) == ShapeDtypeStruct((2,), np.float32)
    assert sw.jit(lambda x: x).lower(like).compile()(np.ones(2)).dtype == np.float32
    assert jnp.zeros_like(like).dtype == jnp.ones_like(like).dtype == np.float32
    with sw.enable_x64(True):
        assert sw.eval_shape(lambda x: x * 2, ShapeDtypeStruct((2,), np.float64)) == like


def test_callbacks_that_are_to_return_64_bits_say_that_they_are_off():
    def f(x):
        return x

    like = ShapeDtypeStruct((2,), np.float64)
    assert message(ValueError, sw.pure_callback, f, like, np.ones(2)) == (
        "pure_callback of f: result_shape_dtypes requests float64, but 64-bit types are off. "
        "Request float32, or set the flag enable_x64."
    )


def test_checkpoints_are_restored_in_types_that_are_on(tmp_path):
    from shardwise import checkpoints

    checkpoints.save(tmp_path / "c", {"a": np.arange(3, dtype=np.int64)})
    like = {"a": ShapeDtypeStruct((3,), np.int64)}
    assert checkpoints.restore(tmp_path / "c", like=like)["a"].dtype == np.int32


@pytest.mark.parametrize(
    "shape, kind, text",
    [
        ((8, -8), ValueError, "the shape (8, -8) has a negative size."),
        ((8, 2.5), TypeError, "the shape is a tuple of integers; got (8, 2.5) of type tuple."),
        ("8", TypeError, "the shape is a tuple of integers; got '8' of type str."),
        (8, TypeError, "the shape is a tuple of integers; got 8 of type int."),
    ],
)
def test_shapes_are_integers(shape, kind, text):
    assert message(kind, ShapeDtypeStruct, shape, "float32") == f"ShapeDtypeStruct: {text}"


@pytest.mark.parametrize("dtype", [np.bytes_, np.object_, np.dtype("U3"), np.dtype("M8[s]")])
def test_dtypes_that_arrays_do_not_have(dtype):
    """They describe data that is not on devices."""
    struct = ShapeDtypeStruct((2, 3), dtype)
    assert struct.dtype == np.dtype(dtype) and (struct.ndim, struct.size) == (2, 6)
    assert struct == struct.update(shape=(2, 3)) != struct.update(shape=(2,))
    assert "is not supported" in message(TypeError, lambda: struct.aval)
    assert "is not supported" in message(TypeError, sw.eval_shape, lambda x: x, struct)


def test_a_dtype_is_required():
    assert message(ValueError, ShapeDtypeStruct, (2,), None) == (
        "ShapeDtypeStruct: dtype is required; got None."
    )


def test_shardings_fit():
    mesh = sw.make_mesh((2,), ("x",))
    place = NamedSharding(mesh, P(None, "x", None))
    assert message(ValueError, lambda: ShapeDtypeStruct((2, 2), "f4", sharding=place)) == (
        "ShapeDtypeStruct of shape (2, 2): P(None, 'x', None) has 3 entries, but the array has "
        "only 2 dimensions. Remove entries from the end of the spec."
    )
    there = NamedSharding(mesh, P("x"))
    turned = ShapeDtypeStruct((2, 2), "f4", sharding=Format(Layout((1, 0)), there))
    assert message(ValueError, lambda: turned.update(sharding=there)).startswith("update: Shape")
    assert turned.update(sharding=turned.format, dtype="i4").layout == turned.layout


def test_arrays_like_a_description():
    mesh = sw.make_mesh((2,), ("x",))
    like = ShapeDtypeStruct((4,), "f4", sharding=NamedSharding(mesh.abstract_mesh, P("x")))
    with sw.set_mesh(mesh):
        assert jnp.zeros_like(like).sharding == NamedSharding(mesh, P("x"))
        assert sw.jit(lambda: jnp.ones_like(like))().sharding == NamedSharding(mesh, P("x"))

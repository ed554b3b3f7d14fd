"""Bad input: each message states the input, the expectation, the reason, and the fix."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fail, fails, messages
from tests.helpers.meshes import MESH

HALF = Mesh(np.array(sw.devices()[:4]), ("x",))
V = np.ones(3, np.float32)
X = np.ones((8, 4), np.float32)


def over(*spec):
    return NamedSharding(MESH, P(*spec))


# ---------------------------------------------------------------------------------- shardings
TOO_LONG = (
    "P('x', 'y') over Mesh('x': 4, 'y': 2) has 2 entries, but the array has only 1 dimension. "
    "Remove entries from the end of the spec."
)


def identity(a):
    return a


def test_a_spec_of_another_rank():
    fails(ValueError, f"device_put: x: {TOO_LONG}", sw.device_put, V, over("x", "y"))
    fails(
        ValueError,
        f"jit of identity: in_shardings: a of type f32[3]: {TOO_LONG}",
        sw.jit(identity, in_shardings=over("x", "y")),
        V,
    )
    fails(
        ValueError,
        f"jit of identity: out_shardings: result of type f32[3]: {TOO_LONG}",
        sw.jit(identity, out_shardings=over("x", "y")),
        V,
    )


test_axes_that_are_unknown_or_used_twice = messages(
    """
over("z")
    ValueError: P('z') names the axis 'z', which Mesh('x': 4, 'y': 2) does not have; its axes are
    'x' and 'y'.
over("x", "x")
    ValueError: P('x', 'x') over Mesh('x': 4, 'y': 2) uses the axis 'x' more than once; a mesh axis
    can shard only one dimension, and only once.
""",
    globals(),
)


test_a_spec_without_a_mesh = messages(
    """
sw.jit(identity, in_shardings=P("x"))(V)
    RuntimeError: jit of identity: in_shardings: a bare P('x') needs a mesh in scope. Use
    NamedSharding(mesh, P('x')), or enter `with shardwise.set_mesh(mesh):`.
sw.device_put(V, P("x"))
    ValueError: device_put: a bare P('x') needs a mesh in scope. Use NamedSharding(mesh, P('x')),
    or enter `with shardwise.set_mesh(mesh):`.
""",
    globals(),
)


test_what_is_no_sharding = messages(
    """
sw.device_put(V, "cpu")
    TypeError: device_put takes shardings, devices, PartitionSpecs or None; got 'cpu' of type str.
sw.jit(identity, in_shardings="x")(V)
    TypeError: jit of identity: in_shardings takes shardings, devices, PartitionSpecs or None; got
    'x' of type str.
""",
    globals(),
)


test_trees_of_shardings_that_do_not_fit = messages(
    """
sw.jit(identity, in_shardings=(None, None))(V)
    ValueError: jit of identity: in_shardings has 2 entries, but the call has 1 positional argument
    (a); a tuple must have one entry for each. Arguments passed by keyword have none.
sw.jit(identity, in_shardings=({"v": None},))({"w": V})
    ValueError: jit of identity: in_shardings must be a pytree prefix of the values that it
    describes, with one entry for each value or for a whole subtree: only in_shardings has a['v']
    and only the value has a['w'].
sw.jit(identity, out_shardings={"a": [over()]})({"a": (V, V)})
    ValueError: jit of identity: out_shardings must be a pytree prefix of the values that it
    describes, with one entry for each value or for a whole subtree: result['a'] is a list of 1 in
    out_shardings and a tuple of 2 in the value.
sw.device_put({"a": V}, {"b": over()})
    ValueError: device_put: device must be a pytree prefix of the values that it describes, with
    one entry for each value or for a whole subtree: only device has x['b'] and only the value has
    x['a'].
sw.with_sharding_constraint([V, V], [over()])
    ValueError: with_sharding_constraint: shardings must be a pytree prefix of the values that it
    describes, with one entry for each value or for a whole subtree: only the value has x[1].
""",
    globals(),
)


# ------------------------------------------------------------------------------ other devices


def test_arguments_on_different_devices():
    a = sw.device_put({"w": X}, over("x"))
    b = sw.device_put(X, NamedSharding(HALF, P("x")))

    def step(params, batch):
        return params["w"] + batch

    fail(
        """
        sw.jit(step)(a, b)
            ValueError: step got arguments on different devices: params['w'] of type f32[8,4] is on
            devices [0, 1, 2, 3, 4, 5, 6, 7], batch of type f32[8,4] on devices [0, 1, 2, 3]. Move
            one of them with `device_put(x, sharding)`.
        sw.lax.add(sw.device_put(V, sw.devices()[0]), sw.device_put(V, sw.devices()[1]))
            ValueError: add got arguments on different devices: argument 0 of type f32[3] is on
            device 0, argument 1 of type f32[3] on device 1. Move one of them with `device_put(x,
            sharding)`.
        """,
        globals() | locals(),
    )

    def shifted(batch):
        return batch + a["w"]

    fails(
        ValueError,
        "shifted got arguments on different devices: batch of type f32[8,4] is on "
        "devices [0, 1, 2, 3], a closed-over array of type f32[8,4] on devices [0, 1, 2, 3, 4, "
        "5, 6, 7]. Move one of them with `device_put(x, sharding)`.",
        sw.jit(shifted),
        b,
    )


def test_arguments_placed_otherwise_than_in_shardings_ask():
    x = sw.device_put(X, over("x"))
    fails(
        ValueError,
        "jit of identity: a of type f32[8,4] is on NamedSharding(mesh=Mesh('x': 4, "
        "'y': 2), spec=P('x')), but in_shardings requires NamedSharding(mesh=Mesh('x': 4, "
        "'y': 2), spec=P('y')). Use `device_put` to move it, or None in in_shardings to "
        "accept it unchanged.",
        sw.jit(identity, in_shardings=over("y")),
        x,
    )


def test_a_constraint_over_devices_that_the_program_does_not_have():
    target = NamedSharding(HALF, P("x"))
    fails(
        ValueError,
        "<lambda> runs on one set of devices: a of type f32[8,4] is on devices [0, "
        "1, 2, 3, 4, 5, 6, 7], but a result or intermediate value must be on devices [0, 1, 2, "
        f"3] ({target}). Use `device_put` outside of it.",
        sw.jit(lambda a: sw.with_sharding_constraint(a, target)),
        sw.device_put(X, over("x")),
    )


# ------------------------------------------------------------------------------- wrong values


test_arguments_that_are_no_arrays = messages(
    """
sw.jit(identity)("text")
    TypeError: jit of identity: a: expected an array or a scalar, got 'text' of type str. Arguments
    must be pytrees of arrays and scalars; mark others static with static_argnums or
    static_argnames.
sw.jit(identity)({"k": [V, ...]})
    TypeError: jit of identity: a['k'][1]: expected an array or a scalar, got Ellipsis of type
    ellipsis. Arguments must be pytrees of arrays and scalars; mark others static with
    static_argnums or static_argnames.
sw.jit(identity)(np.array(["a"]))
    TypeError: jit of identity: a: dtype <U1 is not supported: it holds text. Arrays hold booleans,
    integers, floating-point or complex numbers. Encode it as integers first. Arguments must be
    pytrees of arrays and scalars; mark others static with static_argnums or static_argnames.
sw.jit(identity)(sw.ShapeDtypeStruct((2,), np.float32))
    TypeError: jit of identity: a: ShapeDtypeStruct(shape=(2,), dtype=float32) has no data; types
    are for `trace`, `lower` and `eval_shape`. Arguments must be pytrees of arrays and scalars;
    mark others static with static_argnums or static_argnames.
sw.grad(lambda a: a * sw.jit(identity)("text"))(1.0)
    TypeError: jit of identity: a: expected an array or a scalar, got 'text' of type str. Arguments
    must be pytrees of arrays and scalars; mark others static with static_argnums or
    static_argnames.
sw.device_put(["text"], sw.devices()[0])
    TypeError: device_put: x[0]: expected an array or a scalar, got 'text' of type str.
""",
    globals(),
)


test_results_that_are_no_arrays = messages(
    """
sw.jit(_label())(V)
    TypeError: jit of label: the result at ['r'][1]: expected an array or a scalar, got 'text' of
    type str. A jitted function must return a pytree of arrays and scalars.
""",
    globals(),
)


def _label():
    def label(a):
        return {"r": [a, "text"]}

    return label


def test_what_is_no_function():
    fails(TypeError, "jit takes a function; got 3 of type int.", sw.jit, 3)


def test_operands_of_wrong_types():
    fail(
        """
        sw.lax.bitwise_and(V, V)
            TypeError: bitwise_and: takes boolean or integer operands; got f32[3] and f32[3].
        sw.lax.add(V, V.astype(np.int32))
            TypeError: add: operands must have equal dtypes; got f32[3] and i32[3]. The functions
            of shardwise.numpy promote.
        """,
        globals() | locals(),
    )
    with pytest.raises(TypeError, match=r"shapes \(8, 4\) and \(3,\) do not broadcast together"):
        jnp.add(X, V)


def test_static_arguments():
    def f(a, n):
        return a

    fail(
        """
        sw.jit(f, static_argnums=1)(V, [1])
            ValueError: jit of f: static argument n is [1] of type list, which cannot be hashed.
            Static arguments are part of the cache key: use a hashable type such as a tuple, or do
            not mark it static.
        sw.jit(f, static_argnames="n")(V, n={})
            ValueError: jit of f: static argument n is {} of type dict, which cannot be hashed.
            Static arguments are part of the cache key: use a hashable type such as a tuple, or do
            not mark it static.
        sw.jit(f, static_argnums=2)
            ValueError: jit of f: static_argnums=(2,) refers to argument 2, but the function takes
            2 positional arguments.
        sw.jit(f, donate_argnums=-3)
            ValueError: jit of f: donate_argnums=(-3,) refers to argument -3, but the function
            takes 2 positional arguments.
        sw.jit(f, static_argnames="m")
            ValueError: jit of f: static_argnames names 'm', which is not a parameter of the
            function; its parameters are 'a' and 'n'.
        sw.jit(f, static_argnums=1, donate_argnames="n")
            ValueError: jit of f: 'n' cannot be both static and donated; a static argument has no
            memory on a device.
        sw.jit(f, static_argnums=1.5)
            TypeError: jit: static_argnums takes ints; got 1.5 of type float.
        sw.jit(f, static_argnums="n")
            TypeError: jit: static_argnums takes ints; got 'n' of type str.
        sw.jit(f, static_argnames=1)
            TypeError: jit: static_argnames takes strings; got 1 of type int.
        """,
        globals() | locals(),
    )


def test_immutability():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"x\.at\[idx\]\.set\(value\)"):
        x[0] = 1
    fails(
        TypeError,
        "Array cannot be constructed directly; use shardwise.numpy.array, device_put "
        "or make_array_from_callback.",
        sw.Array,
        [1.0],
    )

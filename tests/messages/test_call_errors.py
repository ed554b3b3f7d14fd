"""Calls that do not fit a function: signatures, argument numbers and names, results, trees."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.errors import fail, fails, messages

V = np.ones(3, np.float32)
X = np.ones((4, 3), np.float32)
PREFIX = (
    "must be a pytree prefix of the values that it describes, with one entry for each "
    "value or for a whole subtree:"
)
SHARED = "Pass arguments that all examples share by position, with None in in_axes."


def two(a, b: int = 1, *, c=None):
    return a * b


def train(params, batch, learning_rate):
    return params["w"].sum()


# ------------------------------------------------------------------------------------- signatures
@pytest.mark.parametrize("transform", ["jit", "grad", "vmap"])
def test_a_call_that_does_not_fit_shows_the_signature(transform):
    fun, who = getattr(sw, transform), f"{transform} of two"
    value = V if transform == "vmap" else 1.0
    fail(
        f"""
        fun(two)(value, d=value)
            TypeError: {who}: two() got an unexpected keyword argument 'd'. It is two(a, b=1, *,
            c=None).
        fun(two)(value, value, value)
            TypeError: {who}: two() takes from 1 to 2 positional arguments but 3 were given. It is
            two(a, b=1, *, c=None).
        """,
        globals() | locals(),
    )
    who = f"{transform} of train"
    fails(
        TypeError,
        f"{who}: train() missing 2 required positional arguments: 'batch' and "
        "'learning_rate'. It is train(params, batch, learning_rate).",
        fun(train),
        value,
    )


def test_errors_of_the_function_itself_are_left_alone():
    def inner(a):
        return two()

    for transform in (sw.jit, sw.grad, sw.vmap):
        fails(TypeError, "two() missing 1 required positional argument: 'a'", transform(inner), V)
    fails(
        TypeError,
        "two() missing 1 required positional argument: 'a'",
        lax.scan,
        lambda c, x: two(),
        0.0,
        V,
    )


def test_bodies_say_what_they_are_called_with():
    def step(carry):
        return carry

    start = "test_bodies_say_what_they_are_called_with.<locals>.step()"
    fails(
        TypeError,
        f"scan: {start} takes 1 positional argument but 2 were given. It was called "
        "with carry and x.",
        lax.scan,
        step,
        {"a": 0.0, "b": 1.0},
        V,
    )
    fails(
        TypeError,
        f"fori_loop: {start} takes 1 positional argument but 2 were given. It was "
        "called with i and carry.",
        lax.fori_loop,
        0,
        3,
        step,
        0.0,
    )
    fails(
        TypeError,
        f"cond: {start} missing 1 required positional argument: 'carry'. It was "
        "called with nothing.",
        lax.cond,
        True,
        step,
        step,
    )

    f = sw.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), step)
    fails(
        TypeError,
        f"the bwd rule of custom_vjp function <lambda>: {start} takes 1 positional "
        "argument but 2 were given. It was called with residuals and ct.",
        sw.grad(f),
        1.0,
    )


test_names_that_are_nearly_right = messages(
    """
sw.jit(train, static_argnames="learnng_rate")
    ValueError: jit of train: static_argnames names 'learnng_rate', which is not a parameter of the
    function; its parameters are 'params', 'batch' and 'learning_rate'. Did you mean
    'learning_rate'?
sw.jit(train, donate_argnames=("parms",))
    ValueError: jit of train: donate_argnames names 'parms', which is not a parameter of the
    function; its parameters are 'params', 'batch' and 'learning_rate'. Did you mean 'params'?
""",
    globals(),
)


test_argument_numbers = messages(
    """
sw.grad(train, argnums="params")
    TypeError: grad of train: argnums takes ints; got 'params' of type str.
sw.jacrev(train, argnums=(0, 1.0))
    TypeError: jacrev of train: argnums takes ints; got 1.0 of type float.
sw.grad(two)(a=1.0, b=2.0)
    TypeError: grad of two: argnums=0 refers to argument 0, but the function was called with 0
    positional arguments. Pass 'a' and 'b' by position, not by keyword.
""",
    globals(),
)


def test_arguments_are_named_after_the_parameters_of_the_function():
    batch = {"x": V, "y": np.arange(3)}
    advice = (
        "Convert it to a floating type, or pass allow_int=True for a trivial (float0) gradient."
    )
    fails(
        TypeError,
        f"grad of train takes real or complex inputs; batch['y'] is of type i32[3]. {advice}",
        sw.grad(train, argnums=1),
        {"w": V},
        batch,
        0.1,
    )
    fails(
        TypeError,
        "grad of train: batch['name']: expected an array or a scalar, got 'mnist' of type str.",
        sw.grad(train, argnums=(0, 1)),
        {"w": V},
        {"name": "mnist"},
        0.1,
    )
    fails(
        TypeError,
        "jacfwd of train takes real inputs; batch['y'] is of type i32[3]. Use jvp or "
        "vjp for other derivatives.",
        sw.jacfwd(train, argnums=-2),
        {"w": V},
        batch,
        0.1,
    )
    fails(
        TypeError,
        "vjp of two: a: expected an array or a scalar, got 'text' of type str.",
        sw.vjp,
        two,
        "text",
    )


# ---------------------------------------------------------------------------------------- results
def test_results_that_are_no_arrays():
    def label(a):
        return {"loss": a, "name": "mnist"}

    what = "the result['name']: expected an array or a scalar, got 'mnist' of type str."
    fails(TypeError, f"grad of label: {what}", sw.grad(label), 1.0)
    fails(TypeError, f"vmap of label: {what}", sw.vmap(label), V)
    fails(TypeError, f"jvp of label: {what}", sw.jvp, label, (1.0,), (1.0,))


def test_pairs_of_value_and_aux():
    def triple(a):
        return a, 1, 2

    fails(
        TypeError,
        "triple must return a pair (value, aux) with has_aux=True; it returned a tuple of 3.",
        sw.value_and_grad(triple, has_aux=True),
        1.0,
    )
    assert sw.grad(lambda a: [a * 2, "aux"], has_aux=True)(1.0) == (2, "aux")


# -------------------------------------------------------------------------- tangents and cotangents
def test_tangents_are_named():
    def loss(p):
        return p["w"].sum()

    fail(
        """
        sw.jvp(loss, ({"w": V},), ({"w": X},))
            ValueError: jvp of loss: a tangent must have its primal's shape and dtype; got f32[4,3]
            for p['w'] of type f32[3].
        sw.jvp(loss, ({"n": np.arange(3)},), ({"n": np.arange(3)},))
            TypeError: jvp of loss: the tangent of p['n'], which is of type i32[3], must be of
            dtype float0; got i32[3]. Make it with NumPy: np.zeros(shape, shardwise.float0).
        sw.jvp(loss, ({"w": V},), ({"w": V, "b": V},))
            TypeError: jvp of loss: primals and tangents must have the same pytree structure; only
            the tangents have args[0]['b'].
        """,
        globals() | locals(),
    )


def test_cotangents_are_named():
    def pair(a):
        return {"x": a, "y": a * 2}

    back = sw.vjp(pair, V)[1]
    fail(
        """
        back({"x": V, "y": X})
            ValueError: vjp of pair: a cotangent must have its result's shape and dtype, f32[3];
            ct['y'] is of type f32[4,3].
        back(V)
            ValueError: vjp of pair: the cotangent must have the pytree structure of the result; ct
            is a dict of 2 in the result and a leaf in the cotangent.
        back(V, V)
            TypeError: vjp of pair: the vjp function takes one cotangent, with the pytree structure
            of the result, {'x': *, 'y': *}; got 2 arguments. If the result is a tuple, pass one
            tuple.
        """,
        globals() | locals(),
    )


# ------------------------------------------------------------------------------------------- vmap
def predict(params, x):
    return params["w"] * x


def test_mapped_axes_of_several_sizes():
    fails(
        ValueError,
        "vmap of predict: mapped axes must have the same size; axis 0 of params['b'] "
        "of type f32[3] has 3, axis 0 of params['w'] of type f32[4,3] has 4, axis 0 of x of type "
        f"f32[4,3] has 4. {SHARED}",
        sw.vmap(predict),
        {"b": V, "w": X},
        X,
    )
    fails(
        ValueError,
        "vmap of predict: mapped axes must have the same size; axis_size is 5, axis "
        f"1 of x of type f32[4,3] has 3. {SHARED}",
        sw.vmap(predict, in_axes=(None, 1), axis_size=5),
        {"w": V},
        X,
    )
    many = ", ".join(f"axis 0 of params[{i}] of type f32[4,3] has 4" for i in range(5))
    fails(
        ValueError,
        f"vmap of predict: mapped axes must have the same size; {many}, 15 more have "
        f"4, axis 0 of x of type f32[3] has 3. {SHARED}",
        sw.vmap(predict),
        [X] * 20,
        V,
    )


test_arguments_that_cannot_be_mapped = messages(
    """
sw.vmap(predict)({"n": 2.0, "w": V}, V)
    ValueError: vmap of predict: params['n'] is of type ~f32[], which has no axis 0 to map over.
    Pass arguments that all examples share by position, with None in in_axes.
sw.vmap(predict)({"w": V}, "text")
    TypeError: vmap of predict: x: expected an array or a scalar, got 'text' of type str.
sw.vmap(predict, in_axes=None)({"w": V}, V)
    ValueError: vmap of predict needs an argument with a mapped axis, or axis_size: all in_axes are
    None.
sw.vmap(lambda: 1)()
    ValueError: vmap of <lambda> needs an argument with a mapped axis, or axis_size: it was called
    without arrays.
sw.vmap(3)
    TypeError: vmap takes a function; got 3 of type int.
""",
    globals(),
)


test_in_axes_that_do_not_fit = messages(
    """
sw.vmap(predict, in_axes=(0,))({"w": V}, V)
    ValueError: vmap of predict: in_axes has 1 entry, but the call has 2 positional arguments
    (params, x); a tuple must have one entry for each. Arguments passed by keyword have none.
sw.vmap(predict, in_axes=(0, None))({"w": V}, x=V)
    ValueError: vmap of predict: in_axes has 2 entries, but the call has 1 positional argument
    (params); a tuple must have one entry for each. Arguments passed by keyword have none.
sw.vmap(predict, in_axes=({"w": 0, "v": 0}, 0))({"w": V, "b": V}, V)
    ValueError: vmap of predict: in_axes must be a pytree prefix of the values that it describes,
    with one entry for each value or for a whole subtree: only in_axes has params['v'] and only the
    value has params['b'].
sw.vmap(predict, in_axes=([0, 0], 0))((V, V), V)
    ValueError: vmap of predict: in_axes must be a pytree prefix of the values that it describes,
    with one entry for each value or for a whole subtree: params is a list of 2 in in_axes and a
    tuple of 2 in the value.
""",
    globals(),
)


def test_out_axes_that_do_not_fit():
    def pair(x):
        return {"a": x, "b": (x, 1)}

    fails(
        ValueError,
        f"vmap of pair: out_axes {PREFIX} result['b'] is a list of 2 in out_axes and "
        "a tuple of 2 in the value; only out_axes has result['c'].",
        sw.vmap(pair, out_axes={"a": 0, "b": [0, 0], "c": 0}),
        V,
    )
    fails(
        ValueError,
        "vmap of pair: out_axes is None for result['a'], which depends on mapped "
        "arguments. Give it an axis.",
        sw.vmap(pair, out_axes={"a": None, "b": 0}),
        V,
    )
    fails(
        ValueError,
        "vmap of pair: out_axes is 2 for result['b'][0], which has 1 dimension "
        "including the mapped one.",
        sw.vmap(pair, out_axes={"a": 0, "b": 2}),
        V,
    )


# ------------------------------------------------------------------------------------ other trees
test_trees_that_are_mapped_together = messages(
    """
sw.tree.map(lambda a, b: a, {"l1": {"w": 1, "b": 2}, "l2": {"w": 3}}, {"l1": {"w": 1},
        "l2": {"w": 1, "c": 2}})
    ValueError: tree.map: tree is not a prefix of rest[0]: only tree has ['l1']['b'] and only
    rest[0] has ['l2']['c'].
sw.tree.map(lambda a, b: a, [1, 2], (1, 2))
    ValueError: tree.map: tree is not a prefix of rest[0]: the root is a list of 2 in tree and a
    tuple of 2 in rest[0].
""",
    globals(),
)


test_sequences_of_several_lengths = messages(
    """
lax.scan(lambda c, x: (c, x), 0.0, {"a": V, "b": [X]})
    ValueError: scan: the arrays of xs must have the same size along dimension 0; xs['a'] of type
    f32[3] has 3, xs['b'][0] of type f32[4,3] has 4.
""",
    globals(),
)


def test_results_of_callbacks():
    spec = sw.ShapeDtypeStruct((3,), jnp.float32)
    fails(
        TypeError,
        "pure_callback of <lambda>: result_shape_dtypes must be a pytree of objects "
        "with a shape and a dtype; got 3 of type int. Use `ShapeDtypeStruct`.",
        sw.pure_callback,
        lambda y: y,
        (3, spec),
        V,
    )

"""Concrete values that are needed while tracing: the named value, and what to do instead."""

import copy
import inspect
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import errors, lax
from tests.helpers.errors import fails, line
from tests.helpers.errors import message as error_of

V = np.ones(3, np.float32)
X = np.ones((8, 4), np.float32)


def choose(a, b):
    if a.sum() > b:  # the line of choose
        return a
    return b


def test_a_traced_condition_names_arguments_and_lines():
    where = line("# the line of " + "choose")
    here = inspect.currentframe().f_lineno + 1
    fails(
        errors.TracerBoolConversionError,
        f"bool() at FILE:{where} (choose) needs the value of a "
        "traced array of type bool[], which is not known while tracing (jit of choose, called "
        "HERE). The value depends on the "
        "arguments a, b. Use `shardwise.numpy.where` or `shardwise.lax.cond` to choose by "
        "value, `shardwise.lax.while_loop` to repeat, or mark the argument static with "
        "`static_argnums`.",
        sw.jit(choose),
        V,
        2.0,
    )
    assert here > where


def test_a_traced_condition_under_vmap():
    where = line("# the line of " + "choose")
    fails(
        errors.TracerBoolConversionError,
        f"bool() at FILE:{where} (choose) needs the value of a "
        "traced array of type bool[], which is not known while tracing (vmap of choose, called "
        f"HERE). The value was made at FILE:{where} (choose). Use `shardwise.numpy.where` or "
        "`shardwise.lax.cond` to choose by value, `shardwise.lax.while_loop` to repeat, or do "
        "not map the argument, with None in `in_axes`.",
        sw.vmap(choose, in_axes=(0, None)),
        X,
        2.0,
    )


CONVERSIONS = {
    "float()": (float, errors.ConcretizationTypeError, "Keep it an array"),
    "int()": (int, errors.ConcretizationTypeError, "Keep it an array"),
    "complex()": (complex, errors.ConcretizationTypeError, "Keep it an array"),
    "item()": (lambda a: a.item(), errors.ConcretizationTypeError, "Keep it an array"),
    "tobytes()": (lambda a: a.tobytes(), errors.ConcretizationTypeError, "Keep it an array"),
    "tolist()": (lambda a: a.tolist(), errors.ConcretizationTypeError, "Keep it an array"),
    "format '.2f'": (lambda a: f"{a:.2f}", errors.ConcretizationTypeError, "Keep it an array"),
    "numpy.asarray()": (
        np.asarray,
        errors.TracerArrayConversionError,
        "Use shardwise.numpy instead of numpy inside transformed functions",
    ),
    "use as a Python integer": (
        range,
        errors.TracerIntegerConversionError,
        "Use arrays and `shardwise.lax.scan` instead of lists, `range` and shapes that depend on "
        "values",
    ),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_values_that_are_needed_but_traced(name):
    convert, kind, advice = CONVERSIONS[name]

    def user(count):
        return convert(count + 1)

    with pytest.raises(kind) as caught:
        sw.jit(user)(1)
    message = str(caught.value)
    assert message.startswith(f"{name} at {__file__}:")
    assert "(jit of user, called at" in message
    assert message.endswith(
        f" The value depends on the argument count. {advice}, or mark the argument static with "
        "`static_argnums`."
    )


def test_the_line_is_that_of_the_users_file():
    """NumPy's functions request the value somewhere inside."""

    def user(a):
        return np.sort(a)

    where = f"FILE:{user.__code__.co_firstlineno + 1} (user)"
    fails(
        errors.TracerArrayConversionError,
        f"numpy.asarray() at {where} needs the value of a "
        "traced array of type f32[2], which is not known while tracing (jit of user, called "
        "HERE). The value depends on the argument a. Use shardwise.numpy instead of numpy "
        "inside transformed functions, or mark the argument static with `static_argnums`.",
        sw.jit(user),
        np.ones(2, np.float32),
    )


DROPS_A_DERIVATIVE = ["float()", "complex()", "item()", "tolist()", "numpy.asarray()"]


@pytest.mark.parametrize("transform", [sw.grad, sw.jacfwd])
@pytest.mark.parametrize("name", DROPS_A_DERIVATIVE)
def test_a_constant_made_of_a_value_being_differentiated(name, transform):
    convert, kind, advice = CONVERSIONS[name]

    def user(a):
        return a * convert(a)

    with pytest.raises(kind) as caught:
        transform(user)(3.0)
    message = str(caught.value)
    assert message.startswith(f"{name} at {__file__}:")
    assert (
        ") would make a constant of a value of type ~f32[] that is being differentiated ("
    ) in message
    assert message.endswith(
        f"and its derivative would be lost. {advice}, or mark it as a constant with "
        "`shardwise.lax.stop_gradient`."
    )
    assert transform(lambda a: a * np.real(convert(lax.stop_gradient(a))))(3.0) == 3


def test_numpy_functions_do_not_silently_drop_derivatives():
    with pytest.raises(errors.TracerArrayConversionError):
        sw.grad(lambda a: np.sin(a))(3.0)
    assert sw.grad(lambda a: a * int(a) if a > 0 else a)(3.5) == 3


@pytest.mark.parametrize(
    "make",
    [
        jnp.zeros,
        lambda n: jnp.ones((2, n)),
        lambda n: [1, 2][n],
        lambda n: jnp.zeros(4).reshape(n, 2),
    ],
)
def test_shapes_and_lists_that_need_traced_integers(make):
    with pytest.raises(errors.TracerIntegerConversionError) as caught:
        sw.jit(make)(2)
    assert "The value depends on the argument" in str(caught.value)


def test_errors_of_missing_attributes_are_pickled():
    with pytest.raises(errors.ConcretizationTypeError) as caught:
        sw.jit(lambda a: a.sharding)(V)
    data = pickle.dumps(caught.value)
    found = pickle.loads(data)
    assert isinstance(found, AttributeError) and isinstance(found, errors.ConcretizationTypeError)
    assert str(found) == str(caught.value) and found.__notes__ == caught.value.__notes__
    code = f"import pickle; print(pickle.loads({data!r}))"
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert alone.stdout.strip() == str(found)


def test_what_arrays_have_and_traced_values_do_not():
    with pytest.raises(errors.ConcretizationTypeError):
        sw.jit(lambda a: a.devices())(V)
    assert error_of(AttributeError, lambda: sw.jit(lambda a: a.addressable_shards)(V)) == (
        "a traced value has no 'addressable_shards', since it has no data and no device: it is of "
        f"type f32[3] (jit of <lambda>, called at {__file__}:{line('lambda a: a.addressable')} "
        "(<lambda>)). Query the arrays outside of the "
        "function; `typeof(x)` gives the type, with the sharding over explicit mesh axes."
    )
    fails(
        AttributeError,
        "a traced value of type f32[3] has no attribute 'summ'.",
        sw.jit(lambda a: a.summ),
        V,
    )


def test_keys_of_dicts_and_loops_over_scalars():
    with pytest.raises(TypeError, match=r"a traced value of type f32\[3\] cannot be hashed \(jit"):
        sw.jit(lambda a: {a: 1})(V)
    with pytest.raises(TypeError, match=r"0-d array, of type f32\[\] \(grad of <lambda>"):
        sw.grad(lambda a: sum(a))(np.float32(1))


def test_a_mask_names_arguments():
    with pytest.raises(errors.NonConcreteBooleanIndexError) as caught:
        sw.jit(lambda data, limit: data[data > limit])(V, 1.0)
    assert "bool[3], which is not known while tracing (jit of <lambda>, called" in str(caught.value)
    advice = "The value depends on the arguments data, limit. Use `shardwise.numpy.where("
    assert advice in str(caught.value)


def test_the_transform_that_hides_the_value_is_named():
    """grad knows its values; jit around it does not."""

    def inner(a):
        return a if a > 0 else -a

    def outer(b):
        return sw.grad(inner)(b * 2)

    with pytest.raises(errors.TracerBoolConversionError) as caught:
        sw.jit(outer)(1.0)
    assert "while tracing (jit of outer, called at" in str(caught.value)
    assert "The value depends on the argument b." in str(caught.value)


def test_arguments_of_outer_functions_are_named():
    def outer(a, b):
        def body(c, x):
            return (c if a + x > 0 else -c), x

        return lax.scan(body, b, V)

    with pytest.raises(errors.TracerBoolConversionError) as caught:
        sw.jit(outer)(1.0, 2.0)
    assert "while tracing (scan of body, called at" in str(caught.value)
    assert "The value depends on the arguments x, a of outer." in str(caught.value)


def test_a_traced_value_as_static_argument():
    def outer(n):
        return sw.jit(lambda a, k: a, static_argnums=1)(1.0, (n, 2))

    with pytest.raises(ValueError) as caught:
        sw.jit(outer)(3)
    message = re.sub(r"called at \S+ \(\w+\)", "called HERE", str(caught.value))
    assert message == (
        "jit of <lambda>: static argument k is a traced value of type ~i32[] (jit of outer, called "
        "HERE). The value depends on the argument n. A program is compiled for each value of a "
        "static argument, and this value is not known while tracing. Do not mark it static, or "
        "compute it outside of the traced function."
    )


# ----------------------------------------------------------------------- sizes and places, by call
NEEDED = (
    "must be concrete, since the size of the result depends on it; got a traced ~i32[], "
    "{why} Pass a Python number, or mark the argument static with `static_argnums`."
)
INTEGER, CONCRETE = errors.TracerIntegerConversionError, errors.ConcretizationTypeError
COUNT = "the number of elements depends on the values of a traced"
SLICE = (
    "Use `shardwise.lax.dynamic_slice(x, starts, sizes)` for a window of static size at a "
    "traced position, "
    "and `shardwise.numpy.where` with `arange` for one of traced size."
)
SIZES = {
    "zeros: shape": (lambda n: jnp.zeros((n, 2)), INTEGER),
    "reshape: shape": (lambda n: jnp.ones(6).reshape(n, -1), INTEGER),
    "broadcast_to: shape": (lambda n: jnp.broadcast_to(V, (n, 3)), INTEGER),
    "arange: stop": (lambda n: jnp.arange(n), CONCRETE),
    "linspace: num": (lambda n: jnp.linspace(0, 1, n), CONCRETE),
    "tile: reps": (lambda n: jnp.tile(V, n), CONCRETE),
    "split: indices_or_sections": (lambda n: jnp.split(V, n), CONCRETE),
    "one_hot: num_classes": (lambda n: sw.nn.one_hot(np.arange(3), n), CONCRETE),
    "normal: shape": (lambda n: sw.random.normal(sw.random.key(0), (n,)), INTEGER),
    "iota: a size": (lambda n: lax.iota(np.int32, n), INTEGER),
    "sum: axis": (lambda n: jnp.sum(X, axis=n), CONCRETE),
    "squeeze: axis": (lambda n: jnp.squeeze(V, n), CONCRETE),
    "transpose: axis": (lambda n: jnp.transpose(X, (n, 0)), CONCRETE),
}
WHY = (
    "which is not known while tracing (jit of size, called HERE). The value depends on the "
    "argument n."
)


def named(fun, name):
    """The function under another name, as messages show it."""
    fun.__name__ = name
    return fun


@pytest.mark.parametrize("what", SIZES)
def test_sizes_and_axes_that_are_traced(what):
    fun, kind = SIZES[what]
    fails(kind, f"{what} {NEEDED.format(why=WHY)}", sw.jit(named(fun, "size")), 1)


@pytest.mark.parametrize("name", ["nonzero", "where", "argwhere", "flatnonzero"])
def test_counts_that_depend_on_values(name):
    def size(n):
        return getattr(jnp, name)(n)

    fails(CONCRETE, f"{name}: {COUNT} f32[3], {WHY} Pass `size=`.", sw.jit(size), V)


def test_other_counts():
    fails(
        CONCRETE,
        "unique: the number of distinct values depends on the values of a traced "
        f"f32[3], {WHY} Pass `size=`.",
        sw.jit(named(lambda n: jnp.unique(n), "size")),
        V,
    )
    fails(
        CONCRETE,
        "bincount: the length of the result depends on the values of a traced i32[2], "
        f"{WHY} Pass `length=`.",
        sw.jit(named(lambda n: jnp.bincount(n), "size")),
        np.array([1, 2]),
    )
    fails(
        CONCRETE,
        "repeat: without total_repeat_length, `repeats` must be concrete, since the "
        f"result's shape depends on it; got a traced ~i32[], {WHY}",
        sw.jit(named(lambda n: jnp.repeat(V, n), "size")),
        2,
    )
    fails(
        CONCRETE,
        "pad: pad_width must be concrete, since the result's shape depends on it; got "
        f"a traced ~i32[], {WHY}",
        sw.jit(named(lambda n: jnp.pad(V, n), "size")),
        2,
    )


def test_slices_with_traced_bounds():
    fails(
        IndexError,
        "the parts of a slice must be concrete integers; got slice(None, jit tracer "
        f"~i32[], None) at position 0, {WHY} {SLICE}",
        sw.jit(named(lambda n: V[:2] + jnp.ones(3)[:n], "size")),
        2,
    )


def test_truth_and_scalars_of_arrays_with_elements():
    def size(a):
        return a if a > 0 else -a  # the line of size

    at = f"FILE:{line('# the line of ' + 'size')} (size)"
    for transform, shown in (("jit", "bool[3], with 3"), ("vmap", "bool[4], with 4")):
        fails(
            ValueError,
            f"the truth value at {at} of a traced array of type {shown} elements, is "
            f"ambiguous ({transform} of size, called HERE). Select elementwise with "
            "`shardwise.numpy.where`, or by one value with `shardwise.lax.cond(x.any(), ...)` "
            "or `x.all()`.",
            getattr(sw, transform)(size),
            V if transform == "jit" else X,
        )
    for name in (int, float, complex):

        def scalar(a, name=name):
            return name(a)  # the line of scalar

        at = f"FILE:{line('# the line of ' + 'scalar')} (scalar)"
        fails(
            TypeError,
            f"{name.__name__}() at {at} takes a 0-d array; got a "
            "traced f32[3] (jit of scalar, called HERE).",
            sw.jit(scalar),
            V,
        )

    def index(a):
        return [0] * a  # the line of index

    fails(
        TypeError,
        f"use as a Python integer at FILE:{line('# the line of ' + 'index')} (index) "
        "takes a 0-d integer array; got a traced ~f32[] (jit of index, called HERE).",
        sw.jit(index),
        2.0,
    )


@pytest.mark.parametrize("transform", [sw.jit, sw.vmap, sw.grad])
def test_copies_are_the_value_itself(transform):
    def fun(a):
        assert copy.copy(a) is a and copy.deepcopy([a])[0] is a
        return a.sum()

    transform(fun)(V)


def test_pickling():
    def save(a):
        return pickle.dumps([a])  # the line of save

    at = f"FILE:{line('# the line of ' + 'save')} (save)"
    fails(
        CONCRETE,
        f"pickling at {at} needs the value of a traced array of type f32[3], which is "
        "not known while tracing (jit of save, called HERE). The value depends on the argument "
        "a. Pickle what the function returns, or use `shardwise.debug.callback` to write "
        "values while it runs, or mark the argument static with `static_argnums`.",
        sw.jit(save),
        V,
    )
    fails(
        CONCRETE,
        f"pickling at {at} would make a constant of a value of type f32[3] that is "
        "being differentiated (grad of save, called HERE), and its derivative would be lost. "
        "Pickle what the function returns, or use `shardwise.debug.callback` to write values "
        "while it runs, or mark it as a constant with `shardwise.lax.stop_gradient`.",
        sw.grad(save),
        V,
    )

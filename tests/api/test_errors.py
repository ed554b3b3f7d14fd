"""Bad input: each message says what came, what was expected, why, and what to do."""

import inspect
import re
import threading

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import errors, lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
HALF = Mesh(np.array(sw.devices()[:4]), ("x",))
V = np.ones(3, np.float32)
X = np.ones((8, 4), np.float32)


def over(*spec):
    return NamedSharding(MESH, P(*spec))


def fails(kind, message, fun, *args, **kwargs):
    with pytest.raises(kind) as caught:
        fun(*args, **kwargs)
    assert type(caught.value) is kind
    assert re.sub(re.escape(__file__), "FILE", str(caught.value)) == message


def line(text):
    """The number of the first line of this file that contains `text`."""
    with open(__file__) as source:
        return next(i for i, row in enumerate(source, 1) if text in row)


# ---------------------------------------------------------------------------------- shardings
TOO_LONG = (
    "P('x', 'y') over Mesh('x': 4, 'y': 2) has 2 entries, but the array has only 1 dimension. "
    "Remove entries from the end of the spec."
)


def identity(a):
    return a


def test_a_spec_of_another_rank():
    fails(ValueError, f"device_put: x: {TOO_LONG}", sw.device_put, V, over("x", "y"))
    fails(ValueError, f"jit of identity: in_shardings: a of type f32[3]: {TOO_LONG}",
          sw.jit(identity, in_shardings=over("x", "y")), V)
    fails(ValueError, f"jit of identity: out_shardings: result of type f32[3]: {TOO_LONG}",
          sw.jit(identity, out_shardings=over("x", "y")), V)


def test_axes_that_are_unknown_or_used_twice():
    fails(ValueError, "P('z') names the axis 'z', which Mesh('x': 4, 'y': 2) does not have; its "
          "axes are 'x' and 'y'.", over, "z")
    fails(ValueError, "P('x', 'x') over Mesh('x': 4, 'y': 2) uses the axis 'x' more than once; a "
          "mesh axis can split only one dimension, and only once.", over, "x", "x")


def test_a_spec_without_a_mesh():
    fails(ValueError, "jit of identity: in_shardings: a bare P('x') needs a mesh in scope. Use "
          "NamedSharding(mesh, P('x')), or enter `with mesh:`.",
          sw.jit(identity, in_shardings=P("x")), V)
    fails(ValueError, "device_put: a bare P('x') needs a mesh in scope. Use NamedSharding(mesh, "
          "P('x')), or enter `with mesh:`.", sw.device_put, V, P("x"))


def test_what_is_no_sharding():
    fails(TypeError, "device_put takes shardings, devices, PartitionSpecs or None; got 'cpu' of "
          "type str.", sw.device_put, V, "cpu")
    fails(TypeError, "jit of identity: in_shardings takes shardings, devices, PartitionSpecs or "
          "None; got 'x' of type str.", sw.jit(identity, in_shardings="x"), V)


def test_trees_of_shardings_that_do_not_fit():
    head = "must be a prefix of the tree of values that it describes, with one entry for each " \
           "value or for a whole subtree:"
    fails(ValueError, f"jit of identity: in_shardings {head} at the top it has 2 entries, but "
          "the value has 1.", sw.jit(identity, in_shardings=(None, None)), V)
    fails(ValueError, f"jit of identity: out_shardings {head} at ['a'] it has a list, but "
          "the value is a tuple.",
          sw.jit(identity, out_shardings={"a": [over(), over()]}), {"a": (V, V)})
    fails(ValueError, f"device_put: device {head} at the top it has the keys 'b', but the value "
          "has 'a'.", sw.device_put, {"a": V}, {"b": over()})


# ------------------------------------------------------------------------------ other devices


def test_arguments_on_different_devices():
    a = sw.device_put({"w": X}, over("x"))
    b = sw.device_put(X, NamedSharding(HALF, P("x")))

    def step(params, batch):
        return params["w"] + batch

    fails(ValueError, "step got arguments on different devices: params['w'] of type f32[8,4] is on "
          "devices [0, 1, 2, 3, 4, 5, 6, 7], batch of type f32[8,4] on devices [0, 1, 2, 3]. Move "
          "one of them with `device_put(x, sharding)`.", sw.jit(step), a, b)
    fails(ValueError, "add got arguments on different devices: argument 0 of type f32[3] is on "
          "device 0, argument 1 of type f32[3] on device 1. Move one of them with "
          "`device_put(x, sharding)`.",
          lax.add, sw.device_put(V, sw.devices()[0]), sw.device_put(V, sw.devices()[1]))

    def shifted(batch):
        return batch + a["w"]

    fails(ValueError, "shifted got arguments on different devices: batch of type f32[8,4] is on "
          "devices [0, 1, 2, 3], a closed-over array of type f32[8,4] on devices [0, 1, 2, 3, 4, "
          "5, 6, 7]. Move one of them with `device_put(x, sharding)`.", sw.jit(shifted), b)


def test_arguments_placed_otherwise_than_in_shardings_ask():
    x = sw.device_put(X, over("x"))
    fails(ValueError, "identity: a of type f32[8,4] is on NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
          "spec=P('x')), but in_shardings asks for NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
          "spec=P('y')). Use `device_put` to move it, or None in in_shardings to take it as it is.",
          sw.jit(identity, in_shardings=over("y")), x)


def test_a_constraint_over_devices_that_the_program_does_not_have():
    target = NamedSharding(HALF, P("x"))
    fails(ValueError, "<lambda> runs on one set of devices: a of type f32[8,4] is on devices [0, "
          "1, 2, 3, 4, 5, 6, 7], but a result or a value within is to be on devices [0, 1, 2, 3] "
          f"({target}). Use `device_put` outside of it.",
          sw.jit(lambda a: sw.with_sharding_constraint(a, target)), sw.device_put(X, over("x")))


# ------------------------------------------------------------------------------- wrong values


def test_arguments_that_are_no_arrays():
    advice = ("Arguments are arrays and scalars, in pytrees; mark others static with "
              "static_argnums or static_argnames.")
    fails(TypeError, f"jit of identity: a: expected an array or a scalar, got 'text' of type str. "
          f"{advice}", sw.jit(identity), "text")
    fails(TypeError, "jit of identity: a['k'][1]: expected an array or a scalar, got Ellipsis of "
          f"type ellipsis. {advice}", sw.jit(identity), {"k": [V, ...]})
    fails(TypeError, "jit of identity: a: dtype <U1 is not supported: it holds text. Arrays hold "
          "booleans, integers, floating-point or complex numbers. Encode it as integers first. "
          f"{advice}", sw.jit(identity), np.array(["a"]))
    fails(TypeError, "jit of identity: a: ShapeDtypeStruct(shape=(2,), dtype=float32) has no data; "
          f"types are for `trace`, `lower` and `eval_shape`. {advice}",
          sw.jit(identity), sw.ShapeDtypeStruct((2,), np.float32))
    fails(TypeError, f"jit of identity: a: expected an array or a scalar, got 'text' of type str. "
          f"{advice}", sw.grad(lambda a: a * sw.jit(identity)("text")), 1.0)
    fails(TypeError, "device_put: x[0]: expected an array or a scalar, got 'text' of type str.",
          sw.device_put, ["text"], sw.devices()[0])


def test_results_that_are_no_arrays():
    fails(TypeError, "jit of label: the result at ['r'][1]: expected an array or a scalar, got "
          "'text' of type str. A jitted function returns arrays and scalars, in pytrees.",
          sw.jit(_label()), V)


def _label():
    def label(a):
        return {"r": [a, "text"]}

    return label


def test_what_is_no_function():
    fails(TypeError, "jit takes a function; got 3 of type int.", sw.jit, 3)


def test_operands_of_wrong_types():
    fails(TypeError, "[and] takes boolean or integer operands; got f32[3] and f32[3].",
          lax.bitwise_and, V, V)
    fails(TypeError, "[add] operands must have equal dtypes; got f32[3] and i32[3]. The functions "
          "of shardwise.numpy promote.", lax.add, V, V.astype(np.int32))
    with pytest.raises(TypeError, match=r"shapes \(8, 4\) and \(3,\) do not broadcast together"):
        jnp.add(X, V)


def test_static_arguments():
    def f(a, n):
        return a

    fails(ValueError, "jit of f: static argument 1 is [1] of type list, which cannot be hashed. "
          "Static arguments are part of the cache key: use a hashable type such as a tuple, or do "
          "not mark it static.", sw.jit(f, static_argnums=1), V, [1])
    fails(ValueError, "jit of f: static argument 'n' is {} of type dict, which cannot be hashed. "
          "Static arguments are part of the cache key: use a hashable type such as a tuple, or do "
          "not mark it static.", sw.jit(f, static_argnames="n"), V, n={})
    fails(ValueError, "jit of f: static_argnums=(2,) asks for argument 2, but the function takes 2 "
          "positional arguments.", sw.jit, f, static_argnums=2)
    fails(ValueError, "jit of f: donate_argnums=(-3,) asks for argument -3, but the function takes "
          "2 positional arguments.", sw.jit, f, donate_argnums=-3)
    fails(ValueError, "jit of f: static_argnames names 'm', which is not a parameter of the "
          "function; its parameters are 'a' and 'n'.", sw.jit, f, static_argnames="m")
    fails(ValueError, "jit of f: 'n' cannot be both static and donated; a static argument has no "
          "memory on a device.", sw.jit, f, static_argnums=1, donate_argnames="n")
    fails(TypeError, "jit: static_argnums takes ints; got 1.5 of type float.",
          sw.jit, f, static_argnums=1.5)
    fails(TypeError, "jit: static_argnums takes ints; got 'n' of type str.",
          sw.jit, f, static_argnums="n")
    fails(TypeError, "jit: static_argnames takes strings; got 1 of type int.",
          sw.jit, f, static_argnames=1)


def test_immutability():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"x\.at\[idx\]\.set\(value\)"):
        x[0] = 1
    fails(TypeError, "Array cannot be made directly; use shardwise.numpy.array, device_put or "
          "make_array_from_callback.", sw.Array, [1.0])


# ------------------------------------------------------------------------ values that are traced


def choose(a, b):
    if a.sum() > b:  # the line of choose
        return a
    return b


def test_a_traced_condition_names_arguments_and_lines():
    where = line("# the line of " + "choose")
    here = inspect.currentframe().f_lineno + 1
    fails(errors.TracerBoolConversionError, f"bool() at FILE:{where} (choose) needs the value of a "
          "traced array of type bool[], which is not known while tracing (jit of choose, called at "
          f"FILE:{line('fun(*args, **kwargs)' + chr(10))} (fails)). The value depends on the "
          "arguments a, b. Use `numpy.where` or `lax.cond` to choose by value, `lax.while_loop` "
          "to repeat, or mark the argument static with `static_argnums`.", sw.jit(choose), V, 2.0)
    assert here > where


def test_a_traced_condition_under_vmap():
    where = line("# the line of " + "choose")
    fails(errors.TracerBoolConversionError, f"bool() at FILE:{where} (choose) needs the value of a "
          "traced array of type bool[], which is not known while tracing (vmap of choose, called "
          f"at FILE:{line('fun(*args, **kwargs)' + chr(10))} (fails)). The value was made at "
          f"FILE:{where} (choose). Use `numpy.where` or `lax.cond` to choose by value, "
          "`lax.while_loop` to repeat, or do not map the argument, with None in `in_axes`.",
          sw.vmap(choose, in_axes=(0, None)), X, 2.0)


CONVERSIONS = {
    "float()": (float, errors.ConcretizationTypeError, "Keep it an array"),
    "int()": (int, errors.ConcretizationTypeError, "Keep it an array"),
    "complex()": (complex, errors.ConcretizationTypeError, "Keep it an array"),
    "item()": (lambda a: a.item(), errors.ConcretizationTypeError, "Keep it an array"),
    "tobytes()": (lambda a: a.tobytes(), errors.ConcretizationTypeError, "Keep it an array"),
    "tolist()": (lambda a: a.tolist(), errors.ConcretizationTypeError, "Keep it an array"),
    "format '.2f'": (lambda a: f"{a:.2f}", errors.ConcretizationTypeError, "Keep it an array"),
    "numpy.asarray()": (np.asarray, errors.TracerArrayConversionError,
                        "Use shardwise.numpy instead of numpy inside transformed functions"),
    "use as a Python integer": (
        range, errors.TracerIntegerConversionError,
        "Use arrays and `lax.scan` instead of lists, `range` and shapes that depend on values",
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
        f"and its derivative would be lost. {advice}, or say that it is a constant with "
        "`lax.stop_gradient`."
    )
    assert transform(lambda a: a * np.real(convert(lax.stop_gradient(a))))(3.0) == 3


def test_numpy_functions_do_not_silently_drop_derivatives():
    with pytest.raises(errors.TracerArrayConversionError):
        sw.grad(lambda a: np.sin(a))(3.0)
    assert sw.grad(lambda a: a * int(a) if a > 0 else a)(3.5) == 3


@pytest.mark.parametrize("make", [jnp.zeros, lambda n: jnp.ones((2, n)), lambda n: [1, 2][n],
                                  lambda n: jnp.zeros(4).reshape(n, 2)])
def test_shapes_and_lists_that_need_traced_integers(make):
    with pytest.raises(errors.TracerIntegerConversionError) as caught:
        sw.jit(make)(2)
    assert "The value depends on the argument" in str(caught.value)


def test_what_arrays_have_and_traced_values_do_not():
    with pytest.raises(AttributeError) as caught:
        sw.jit(lambda a: a.addressable_shards)(V)
    assert str(caught.value) == (
        "a traced value has no 'addressable_shards', since it has no data and no place: it is of "
        f"type f32[3] (jit of <lambda>, called at {__file__}:{line('lambda a: a.addressable')} "
        "(test_what_arrays_have_and_traced_values_do_not)). Ask the arrays outside of the "
        "function; `typeof(x)` gives the type, with the sharding over explicit mesh axes."
    )
    with pytest.raises(AttributeError, match=r"'StageTracer' object has no attribute 'summ'\."):
        sw.jit(lambda a: a.summ)(V)


def test_keys_of_dicts_and_loops_over_scalars():
    with pytest.raises(TypeError, match=r"a traced value of type f32\[3\] cannot be hashed \(jit"):
        sw.jit(lambda a: {a: 1})(V)
    with pytest.raises(TypeError, match=r"without dimensions, of type f32\[\] \(grad of <lambda>"):
        sw.grad(lambda a: sum(a))(np.float32(1))


def test_a_mask_names_arguments():
    with pytest.raises(errors.NonConcreteBooleanIndexError) as caught:
        sw.jit(lambda data, limit: data[data > limit])(V, 1.0)
    assert "bool[3], which is not known while tracing (jit of <lambda>, called" in str(caught.value)
    assert "The value depends on the arguments data, limit. Use `numpy.where(" in str(caught.value)


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
        "jit of <lambda>: static argument 1 is a traced value of type ~i32[] (jit of outer, called "
        "HERE). The value depends on the argument n. A program is made for the value of a static "
        "argument, and this one is not known while tracing. Do not mark it static, or compute it "
        "outside of the traced function."
    )


# --------------------------------------------------------------------------------- leaked values


def leak(transform):
    """A tracer that got out of its function."""
    kept = []

    def keep(a):
        b = jnp.sin(a)  # the line of keep
        kept.append(b)
        return b.sum()

    transform(keep)(V)  # the line of leak
    return kept[0]


def at(transform):
    """A transform of a function, called for its value or derivative at V."""
    return lambda fun: lambda v: transform(fun, v)


TRANSFORMS = {
    "jit": sw.jit,
    "grad": sw.grad,
    "vmap": sw.vmap,
    "jvp": at(lambda f, v: sw.jvp(f, (v,), (v,))),
    "vjp": at(sw.vjp),
    "linearize": at(sw.linearize),
    "jacfwd": sw.jacfwd,
    "scan": at(lambda f, v: lax.scan(lambda c, x: (f(x), None), np.float32(0), v[None])),
    "cond": at(lambda f, v: lax.cond(v[0] > 0, f, f, v)),
    "while_loop": at(lambda f, v: lax.while_loop(lambda s: s[0] < 0, lambda s: s + f(s), v)),
}
CALLED_BY_USER = ("jit", "grad", "vmap", "jacfwd")
USES = {
    "an op": lambda t: t + 1,
    "numpy": np.asarray,
    "bool": lambda t: bool(t[0] if t.ndim else t),
    "an op in jit": lambda t: sw.jit(lambda: t * 2)(),
    "an argument of jit": lambda t: sw.jit(lambda a: a)(t),
    "a result of jit": lambda t: sw.jit(lambda: t)(),
    "an op in grad": lambda t: sw.grad(lambda a: (a * t).sum())(1.0),
    "an op in vmap": lambda t: sw.vmap(lambda a: a * t)(V),
    "an argument of grad": lambda t: sw.grad(jnp.sum)(t),
    "device_put": lambda t: sw.device_put(t, sw.devices()[0]),
    "a static argument": lambda t: sw.jit(lambda a: a, static_argnums=0)(t),
    "within a static argument": lambda t: sw.jit(lambda a: a, static_argnums=0)((t, 1)),
    "scan": lambda t: lax.scan(lambda c, x: (c + t.sum(), x), 0.0, V),
    "cond": lambda t: lax.cond(True, lambda: t, lambda: t + 1),
    "a list": lambda t: jnp.array([t, t]),
    "a shape": jnp.zeros,
    "a slice": lambda t: jnp.zeros(3)[t:],
    "an axis": lambda t: jnp.sum(V, axis=t),
    "a loop": list,
    "float": float,
    "format": lambda t: f"{t:.2f}",
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_leaked_tracers_name_transform_function_call_and_line(transform):
    tracer = leak(TRANSFORMS[transform])
    shape = "" if transform == "vmap" else "3"
    for name, use in USES.items():
        if name == "bool" and transform != "vmap":
            continue
        with pytest.raises(errors.UnexpectedTracerError) as caught:
            use(tracer)
        message = re.sub(re.escape(__file__), "FILE", str(caught.value))
        if transform in CALLED_BY_USER:
            called = f"FILE:{line('# the line of ' + 'leak')} (leak)"
            message = message.replace(f"{transform} of keep, called at {called}", "WHO")
        else:
            called = rf"{transform} of \S+, called at FILE:\d+ \(<lambda>\)"
            message = re.sub(called, "WHO", message)
        where = f"FILE:{line('# the line of ' + 'keep')} (keep)"
        assert message == (
            f"a traced value of type f32[{shape}] was used outside the function that it belongs "
            f"to: WHO, which has ended. The value was made at {where}. Return the value from the "
            "function instead of storing it in a variable or object outside."
        ), name


class Model:
    pass


def through_an_attribute(model):
    def fun(a):
        model.state = {"h": a * 2}
        return a.sum()

    sw.grad(fun)(V)
    return model.state["h"]


def through_an_exception():
    def fun(a):
        raise KeyError(a * 2)

    try:
        sw.jit(fun)(V)
    except KeyError as error:
        return error.args[0]


def through_a_generator():
    kept = []

    def fun(a):
        kept.append(a * i for i in (1, 2))
        return a.sum()

    sw.grad(fun)(V)
    return next(kept[0])


def through_a_thread():
    kept = []

    def fun(a):
        worker = threading.Thread(target=lambda: kept.append(a))
        worker.start()
        worker.join()
        return a.sum()

    sw.vmap(fun)(X)
    return kept[0]


@pytest.mark.parametrize("way", [lambda: through_an_attribute(Model()), through_an_exception,
                                 through_a_generator, through_a_thread])
def test_ways_out(way):
    with pytest.raises(errors.UnexpectedTracerError, match=r"of fun, called at .* has ended\."):
        way() + 1


@pytest.mark.parametrize("rule", ["fwd", "bwd", "jvp"])
def test_values_that_leave_derivative_rules(rule):
    kept = []

    def keep(a):
        kept.append(a * 3)
        return a * 2

    if rule == "jvp":
        f = sw.custom_jvp(lambda a: a * 2)
        f.defjvp(lambda p, t: (p[0] * 2, keep(t[0])))
    else:
        f = sw.custom_vjp(lambda a: a * 2)
        first, second = (keep, lambda ct: ct * 2)[:: 1 if rule == "fwd" else -1]
        f.defvjp(lambda a: (first(a), None), lambda _, ct: (second(ct),))
    sw.jit(sw.grad(lambda a: f(a).sum()))(V)
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        kept[0] + 1
    assert f"made at {__file__}:{line('kept.append(a * 3)')} (keep)" in str(caught.value)


def test_a_value_in_a_thread_beside_its_function():
    found = []

    def fun(a):
        def other():
            with pytest.raises(errors.UnexpectedTracerError) as caught:
                a + 1
            found.append(str(caught.value))

        worker = threading.Thread(target=other, name="worker")
        worker.start()
        worker.join()
        return a

    sw.jit(fun)(V)
    assert re.sub(r"called at \S+ \(\w+\)", "called HERE", found[0]) == (
        "a traced value of type f32[3] was used in thread 'worker', but it belongs to a function "
        "that is being traced in another one: jit of fun, called HERE. Start threads outside of "
        "transformed functions, or pass them arrays."
    )


def test_a_value_where_operations_run_at_once():
    def fun(a):
        with sw.ensure_compile_time_eval():
            return a + 1

    with pytest.raises(errors.UnexpectedTracerError) as caught:
        sw.jit(fun)(V)
    assert str(caught.value).endswith(
        "Within `ensure_compile_time_eval`, use values that are known while tracing."
    )


def test_a_leaked_argument():
    kept = []
    sw.jit(lambda a: kept.append(a) or a)(V)
    with pytest.raises(errors.UnexpectedTracerError, match="jit of <lambda>, called at"):
        kept[0] + 1
    assert repr(kept[0]) == "jit tracer f32[3]"

"""`composite`: names for the computations of functions; `dce_sink`: values that nothing uses."""

import functools
import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.errors import UnexpectedTracerError
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.helpers.errors import message as refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@functools.partial(lax.composite, name="my.softmax")
def softmax(x, /, *, axis):
    """Of numbers."""
    return sw.nn.softmax(x, axis)


def called(text):
    """The lines of composites in a text."""
    return [line.split(" = ", 1)[1] for line in text.splitlines() if "stablehlo.composite" in line]


# -- composite --


def test_it_is_its_decomposition():
    assert softmax.__name__ == "softmax" and softmax.__doc__ == "Of numbers."
    wanted = np.asarray(sw.nn.softmax(X, 0))
    np.testing.assert_array_equal(softmax(X, axis=0), wanted)
    np.testing.assert_array_equal(sw.jit(lambda x: softmax(x, axis=0))(X), wanted)
    tree = lax.composite(lambda pair: {"sum": pair[0] + pair[1]}, "my.sum")((X, 2))
    np.testing.assert_array_equal(tree["sum"], X + 2)
    assert lax.composite(lambda x: (), "my.nothing")(X) == ()


def test_name_version_and_attributes():
    def fun(x, **attributes):
        return x * 2, x

    def call(x):
        return lax.composite(fun, "my.op", 3)(
            x,
            a=None,
            b=1.5,
            c='s"\né\\',
            d=True,
            e=np.arange(3, dtype=np.int8),
            f=[1, -2],
            g=(1.0, "a"),
            h={"a": 1, "b": [False]},
            i=np.float32(2),
            j=np.array([[True, False]]),
            k=1e-30,
            m=float("inf"),
            n=np.zeros((0, 2)),
            o=np.uint16(3),
            p=[],
            q=np.zeros(()),
        )[0]

    (line,) = called(sw.jit(call).lower(X).as_text())
    assert line == (
        r"""stablehlo.composite "my.op" %arg0 {composite_attributes = {b = 1.5 : f64, """
        r"""c = "s\22\0A\C3\A9\5C", d = true, e = dense<[0, 1, 2]> : tensor<3xi8>, """
        r"""f = [1 : i64, -2 : i64], g = [1.0 : f64, "a"], h = {"a" = 1 : i64, "b" = [false]}, """
        r"""i = 2.0 : f32, j = dense<[[true, false]]> : tensor<1x2xi1>, k = 1.0e-30 : f64, """
        r"""m = 0x7FF0000000000000 : f64, n = dense<> : tensor<0x2xf64>, o = 3 : ui16, p = [], """
        r"""q = dense<0.0> : tensor<f64>}, decomposition = @fun, version = 3 : i32} : """
        r"""(tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)"""
    )
    np.testing.assert_array_equal(sw.jit(call)(X), 2 * X)
    np.testing.assert_array_equal(call(X), 2 * X)


def test_one_function_for_equal_calls():
    twice = sw.jit(lambda x: softmax(softmax(x, axis=1), axis=1) + softmax(x, axis=0))
    text = twice.lower(X).as_text()
    functions = re.findall(r"func.func private @softmax\w*", text)
    assert len(called(text)) == 3 and len(functions) == 2


def test_attributes_are_told_apart():
    power = lax.composite(lambda x, *, n: x**n, "my.power")
    assert power(np.float32(3), n=2) == 9 and power(np.float32(3), n=3) == 27
    whole = lax.composite(lambda x, *, n: x * n, "my.times")
    assert whole(np.int32(3), n=True).dtype == whole(np.int32(3), n=1).dtype == np.int32
    assert whole(np.int32(3), n=1.0).dtype == np.float32


def test_the_decomposition_may_use_arrays_from_outside():
    weights = jnp.arange(3.0)
    np.testing.assert_array_equal(lax.composite(lambda x: x @ weights, "my.dot")(X), X @ [0, 1, 2])


def test_a_map_of_it_is_one_of_the_decomposition():
    mapped = sw.jit(sw.vmap(lambda x: softmax(x, axis=0)))
    np.testing.assert_allclose(mapped(X), sw.nn.softmax(X, 1), rtol=1e-6)
    assert not called(mapped.lower(X).as_text())


def test_derivatives_are_refused_and_can_be_given():
    assert refused(ValueError, sw.grad(lambda x: softmax(x, axis=0).sum()), X) == (
        "composite 'my.softmax' has no derivative: a compiler may compute it differently from "
        "its decomposition. Define one with `shardwise.custom_jvp`, or differentiate the "
        "decomposition."
    )
    with pytest.raises(ValueError, match=r"^composite 'my\.twice' has no derivative: "):
        sw.linear_transpose(lax.composite(lambda x: 2 * x, "my.twice"), X)(X)
    tangent = sw.custom_jvp(lax.composite(lambda x: jnp.sin(x) / jnp.cos(x), "my.tangent"))
    tangent.defjvps(lambda t, out, x: t * (1 + out * out))
    assert sw.grad(tangent)(0.5) == pytest.approx(1 / np.cos(0.5) ** 2)
    np.testing.assert_array_equal(
        sw.grad(lambda y: softmax(X, axis=0)[0, 0] * y)(2.0), softmax(X, axis=0)[0, 0]
    )


def test_over_devices():
    mesh = sw.make_mesh((4,), ("a",))
    held = NamedSharding(mesh, PartitionSpec("a"))
    for shape, count in (((8, 4), 1), ((8, 3), 0)):  # 4 devices do not divide 3
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        fun = sw.jit(lambda x: softmax(x, axis=1))
        out = fun(sw.device_put(x, held))
        np.testing.assert_allclose(out, sw.nn.softmax(x, 1), rtol=1e-6)
        lowered = fun.lower(sw.device_put(x, held))
        assert len(called(lowered.as_text())) == count and out.sharding.spec[0] == "a"
        assert "all-gather" not in lowered.compile().as_text()
    with sw.set_mesh(mesh):
        part = sw.shard_map(lambda x: softmax(x, axis=1), in_specs=held.spec, out_specs=held.spec)
        out = part(sw.device_put(x, held))
    np.testing.assert_allclose(out, sw.nn.softmax(x, 1), rtol=1e-6)


def test_messages():
    add = lax.composite(lambda x, y=0: x + y, "my.add")
    kinds = (
        "attributes are booleans, integers, floats, strings, NumPy arrays, and tuples, lists and "
        "dictionaries of them. Pass arrays by position, or as NumPy arrays."
    )
    said = "composite 'my.add': the keyword argument y, which becomes an attribute, "
    assert refused(TypeError, add, X, y=object()) == f"{said}is of type object; {kinds}"
    assert refused(TypeError, add, X, y=[jnp.ones(2)]) == f"{said}is of type Array; {kinds}"
    assert refused(TypeError, add, X, y=2**63) == (
        f"{said}is 9223372036854775808, which has more than 64 bits. Pass arrays by position, or "
        "as NumPy arrays."
    )
    assert refused(UnexpectedTracerError, sw.jit(lambda y: add(X, y=y)), 1.0) == (
        f"{said}is a traced value. Pass it by position."
    )
    assert refused(
        UnexpectedTracerError, sw.jit(lambda y: lax.composite(lambda x: x + y, "my.add")(X)), 1.0
    ) == ("composite 'my.add': <lambda> closes over a traced value. Pass it as an argument.")
    assert refused(TypeError, add, object()).startswith(
        "composite 'my.add': the arguments[0] is <object object at "
    )
    assert refused(TypeError, lax.composite, 3, "my.op") == (
        "composite: the decomposition must be a function; got 3."
    )
    assert refused(TypeError, lax.composite, abs, 3) == (
        "composite: name must be a string and version an integer; got 3 and 0."
    )
    assert refused(ValueError, lax.composite, abs, "op") == (
        "composite: name must consist of ASCII letters, digits and _, in parts separated by dots, "
        "such as 'my.softmax'; got 'op'."
    )


# -- dce_sink --


def kept(program):
    return [e.op.name for e in program.eqns]


def test_a_program_keeps_what_it_takes():
    def fun(x):
        lax.dce_sink({"a": jnp.sin(x), "b": 2.0})
        return x

    assert kept(sw.make_jaxpr(fun)(1.0).jaxpr) == ["sin", "dce_sink", "dce_sink"]
    assert "dce_sink" in str(sw.make_jaxpr(sw.grad(fun))(1.0))
    assert "dce_sink" in str(sw.make_jaxpr(sw.vmap(fun))(X))
    assert "dce_sink" in str(sw.make_jaxpr(sw.jit(fun))(X))
    np.testing.assert_array_equal(sw.jit(fun)(X), X)
    np.testing.assert_array_equal(sw.vmap(fun)(X), X)
    assert sw.grad(fun)(3.0) == 1.0 and fun(3.0) == 3.0
    looped = lax.scan(lambda c, x: (c + fun(x), None), 0.0, X[0])[0]
    assert looped == X[0].sum()


def test_the_compiler_keeps_what_it_is_told_to():
    def fun(x, keep):
        lax.dce_sink(jnp.sin(x), prevent_mlir_dce=keep)
        return x * 2

    for keep in (False, True):
        compiled = sw.jit(fun, static_argnums=1).lower(X, keep).compile()
        assert ("sine" in compiled.as_text()) == keep
        np.testing.assert_array_equal(compiled(X), 2 * X)


def test_over_devices_the_compiler_keeps_values_of_single_ones():
    mesh = sw.make_mesh((4,), ("a",))
    held = NamedSharding(mesh, PartitionSpec("a"))
    x = sw.device_put(np.ones((8, 2), np.float32), held)

    def fun(x):
        lax.dce_sink(jnp.sin(x), prevent_mlir_dce=True)
        return x

    mapped = sw.jit(sw.shard_map(fun, mesh=mesh, in_specs=held.spec, out_specs=held.spec))
    text = mapped.lower(x).compile().as_text()
    assert 'custom_call_target="dce_sink", operand_layout_constraints={f32[2,2]{1,0}}' in text
    np.testing.assert_array_equal(mapped(x), x)
    assert refused(NotImplementedError, sw.jit(fun), x).endswith(
        "dce_sink: XLA keeps a value of several devices (prevent_mlir_dce=True) in single-device "
        "code only. Call it inside of `shardwise.shard_map`."
    )
    assert refused(TypeError, lax.dce_sink, "no array") == (
        "dce_sink: val is 'no array' of type str, which is not an array."
    )

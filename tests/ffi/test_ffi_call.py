"""`ffi_call` of functions in C++: values, attributes, layouts, memory, errors, under every map."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.ffi.call_description import attributes_of
from shardwise._src.lowering.text import attribute_text
from shardwise.ffi import ffi_call
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

pytestmark = pytest.mark.usefixtures("kernels")

X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
BF16 = jnp.bfloat16.dtype.type
METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


def f32(*shape):
    return sw.ShapeDtypeStruct(shape, np.float32)


def rms(x, name="rms", eps=0.5, **options):
    out = (f32(*x.shape), f32(*x.shape[:-1]))
    return ffi_call(name, out, **options)(x, eps=np.float32(eps))


def plain_rms(x, eps=0.5, xp=np):
    factor = 1 / (xp.mean(x * x, -1) + eps)
    return x * factor[..., None], factor


def add(root, name="add", method=None, scale=2):
    """The function of one library: the same foreign function is registered with both."""

    def call(a, b):
        out = root.ShapeDtypeStruct(a.shape, a.dtype)
        return root.ffi.ffi_call(name, out, vmap_method=method)(a, b, scale=np.float32(scale))

    return call


def close(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", everyday([lambda f: f, sw.jit, sw.checkpoint], 1))
def test_several_results(wrap):
    got = wrap(rms)(X)
    assert isinstance(got, tuple)
    close(got, plain_rms(X))


def test_results_are_a_tree():
    wanted = {"y": f32(8, 6), "more": [f32(8)]}
    order = ffi_call("rms", wanted)  # leaves in pytree order: "more" comes first
    assert "expected" in message(sw.errors.JaxRuntimeError, order, X, eps=0.5)
    x, flat = np.float32([4, 1]), [f32(2), sw.ShapeDtypeStruct((), np.int32)]
    got = ffi_call("increment", flat)(x)
    assert isinstance(got, list)
    np.testing.assert_array_equal(got[0], [5, 2])


def test_attributes_of_all_kinds():
    values = {
        "n": 2**40, "f": 0.1, "b": True, "text": "grüße", "g": np.float32(0.1), "k": np.uint8(200),
        "i": np.int32(-7), "ns": np.arange(1, 4), "fs": np.float32([1, 2.5]),
        "d": {"n": 5, "word": "four"},
    }  # fmt: skip
    wanted = np.float32([2**40, 0.1, 1, 7, 0.1, 200, -7, 123, 12.5, 5, 4])
    got = ffi_call("describe", f32(11))(**values)
    np.testing.assert_array_equal(got, wanted)
    theirs = jax.ffi.ffi_call("describe", jax.ShapeDtypeStruct((11,), jnp.float32))(**values)
    np.testing.assert_array_equal(theirs, wanted)


@pytest.mark.parametrize(
    "value",
    everyday([
        1, -(2**63), True, 1.5, -0.0, np.inf, np.nan, 1e300, "a\"\\\n\0b", b"\xff", np.float16(1.5),
        np.int8(-3), np.uint64(7), np.bool_(False), np.float32(np.nan), (1, 2.0), (), {},
        {"a": 1, "b": {"c": (1, "x")}}, np.zeros((0,), np.float32), np.array(2.0),
        np.array([True, False]), np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array([BF16(1.25)]), BF16(1.25),
    ], 0.4),
    ids=repr,
)  # fmt: skip
def test_attributes_are_written_as_jax_writes_them(value):
    with mlir.make_ir_context(), ir.Location.unknown():
        ours = ir.Attribute.parse(attribute_text(value))
        assert str(ours) == str(mlir.ir_attribute(value))


def test_what_is_no_attribute():
    call = ffi_call("add", f32(6))
    assert message(TypeError, call, X[0], X[0], scale=None) == (
        "ffi_call of 'add': the attribute 'scale' is of type NoneType; attributes are booleans, "
        "integers, floats, strings, NumPy arrays, and tuples, lists and dictionaries of them. Pass "
        "arrays of a program as operands."
    )
    assert message(TypeError, call, X[0], X[0], scale=[1, {"a": 2**64}]).startswith(
        "ffi_call of 'add': the attribute 'scale' is 18446744073709551616, which has more than 64"
    )
    with pytest.raises(TypeError, match="the attribute 'scale' is of type Array"):
        call(X[0], X[0], scale=swnp.ones(2))


def test_lists_are_as_tuples():
    text = [
        sw.jit(lambda v=v: ffi_call("describe", f32(1))(v=v)).lower().as_text()
        for v in ([1, [2.5, "a"]], (1, (2.5, "a")))
    ]
    assert '"v" = [1 : i64, [2.5 : f64, "a"]]' in text[0]
    assert text[0] == text[1].replace("lambda_1", "lambda")


def test_attributes_are_part_of_a_program():
    call = ffi_call("add", f32(6))
    first = call(X[0], X[1], scale=np.float32(1))
    assert attributes_of("", {"s": np.array(-0.0)}) != attributes_of("", {"s": np.array(0.0)})
    assert attributes_of("", {"s": 1, "t": True}) == attributes_of("", {"t": True, "s": 1})
    close([first], [X[0] + X[1]])
    close([call(X[0], X[1], scale=np.float32(-1))], [X[0] - X[1]])


# -- vmap --


@pytest.mark.parametrize(
    ("method", "axes"), everyday(product(METHODS, [(0, 0), (1, 0), (0, None), (None, 1)]), 4)
)
def test_vmap_as_jax(method, axes, shapes):
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    args = [x if d == 0 else x.T if d == 1 else x[0] for x, d in zip((a, b), axes, strict=True)]
    got, saw = [], []
    for root in (jax, sw):
        got.append(root.vmap(add(root, method=method), axes)(*args))
        np.asarray(got[-1])
        saw.append(shapes())
    np.testing.assert_array_equal(*got)
    assert saw[0] == saw[1]
    np.testing.assert_array_equal(sw.jit(sw.vmap(add(sw, method=method), axes))(*args), got[0])


@pytest.mark.parametrize("method", everyday(METHODS, 3))
def test_nested_vmap_as_jax(method):
    a, b = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.ones((2, 4), np.float32)
    got = [root.vmap(root.vmap(add(root, method=method), (0, None)))(a, b) for root in (jax, sw)]
    if method == "legacy_vectorized":  # the function cannot know which rows belong together
        assert got[0].shape == got[1].shape
    else:
        np.testing.assert_array_equal(*got)


def test_vmap_without_a_method():
    assert message(NotImplementedError, sw.vmap(add(sw)), X, X) == (
        "ffi_call of 'add': it cannot be used under vmap, as vmap_method is None. Pass one of "
        "'sequential', 'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized' "
        "to `ffi_call`: 'sequential' calls the function for each element; with the others it gets "
        "full batches."
    )
    assert message(ValueError, ffi_call, "add", f32(2), vmap_method="loop") == (
        "ffi_call of 'add': vmap_method must be None or one of 'sequential', "
        "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized'; got 'loop'."
    )


def test_vmap_of_layouts():
    def memory(x):
        out = f32(x.size), f32(*x.shape[::-1])
        layouts = {"input_layouts": [(1, 0)], "output_layouts": [None, (1, 0)]}
        return ffi_call("memory", out, vmap_method="broadcast_all", **layouts)(x)

    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    flat, counted = sw.vmap(memory)(x)
    np.testing.assert_array_equal(flat, x.transpose(0, 2, 1).reshape(2, 12))
    np.testing.assert_array_equal(
        counted, np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(0, 2, 1)
    )


# -- derivatives --


@sw.custom_vjp
def norm(x):
    return rms(x, vmap_method="broadcast_all")


def _forward(x):
    y, factor = rms(x, vmap_method="broadcast_all")
    return (y, factor), (x, factor)


def _backward(kept, cts):
    x, factor = kept
    return (ffi_call("rms_back", f32(*x.shape), vmap_method="broadcast_all")(x, factor, *cts),)


norm.defvjp(_forward, _backward)


def test_custom_vjp():
    loss = lambda f: lambda x: sum((y**2).sum() for y in f(x))  # noqa: E731
    wanted = jax.grad(loss(lambda x: plain_rms(x, xp=jnp)))(X)
    close([sw.grad(loss(norm))(X), sw.jit(sw.grad(loss(norm)))(X)], [wanted, wanted])
    close([sw.vmap(sw.grad(loss(norm)))(X)], [wanted])


@pytest.mark.parametrize(
    "derive",
    [
        lambda f: sw.grad(f),
        lambda f: lambda x: sw.jvp(f, (x,), (x,)),
        lambda f: lambda x: sw.linear_transpose(f, x)(np.float32(1)),
    ],
)
def test_no_derivative_by_itself(derive):
    assert message(ValueError, derive(lambda x: rms(x)[0].sum()), X) == (
        "ffi_call of 'rms': it has no derivative, because the function is opaque. "
        "Define one: wrap the call in a function with `shardwise.custom_vjp` or "
        "`shardwise.custom_jvp`. Or use `shardwise.lax.stop_gradient` on its arguments."
    )
    stopped = sw.grad(lambda x: (x * rms(sw.lax.stop_gradient(x))[0]).sum())
    close([stopped(X)], [plain_rms(X)[0]])


# -- memory and effects --


def test_layouts():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for layout in ((1, 0), sw.experimental.layout.Layout((1, 0))):
        call = ffi_call("memory", (f32(6), f32(3, 2)), input_layouts=[layout],
                        output_layouts=(None, layout))  # fmt: skip
        flat, counted = sw.jit(call)(x)
        np.testing.assert_array_equal(flat, x.T.ravel())
        np.testing.assert_array_equal(counted, np.arange(6).reshape(2, 3).T)
    flat, counted = ffi_call("memory", (f32(6), f32(3, 2)))(swnp.asarray(x.T.copy()).T)
    np.testing.assert_array_equal(flat, x.ravel())
    np.testing.assert_array_equal(counted, np.arange(6).reshape(3, 2))


def test_layouts_that_do_not_fit():
    assert message(ValueError, ffi_call("memory", f32(2, 3), input_layouts=[(0, 0)]), X) == (
        "ffi_call of 'memory': operand 0: the layout (0, 0) is for f32[8,6]; it must name each of "
        "its 2 dimensions once."
    )
    assert message(ValueError, ffi_call, "memory", f32(2, 3), output_layouts=[1]) == (
        "ffi_call of 'memory': result 0: the layout (1,) is for f32[2,3]; it must name each of its "
        "2 dimensions once."
    )
    assert message(ValueError, ffi_call("memory", f32(2, 3), input_layouts=[None, None]), X) == (
        "ffi_call of 'memory': got 2 layouts for 1 operand."
    )


def test_aliases():
    out = (f32(8, 6), sw.ShapeDtypeStruct((), np.int32))
    for aliases, same in (({0: 0}, True), (None, False)):
        run = sw.jit(lambda x, a=aliases: ffi_call("increment", out, input_output_aliases=a)(2 * x))
        y, shared = run(X)
        np.testing.assert_array_equal(y, 2 * X + 1)
        assert bool(shared) is same
    kept = swnp.asarray(X)
    y, _ = ffi_call("increment", out, input_output_aliases={0: 0})(kept)
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(kept, X)
    y, _ = sw.jit(sw.vmap(lambda x: ffi_call(
        "increment", (f32(6), out[1]), input_output_aliases={0: 0}, vmap_method="sequential"
    )(x)))(X)  # fmt: skip
    np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize(
    ("aliases", "end"),
    [
        ({1: 0}, "1: 0, but the call has 1 operand."),
        ({0: 2}, "0: 2, but the call has 2 results."),
        (
            {0: 1},
            "0: 1: the operand is f32[8,6], the result i32[]; only equal types can share memory.",
        ),
        ({0: 0}, "0: 0, but their layouts differ; only equal layouts can share memory."),
    ],
)
def test_aliases_that_do_not_fit(aliases, end):
    out = (f32(8, 6), sw.ShapeDtypeStruct((), np.int32))
    call = ffi_call("increment", out, input_output_aliases=aliases, output_layouts=[(1, 0), None])
    assert message(ValueError, call, X) == (
        f"ffi_call of 'increment': input_output_aliases has {end}"
    )


@pytest.mark.parametrize("effect", [True, False])
def test_calls_whose_results_are_not_used(kernels, effect):
    @sw.jit
    def f(x):
        ffi_call("tick", (), has_side_effect=effect)(x)
        return x + 1

    before = kernels.Calls()
    f(X).block_until_ready()
    assert kernels.Calls() - before == effect
    assert ("ffi" in str(sw.make_jaxpr(f)(X).effects)) is effect


def test_an_effect_in_a_loop(kernels):
    def step(carry, x):
        ffi_call("tick", (), has_side_effect=True)(x)
        return carry + x.sum(), None

    before = kernels.Calls()
    total, _ = sw.lax.scan(step, np.float32(0), X)
    np.testing.assert_allclose(total, X.sum(), rtol=1e-5)
    assert kernels.Calls() - before == 8


def test_states():
    count = sw.jit(lambda: ffi_call("count", f32(1), has_side_effect=True)(**{"from": 5}))
    assert [float(count()[0]) for _ in range(3)] == [5, 6, 7]


def test_the_interface_before(kernels):
    sw.ffi.register_ffi_target("thrice", sw.ffi.pycapsule(kernels.Thrice), api_version=0)
    call = ffi_call("thrice", f32(), custom_call_api_version=1)
    assert float(call(np.float32(7))) == 21
    assert message(ValueError, call, np.float32(7), a=1) == (
        "ffi_call of 'thrice': attributes need custom_call_api_version=4; got 1 with a. Pass a "
        "string as legacy_backend_config."
    )
    assert message(ValueError, ffi_call, "rms", f32(), legacy_backend_config="") == (
        "ffi_call of 'rms': legacy_backend_config is for custom_call_api_version below 4; got 4. "
        "Pass attributes as keyword arguments of the call."
    )


# -- errors --


@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit])
def test_what_the_function_says(wrap):
    root = wrap(lambda x: ffi_call("root", f32(3))(x))
    text = message(sw.errors.JaxRuntimeError, lambda: np.asarray(root(np.float32([1, -1, 2]))))
    assert text == "OUT_OF_RANGE: no root of element 1"
    np.testing.assert_array_equal(root(np.float32([1, 0, 2])), [1, 0, 2])


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: ffi_call("root", f32(3))(X[0].astype(np.int32)), "expected F32 but got S32"),
        (lambda: ffi_call("root", sw.ShapeDtypeStruct((6,), np.int32))(X[0]), "expected F32"),
        (lambda: ffi_call("root", [f32(6)] * 2)(X[0]), "results: expected 1 but got 2"),
        (lambda: ffi_call("root", f32(6))(X[0], X[0]), "arguments: expected 1 but got 2"),
        (lambda: ffi_call("add", f32(6))(X[0], X[0]), "attributes: expected 1 but got 0"),
        (lambda: ffi_call("add", f32(6))(X[0], X[0], scale=1.0), "expected F32 but got F64"),
        (lambda: ffi_call("rms", (f32(), f32()))(X[0, 0], eps=np.float32(0)), "rms takes rows"),
    ],
)
def test_calls_that_do_not_fit(call, part):
    text = message(sw.errors.JaxRuntimeError, lambda: sw.tree.map(np.asarray, call()))
    assert part in text and text.startswith("INVALID_ARGUMENT: ")


@pytest.mark.parametrize("version", [4, 2])
def test_names_that_nobody_registered(version):
    call = ffi_call("rm", f32(6), custom_call_api_version=version)
    wanted = (
        "no foreign function is registered as 'rm' for the platform cpu. Did you mean 'rms'? "
        "Register it with `shardwise.ffi.register_ffi_target`, before it is first called."
    )
    assert message(sw.errors.JaxRuntimeError, call, X[0]) == wanted
    assert "custom_call @rm(" in sw.jit(call).lower(X[0]).as_text()
    assert message(sw.errors.JaxRuntimeError, sw.jit(call).lower(X[0]).compile) == wanted


def test_kernels_of_jaxlib_need_no_registration():
    if sw.default_backend() != "cpu":
        pytest.skip("LAPACK's kernels are there on CPU")
    call = ffi_call(
        "lapack_sgetrf_ffi",
        (f32(3, 3), sw.ShapeDtypeStruct((3,), np.int32), sw.ShapeDtypeStruct((), np.int32)),
    )
    a = np.diag([2, 3, 4]).astype(np.float32)
    np.testing.assert_array_equal(call(a)[0], a)


def test_dtypes_of_64_bits_and_of_no_bits():
    call = ffi_call("none", sw.ShapeDtypeStruct((2,), np.int64))
    text = sw.jit(lambda: call(zero=np.zeros(2, sw.dtypes.float0))).lower().as_text()
    assert (
        "() -> (tensor<2xi64>)" in text and '"zero" = dense<[false, false]> : tensor<2xi1>' in text
    )


@pytest.mark.parametrize("wrong", [(3,), (), None])
def test_results_and_operands_that_are_none(wrong):
    assert message(ValueError, ffi_call, "rms", [f32(), wrong]) == (
        "ffi_call of 'rms': result_shape_dtypes must be objects with a shape and a dtype, such as "
        f"`ShapeDtypeStruct`; got {wrong!r} at position 1."
    )
    assert message(TypeError, ffi_call("rms", f32(2)), [1.0, 2.0]) == (
        "ffi_call of 'rms': each operand must be an array; got a pytree."
    )
    assert message(TypeError, ffi_call("rms", f32(2)), "x") == (
        "ffi_call of 'rms': arguments must be pytrees of arrays and scalars; got 'x' of type str. "
        "Bind others with functools.partial."
    )


def test_keys_are_their_integers():
    key = sw.random.key(3)
    got = ffi_call("root", f32(2))
    assert "expected F32 but got U32" in message(
        sw.errors.JaxRuntimeError, lambda: np.asarray(got(key))
    )


def test_exports_name_their_functions():
    f = sw.jit(lambda x: add(sw, name="add-parts")(x, x))
    with pytest.raises(ValueError, match="calls kernels that other releases may not have: 'add-p"):
        sw.export.export(f)(X)
    allowed = [sw.export.DisabledSafetyCheck.custom_call("add-parts")]
    written = sw.export.export(f, disabled_checks=allowed)(X).serialize()
    np.testing.assert_allclose(sw.export.deserialize(written).call(X), 3 * X, rtol=1e-6)


def test_exports_of_symbolic_shapes():
    f = sw.jit(lambda x: add(sw)(x, x))
    allowed = [sw.export.DisabledSafetyCheck.custom_call("add")]
    shape = sw.ShapeDtypeStruct(sw.export.symbolic_shape("a, 6"), np.float32)
    exported = sw.export.export(f, disabled_checks=allowed)(shape)
    for rows in (2, 5):
        np.testing.assert_allclose(exported.call(X[:rows]), 3 * X[:rows], rtol=1e-6)

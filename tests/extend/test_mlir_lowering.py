"""Lowering rules that build operations with MLIR's bindings."""

import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo as hlo

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.core import ShapedArray
from shardwise.extend import lowering
from shardwise.extend.core import Primitive
from shardwise.interpreters import batching, mlir
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message

F32 = np.dtype("float32")


def primitive(name, types, rule, multiple=False, platform=None):
    prim = Primitive(name)
    prim.multiple_results = multiple
    prim.def_abstract_eval(types)
    mlir.register_lowering(prim, rule, platform=platform)
    return prim


def scaled(ctx, x, *, by):
    (aval,), (out,) = ctx.avals_in, ctx.avals_out
    assert ctx.primitive.name == "scaled" and ctx.module_context.platforms == ("cpu",)
    assert mlir.aval_to_ir_type(out) == mlir.aval_to_ir_type(ctx.module_context, aval) == x.type
    factor = mlir.ir_constant(np.array(by, aval.dtype))
    whole = hlo.broadcast_in_dim(x.type, factor, mlir.dense_int_array([]))
    return [hlo.multiply(x, whole)]


def test_a_rule_that_builds_operations():
    prim = primitive("scaled", lambda x, by: x, scaled)
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    f = sw.jit(lambda x: prim.bind(jnp.sin(x), by=3.0) + prim.bind(x, by=0.5))
    np.testing.assert_allclose(f(x), 3 * np.sin(x) + x / 2, rtol=1e-6)
    text = f.lower(x).as_text()
    assert text.count("stablehlo.multiply") == 2 and "func.call" not in text
    found = sw.export.deserialize(sw.export.export(f)(x).serialize()).call(x)
    np.testing.assert_array_equal(found, f(x))


@pytest.mark.parametrize("shape, spec", [((8, 4), P("x", "y")), ((7, 4), P("x")), ((8, 2), P())])
def test_over_devices(shape, spec):
    prim = primitive("scaled", lambda x, by: x, scaled)
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    on = NamedSharding(mesh, spec)
    f = sw.jit(lambda x: prim.bind(x + 1, by=2.0))
    y = f(sw.device_put(x, on))
    assert y.sharding.is_equivalent_to(on, 2)
    np.testing.assert_array_equal(y, 2 * (x + 1))
    text = f.lower(sw.device_put(x, on)).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text


def test_several_results_regions_and_functions_beside():
    def rule(ctx, x, y):
        beside = ir.Module.parse(
            "func.func private @main_helper(%a: tensor<4xf32>) -> tensor<4xf32> "
            "{ %0 = stablehlo.negate %a : tensor<4xf32> return %0 : tensor<4xf32> }"
        )
        (helper,) = beside.body.operations
        helper.operation.clone(ctx.module_context.ip)
        (negated,) = func_call("main_helper", x)
        zero = mlir.ir_constant(np.float32(0))
        scalar = ir.RankedTensorType.get([], ir.F32Type.get())
        reduce = hlo.ReduceOp([scalar], [y], [zero], mlir.dense_int_array([0]))
        block = reduce.regions[0].blocks.append(scalar, scalar)
        with ir.InsertionPoint(block):
            hlo.return_([hlo.add(*block.arguments)])
        return [negated], reduce.results

    def func_call(symbol, *xs):
        from jaxlib.mlir.dialects import func

        return func.CallOp([x.type for x in xs], ir.FlatSymbolRefAttr.get(symbol), xs).results

    prim = primitive("both", lambda x, y: (x, ShapedArray((), F32)), rule, multiple=True)
    x = np.arange(4, dtype=np.float32)

    def f(x):
        a, b = prim.bind(x, x + 1)
        c, d = prim.bind(a * 2, x)
        return a, b, c, d

    a, b, c, d = sw.jit(f)(x)
    np.testing.assert_array_equal(a, -x)
    np.testing.assert_array_equal(c, 2 * x)
    assert (b, d) == (10, 6)
    located = sw.jit(f).lower(x).as_text(debug_info=True)
    assert "stablehlo.reduce" in located


def test_rules_within_rules():
    inner = primitive("scaled", lambda x, by: x, scaled)

    def rule(ctx, x):
        part = mlir.lower_fun(lambda x: inner.bind(x, by=2.0) + 1, multiple_results=False)
        (doubled,) = part(ctx, x)
        new = ctx.replace(avals_in=[*ctx.avals_out], primitive=inner)
        return [hlo.add(*scaled(new, doubled, by=10.0), x)]

    outer = primitive("outer", lambda x: x, rule)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(sw.jit(outer.bind)(x), 10 * (2 * x + 1) + x)

    def loop(x):
        return sw.lax.fori_loop(0, 2, lambda i, x: outer.bind(x), x)

    once = 21 * x + 10
    np.testing.assert_array_equal(sw.jit(loop)(x), 21 * once + 10)


def test_a_call_of_a_kernel_of_xla():
    def rule(ctx, x):
        out = mlir.aval_to_ir_type(ctx.avals_out[0])
        info = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
        config = {"uplo": ir.IntegerAttr.get(ir.IntegerType.get_unsigned(8), ord("L"))}
        call = mlir.custom_call(
            "lapack_spotrf_ffi",
            result_types=[out, info],
            operands=[x],
            backend_config=config,
            api_version=4,
            operand_layouts=[(0, 1)],
            result_layouts=[(0, 1), ()],
            operand_output_aliases={0: 0},
        )
        return [call.results[0]]

    if sw.default_backend() != "cpu":
        pytest.skip("LAPACK's kernel is there on CPU")
    prim = primitive("factor", lambda x: x, rule)
    a = np.array([[4, 2], [2, 5]], np.float32)
    np.testing.assert_allclose(np.tril(sw.jit(prim.bind)(a)), np.linalg.cholesky(a), rtol=1e-6)


def calling_the_host(fun, **options):
    def rule(ctx, *xs):
        how = {"has_side_effect": False, **options}
        outs, token, function = mlir.emit_python_callback(
            ctx, fun, None, list(xs), ctx.avals_in, ctx.avals_out, **how
        )
        ctx.module_context.add_keepalive(function)
        ctx.set_tokens_out(ctx.tokens_in)
        assert mlir.TokenSet.create(["a"]).get("a").type == mlir.token_type()
        assert token is None and len(ctx.tokens_in) == 0
        return outs

    return primitive("host", lambda x, y: [x], rule, multiple=True)


def test_calls_of_the_host():
    prim = calling_the_host(lambda x, y: [np.sin(x) + y])
    x = np.arange(8, dtype=np.float32)

    def f(x):
        y = sw.lax.fori_loop(0, 2, lambda i, x: prim.bind(x, x)[0], x)
        return y + sw.pure_callback(np.cos, x, x)

    y = np.sin(x) + x
    wanted = np.sin(y) + y + np.cos(x)
    run = sw.jit(f)
    np.testing.assert_allclose(run(x), wanted, rtol=1e-5)
    np.testing.assert_allclose(run(x), wanted, rtol=1e-5)
    place = NamedSharding(sw.make_mesh((4,), ("i",)), P("i"))
    np.testing.assert_allclose(run(sw.device_put(x, place)), wanted, rtol=1e-5)
    one = sw.shard_map(
        lambda x: prim.bind(x, x)[0], mesh=place.mesh, in_specs=P("i"), out_specs=P("i")
    )
    np.testing.assert_allclose(sw.jit(one)(x), y, rtol=1e-5)


def test_calls_of_the_host_that_do_not_fit():
    x = np.ones(2, np.float32)
    wrong = calling_the_host(lambda x, y: [x, y])
    with pytest.raises(sw.errors.CallbackError, match="must have equally many leaves"):
        np.asarray(sw.jit(wrong.bind)(x, x)[0])
    with pytest.raises(ValueError, match="with partitioned=True must have no results; got"):
        sw.jit(calling_the_host(print, partitioned=True).bind)(x, x)
    with pytest.raises(NotImplementedError, match="neither tokens nor shardings"):
        sw.jit(calling_the_host(print, sharding="x").bind)(x, x)


@pytest.mark.parametrize("dtype", [
    "bool", "int8", "uint16", "int4", "bfloat16", "float8_e5m2", "float32", "complex64", "int32"
])  # fmt: skip
@pytest.mark.parametrize("size", [0, 1, 5, 100])
def test_constants(dtype, size):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    value = (np.arange(size) % 7).astype(kind).reshape(-1, 1)
    prim = primitive(
        "given", lambda: ShapedArray(value.shape, kind), lambda ctx: [mlir.ir_constant(value)]
    )
    found = sw.jit(lambda: prim.bind())()
    assert found.dtype == kind and np.asarray(found).tobytes() == value.tobytes()


def test_types_attributes_and_contexts():
    with lowering.JaxIrContext() as context, ir.Location.unknown():
        assert isinstance(context, ir.Context)
        assert str(mlir.i32_attr(3)) == "3 : i32" and str(mlir.i64_attr(3)) == "3 : i64"
        assert str(mlir.dense_int_elements([1, 2])) == "dense<[1, 2]> : tensor<2xi64>"
        assert str(mlir.dense_int_array([1, 2])) == "array<i64: 1, 2>"
        assert str(mlir.dtype_to_ir_type(np.dtype("uint8"))) == "ui8"
        several = mlir.ir_attribute((np.float32(1), "a", True))
        assert str(several) == '[1.000000e+00 : f32, "a", true]'
        assert mlir.aval_to_ir_types(None, ShapedArray((2,), F32)) == (
            ir.RankedTensorType.get([2], ir.F32Type.get()),
        )
        assert mlir.flatten_ir_types([1, (2, 3)]) == [1, 2, 3]
        assert mlir.flatten_ir_values([[1, 2], 3]) == [1, 2, 3]
        with pytest.raises(TypeError, match=r"^ir_attribute: the value is of type object; "):
            mlir.ir_attribute(object())
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            mlir.shape_tensor(None, [2, 3])
        assert "stablehlo.concatenate" in mlir.module_to_string(module)
        assert str(mlir.token_type()) == "!stablehlo.token"
    assert isinstance(lowering.upstream_dialects, ir.DialectRegistry)
    assert lowering.LoweringRuleContext is mlir.LoweringRuleContext
    assert mlir.Value is ir.Value and mlir.ir is ir


def test_mistakes():
    def wrong(ctx, x):
        return [hlo.convert(ir.RankedTensorType.get([3], ir.F16Type.get()), x)]

    x = np.ones(3, np.float32)
    assert message(TypeError, lambda: sw.jit(primitive("wrong", lambda x: x, wrong).bind)(x)) == (
        "the lowering rule of wrong: it returned values of types tensor<3xf16>, but its type rule "
        "expects tensor<3xf32>."
    )
    with pytest.raises(ValueError, match=r"^the lowering rule of bad builds an invalid"):
        sw.jit(primitive("bad", lambda x: x, lambda ctx, x: [
            hlo.AddOp.build_generic(results=[x.type], operands=[x]).result
        ]).bind)(x)  # fmt: skip


def test_under_vmap_and_on_a_platform():
    prim = primitive("scaled", lambda x, by: x, scaled, platform="cpu")
    batching.defvectorized(prim)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    if sw.default_backend() == "cpu":
        found = sw.jit(sw.vmap(lambda x: prim.bind(x, by=3.0)))(x)
        np.testing.assert_array_equal(found, 3 * x)

"""User-defined primitives behave as the library's ops do, under every transform and map."""

import pickle

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.core import ShapedArray
from shardwise.extend.core import Primitive
from shardwise.interpreters import ad, batching, mlir, xla
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message as error_of

X = np.array([1.0, -0.0, np.nan, 2.0], np.float32)


def scale_primitive(types=lambda x: x):
    """Linear, elementwise, with a parameter."""
    calls: list[float] = []
    scale = Primitive("scale")

    @scale.def_impl
    def _(x, *, by):
        calls.append(by)
        return x * by

    scale.def_abstract_eval(lambda x, *, by: types(x))
    mlir.register_lowering(scale, mlir.lower_fun(lambda x, *, by: x * by, multiple_results=False))
    ad.deflinear2(scale, lambda ct, x, *, by: [scale.bind(ct, by=by)])
    batching.defvectorized(scale)
    return scale, calls


def split_primitive():
    """Two results of two operands: the sum and the product."""
    both = Primitive("sum_and_product")
    both.multiple_results = True
    both.def_impl(lambda x, y: [x + y, x * y])
    both.def_abstract_eval(lambda x, y: [x, x])
    mlir.register_lowering(both, mlir.lower_fun(lambda x, y: [x + y, x * y]))

    def jvp(primals, tangents):
        (x, y), (a, b) = primals, map(ad.instantiate_zeros, tangents)
        return both.bind(x, y), [a + b, a * y + x * b]

    def batch(args, dims):
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        x, y = (batching.bdim_at_front(a, d, size) for a, d in zip(args, dims, strict=True))
        return both.bind(x, y), [0, 0]

    ad.primitive_jvps[both] = jvp
    batching.primitive_batchers[both] = batch
    return both


def test_it_runs_by_its_implementation_and_is_compiled_by_its_lowering():
    scale, calls = scale_primitive()
    np.testing.assert_array_equal(scale.bind(X, by=2.0), X * 2)
    assert calls == [2.0]
    np.testing.assert_array_equal(sw.jit(lambda x: scale.bind(x, by=3.0))(X), X * 3)
    np.testing.assert_array_equal(xla.apply_primitive(scale, jnp.array(X), by=4.0), X * 4)
    assert calls == [2.0]  # neither called it


def test_without_a_lowering_it_runs_eagerly_in_functions_with_checkpoints():
    calls = []
    seen = Primitive("seen")
    seen.def_impl(lambda x: (calls.append(x), x)[1])
    seen.def_abstract_eval(lambda x: x)
    ad.deflinear2(seen, lambda ct, x: [ct])
    batching.defvectorized(seen)

    def f(x):
        return jnp.sin(seen.bind(x))

    saved = sw.checkpoint(f)
    assert sw.grad(saved)(0.5) == np.cos(np.float32(0.5))
    assert len(calls) >= 1
    np.testing.assert_allclose(sw.grad(sw.grad(saved))(0.5), -np.sin(0.5), rtol=1e-6)
    np.testing.assert_allclose(sw.vmap(saved)(X), np.sin(X), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="no lowering"):
        sw.jit(saved)(0.5)


def test_transforms():
    scale, _ = scale_primitive()
    x = np.arange(1.0, 5.0, dtype=np.float32)
    grad = sw.grad(lambda x: jnp.sin(scale.bind(x, by=3.0)).sum())
    np.testing.assert_allclose(grad(x), 3 * np.cos(3 * x), rtol=1e-5)
    np.testing.assert_allclose(sw.jit(grad)(x), 3 * np.cos(3 * x), rtol=1e-5)
    second = sw.vmap(sw.grad(sw.grad(lambda x: jnp.sin(scale.bind(x, by=3.0)))))
    np.testing.assert_allclose(second(x), -9 * np.sin(3 * x), rtol=1e-5)
    carry, _ = sw.lax.scan(lambda c, a: (scale.bind(c, by=2.0) + a, None), 0.0, x)
    assert carry == 26


def test_several_results():
    both = split_primitive()
    x, y = jnp.arange(3.0), jnp.array([4.0, 5.0, 6.0])
    for f in (both.bind, sw.jit(both.bind)):
        total, product = f(x, y)
        np.testing.assert_array_equal(total, [4, 6, 8])
        np.testing.assert_array_equal(product, [0, 5, 12])
    grads = sw.grad(lambda x, y: both.bind(x, y)[1].sum(), (0, 1))(x, y)
    np.testing.assert_array_equal(grads, [y, x])
    rows = sw.vmap(both.bind, (0, None))(jnp.stack([x, y]), y)
    np.testing.assert_array_equal(rows[1], [x * y, y * y])


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [P("x"), P("y"), P(("x", "y")), P()])
def test_over_devices(spec, kind):
    scale, _ = scale_primitive()
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(kind, kind))
    x = np.resize(X, 7)
    placed = sw.device_put(x, NamedSharding(mesh, spec))
    np.testing.assert_array_equal(sw.jit(lambda x: scale.bind(x, by=-1.0))(placed), -x)
    whole = sw.device_put(np.resize(X, 8), NamedSharding(mesh, spec))
    mapped = sw.shard_map(
        lambda x: scale.bind(x, by=-1.0), mesh=mesh, in_specs=spec, out_specs=spec
    )
    result = mapped(whole)
    assert result.sharding.is_equivalent_to(whole.sharding, 1)
    np.testing.assert_array_equal(result, -np.resize(X, 8))
    assert np.signbit(np.asarray(result)[0]) and not np.signbit(np.asarray(result)[1])


def test_in_programs():
    scale, _ = scale_primitive()
    program = sw.make_jaxpr(lambda x: scale.bind(x, by=3.0))(X)
    (eqn,) = program.jaxpr.eqns
    assert eqn.primitive is scale and eqn.params == {"by": 3.0}
    assert str(program) == ("{ lambda ; a:f32[4]. let\n    b:f32[4] = scale[by=3.0] a\n  in (b,) }")
    np.testing.assert_array_equal(eqn.primitive.bind(X, **eqn.params), X * 3)
    assert error_of(TypeError, pickle.dumps, program) == (
        "scale: a primitive of `shardwise.extend.core.Primitive` has rules that are functions of "
        "this process, so a program with it cannot be pickled."
    )


def test_types_without_shardings_over_explicit_axes():
    scale, _ = scale_primitive(lambda x: ShapedArray(x.shape, x.dtype))
    mesh = sw.make_mesh((8,), ("x",))
    x = sw.device_put(np.resize(X, 8), NamedSharding(mesh, P("x")))
    assert error_of(NotImplementedError, lambda: sw.jit(lambda x: scale.bind(x, by=2.0))(x)) == (
        "scale: the primitive's operands are sharded over explicit mesh axes, and its abstract "
        "evaluation rule does not specify the sharding of results: give `ShapedArray` a sharding, "
        "or call it inside of `shardwise.sharding.auto_axes`."
    )


def bare(name="bare"):
    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x: x)
    return primitive


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.bind(X),
         "bare: this primitive has no implementation. Define it with `bare.def_impl(function)`."),
        (lambda p: sw.jit(p.bind)(X),
         "bare: this primitive has no lowering for cpu. Define it with "
         "`shardwise.interpreters.mlir.register_lowering(primitive, rule)`."),
        (lambda p: sw.jvp(p.bind, (X,), (X,)),
         "bare: this primitive has no JVP rule. Define it with "
         "`shardwise.interpreters.ad.primitive_jvps[bare] = rule`."),
        (lambda p: sw.vmap(p.bind)(X),
         "bare: this primitive has no batching rule. Define it with "
         "`shardwise.interpreters.batching.primitive_batchers[bare] = rule`."),
        (ad.get_primitive_transpose,
         "bare: this primitive has no transpose rule. Define it with "
         "`shardwise.interpreters.ad.primitive_transposes[bare] = rule`."),
        (lambda p: sw.make_jaxpr(Primitive("bare").bind)(X),
         "bare: this primitive has no abstract evaluation rule. Define it with "
         "`bare.def_abstract_eval(rule)`."),
    ],
)  # fmt: skip
def test_rules_that_are_missing(call, message):
    assert error_of(NotImplementedError, lambda: call(bare())) == message


def test_names_of_ops_may_be_taken():
    add = bare("add")
    add.def_impl(lambda x: x + 1)
    np.testing.assert_array_equal(add.bind(np.float32(1)), 2)


def test_a_lowering_of_host_calls_constants_and_loops():
    table, seen = np.arange(40.0, dtype=np.float32), []
    prim = Primitive("hosted")
    prim.def_abstract_eval(lambda x: x)

    def body(x):
        sw.debug.callback(lambda v: seen.append(float(v)), x[0], ordered=True)
        shape = sw.ShapeDtypeStruct(x.shape, x.dtype)
        return sw.pure_callback(np.sin, shape, x) + jnp.array(table)[: x.shape[0]]

    mlir.register_lowering(prim, mlir.lower_fun(body, multiple_results=False))
    inner = Primitive("around")
    inner.def_abstract_eval(lambda x: x)
    mlir.register_lowering(inner, mlir.lower_fun(lambda x: prim.bind(x) * 2, False))
    x = np.array([0.5, 1, 2], np.float32)

    @sw.jit
    def repeated(x):
        return sw.lax.fori_loop(0, 3, lambda i, c: inner.bind(c), x)

    want = x
    for _ in range(3):
        want = (np.sin(want) + table[:3]) * 2
    np.testing.assert_allclose(repeated(x), want, rtol=1e-5)
    sw.effects_barrier()
    assert len(seen) == 3 and seen[0] == 0.5
    assert error_of(NotImplementedError, lambda: sw.export.export(repeated)(x)) == (
        "shardwise.export.export: repeated calls host functions (a callback, or "
        "`shardwise.debug.print`), which exist in this process only. Export it without them."
    )


def test_a_lowering_of_its_own_for_a_platform():
    prim = Primitive("somewhere")
    prim.def_abstract_eval(lambda x: x)
    mlir.register_lowering(prim, mlir.lower_fun(lambda x: x + 1, False), platform="cpu")
    mlir.register_lowering(prim, mlir.lower_fun(lambda x: x - 1, False))
    x = jnp.arange(3.0)
    if sw.default_backend() == "cpu":
        np.testing.assert_array_equal(sw.jit(prim.bind)(x), x + 1)
    both = sw.export.export(sw.jit(prim.bind), platforms=("cpu", "cuda"))(x)
    text = both.mlir_module()
    assert "stablehlo.add" in text and "stablehlo.subtract" in text


class Log:
    """An effect."""


class Other(Log):
    """An effect that may be compiled."""


mlir.lowerable_effects.add_type(Other)


def effectful_primitive(effect):
    log = Primitive("log")
    log.multiple_results = True
    log.def_effectful_abstract_eval(lambda *types: (types, {effect} if types else ()))
    log.def_impl(lambda *xs: [*xs])
    mlir.register_lowering(log, mlir.lower_fun(lambda *xs: [*xs]))
    ad.primitive_jvps[log] = lambda primals, tangents: (log.bind(*primals), tangents)
    return log


def test_effects_of_primitives():
    for effect, lowered in ((Log(), False), ("log", False), (Other(), True)):
        log = effectful_primitive(effect)

        def f(x, log=log):
            log.bind(x * 2)  # retained, as it has an effect
            return x + 1

        assert sw.make_jaxpr(sw.jit(f))(X).effects == {effect}
        assert sw.make_jaxpr(sw.jit(log.bind))().effects == set()
        if lowered:
            np.testing.assert_array_equal(sw.jit(f)(X), X + 1)
        else:
            assert error_of(ValueError, sw.jit(f), X).startswith("log: a program with the effects")


def with_own_derivative(f):
    g = sw.custom_vjp(f)
    g.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    return g


@pytest.mark.parametrize("around", [
    lambda f: lambda x: sw.lax.cond(x > 0, f, lambda x: x, x),
    lambda f: lambda x: sw.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0],
    lambda f: lambda x: sw.lax.while_loop(lambda c: f(c) < 2, lambda c: c + 1, x),
    lambda f: lambda x: sw.lax.while_loop(lambda c: c < 2, f, x),
    with_own_derivative,
    lambda f: sw.grad(sw.checkpoint(f)),
])  # fmt: skip
def test_effects_of_primitives_have_no_place_inside(around):
    log = effectful_primitive(Other())
    with pytest.raises(NotImplementedError, match="does not support the effects of log"):
        sw.jit(around(lambda x: log.bind(x)[0]))(1.0)


def test_token_sets():
    one, two = Log(), Other()
    both = mlir.TokenSet({one: "a", two: "b"})
    assert both.get(two) == "b" and len(both) == 2 and both.effects() == {one, two}
    assert both.update_tokens(mlir.TokenSet()) is both and both.subset([two]).items() == (
        (two, "b"),
    )
    assert both.update_tokens(mlir.TokenSet({one: "c"})).items() == ((one, "c"), (two, "b"))
    with pytest.raises(KeyError):
        mlir.TokenSet().get(one)

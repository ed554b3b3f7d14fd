"""The stages of `jit`: `trace`, `lower`, `compile`; `shardwise.stages`, their classes."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import ShapeDtypeStruct, stages
from shardwise._src.base.config import sharded_linalg_min_size_bytes
from shardwise._src.runtime.compiler.shardy import parsed
from shardwise.interpreters.mlir import module_to_string
from shardwise.sharding import NamedSharding, SingleDeviceSharding, use_abstract_mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, ours, sharding, theirs
from tests.helpers.errors import message
from tests.helpers.jitted import ONE, V, W, X


def test_the_stages():
    x = ours(X, "x")
    f = sw.jit(lambda a, b: {"y": a @ b["w"]})
    traced = f.trace(x, {"w": W})
    assert str(traced.program).startswith("{ lambda ; a:f32[8,4] b:f32[4,8]. let")
    assert traced.jaxpr is traced.program and "dot_general" in traced.as_text()
    assert traced.out_info == {"y": sw.ShapeDtypeStruct((8, 8), np.float32)}
    lowered = traced.lower()
    assert "stablehlo.dot_general" in lowered.as_text() and "sdy.mesh" in lowered.as_text()
    assert lowered.out_info == traced.out_info
    compiled = lowered.compile()
    assert "HloModule" in compiled.as_text()
    assert compiled.cost_analysis()["flops"] > 0
    assert compiled.memory_analysis().output_size_in_bytes == 8 * 8 * 4 // 4
    assert compiled.input_shardings == ((sharding("x"), {"w": sharding()}), {})
    assert compiled.output_shardings == {"y": sharding("x")}
    got = compiled(x, {"w": W})
    assert got["y"].sharding == sharding("x")
    np.testing.assert_allclose(np.asarray(got["y"]), X @ W, atol=1e-5)


def test_texts_of_stages():
    def f(a):
        return jnp.sort(jnp.sin(a), axis=0).sum()

    lowered = sw.jit(f).lower(ours(X, "x"))
    text = lowered.as_text()
    assert lowered.as_text("stablehlo") == text and "loc(" not in text
    assert lowered.as_text("hlo").startswith("HloModule jit_f")
    assert "metadata=" not in lowered.as_text("hlo")
    assert 'op_name="jit(f)/reduce_sum"' in lowered.as_text("hlo", debug_info=True)
    located = lowered.as_text(debug_info=True)
    assert f'loc("jit(f)/reduce_sum"("{__file__}":' in located and "stablehlo.sort" in located
    parsed(located)  # it is StableHLO
    assert (
        message(ValueError, lowered.as_text, "hhlo")
        == "as_text: unknown dialect 'hhlo'; expected 'stablehlo', 'hlo' or 'mhlo'."
    )
    assert "mhlo.sine" in lowered.as_text("mhlo") == str(lowered.compiler_ir("mhlo"))
    assert str(lowered.compiler_ir().operation.name) == "builtin.module"
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo")
    assert "HloModule" in lowered.compile().as_text()


def test_located_texts_name_arguments_and_results():
    def f(unused, x, y):
        return {"sum": x["a"] + W[0, 0], "both": [y]}

    rows = ours(X, "x")
    for g, args in ((sw.jit(f), (1.0, {"a": rows}, 2.0)), (sw.pmap(f), (X, {"a": X}, X))):
        lowered = g.lower(*args)
        located = lowered.as_text(debug_info=True)
        module = module_to_string(lowered.compiler_ir())
        for text in (located, module):
            assert "loc(\"x['a']\")" in text and 'loc("y")' in text
        for text in (located, module, lowered.as_text()):
            assert "jax.result_info = \"result['both'][0]\"" in text
            assert "jax.result_info = \"result['sum']\"" in text
        assert "loc(" not in lowered.as_text() and "result_info" not in lowered.plan.text
    assert "loc(" not in module_to_string(lowered.compiler_ir(), enable_debug_info=False)


def test_texts_are_of_the_program_that_is_compiled():
    a = sw.device_put(np.eye(4, dtype=np.float32), sharding("x"))
    with sharded_linalg_min_size_bytes(1):
        lowered = sw.jit(jnp.linalg.cholesky).lower(a)
    assert "shardwise_matrices" in lowered.plan.text
    for text in (lowered.as_text(), lowered.as_text(debug_info=True)):
        assert "shardwise_matrices" in text


def _every(x, y, *rest, k=None, **named):
    return x, y, rest, k, named


class WithoutSignature:
    __signature__ = "unknown"

    def __call__(self, *args, **kwargs):
        return args, kwargs


@pytest.mark.parametrize(
    ("f", "args", "kwargs", "options"),
    [
        (_every, ({"a": V}, V, V, [V, V]), {"k": V, "z": {"q": V}, "b": V}, {}),
        (_every, (), {"x": V, "y": V, "z": V}, {}),
        (_every, (V, 2, 3, V, V), {"z": V}, {"static_argnums": (1, 2)}),
        (functools.partial(_every, V), (V, V), {"z": V}, {}),
        (WithoutSignature(), (V, V), {"z": V}, {}),
    ],
    ids="every keywords static partial unknown".split(),
)
def test_arguments_have_the_names_that_jax_gives_them(f, args, kwargs, options):
    def names(jit):
        text = jit(f, **options).lower(*args, **kwargs).as_text(debug_info=True)
        known = dict(re.findall(r"^(#loc\d*) = (.*)$", text, re.MULTILINE))
        main = next(line for line in text.splitlines() if "@main" in line)
        return [known.get(n, n) for n in re.findall(r"%arg\d+:.*? loc\((#?\w+|\".*?\")\)", main)]

    found = [n.removeprefix("loc(").removesuffix(")") for n in names(sw.jit)]
    assert found == [n.removeprefix("loc(").removesuffix(")") for n in names(jax.jit)]
    assert found


def test_analyses():
    lowered = sw.jit(lambda a: a @ a.T).lower(ours(X, "x"))
    expected = jax.jit(lambda a: a @ a.T).lower(theirs(X, "x")).cost_analysis()
    assert lowered.cost_analysis()["flops"] == expected["flops"] == 8 * 8 * (2 * 4)
    compiled = lowered.compile()
    assert compiled.cost_analysis()["flops"] == expected["flops"] / 4
    assert compiled.memory_analysis().argument_size_in_bytes == X.nbytes // 4
    assert type(compiled.runtime_executable()).__name__ == "LoadedExecutable"


def test_stages_know_types_and_trees():
    traced = sw.jit(lambda a, *, b: {"c": a * b}, donate_argnums=0).trace(X, b=V)
    lowered = traced.lower(lowering_platforms=("cpu",))
    compiled = lowered.compile()
    for stage in (traced, lowered, compiled):
        (a,), named = stage.args_info
        assert (a.shape, a.dtype, a.donated) == ((8, 4), np.float32, True)
        assert not named["b"].donated and named["b"].shape == (4,)
        assert stage.donate_argnums == (0,) and stage.in_tree == traced.in_tree
        (a_type,), _ = stage.in_avals
        assert str(a_type) == "float32[8,4]"
        assert stage.out_info["c"].shape == (8, 4) and stage.out_tree == traced.out_tree
    assert traced.fun_name == "<lambda>" and str(traced.out_avals["c"]) == "float32[8,4]"
    assert compiled.out_info["c"].sharding is ONE
    np.testing.assert_array_equal(np.asarray(compiled.call(X, b=V)["c"]), X * V)
    assert message(ValueError, traced.lower, lowering_platforms=("cpu", "tpu")) == (
        "<lambda> is lowered for the devices of its arguments, of platform 'cpu', or for one other "
        "platform; lowering_platforms requests 'cpu' and 'tpu'. `shardwise.export` makes a program "
        "for several."
    )


def test_a_program_is_read_for_another_platform():
    def f(x):
        return sw.lax.platform_dependent(x, cpu=jnp.sin, tpu=jnp.cos)

    traced = sw.jit(f).trace(X)
    assert "stablehlo.sine" in traced.lower().as_text()
    there = traced.lower(lowering_platforms=("tpu",))
    assert "stablehlo.cosine" in there.as_text() and "stablehlo.sine" not in there.as_text()
    assert message(ValueError, there.compile) == (
        "compile: f is lowered for the platform 'tpu', without devices. To compile it, lower it "
        "with arguments on devices of a machine: `shardwise.targets.devices`."
    )


def test_stages_take_types_instead_of_values():
    there = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    compiled = sw.jit(lambda a: a.sum(1)).lower(there).compile()
    assert compiled(ours(X, "x")).sharding == sharding("x")
    assert compiled.input_shardings == ((sharding("x"),), {})


def test_stages_are_of_the_classes():
    jitted = sw.jit(lambda x: jnp.sin(x))
    traced = jitted.trace(V)
    lowered = traced.lower()
    assert isinstance(jitted, stages.Wrapped)
    assert not isinstance(np.sin, stages.Wrapped)
    assert isinstance(traced, stages.Traced)
    assert isinstance(lowered, stages.Lowered)
    assert isinstance(lowered.compile(), stages.Compiled)
    (info,), _ = traced.args_info
    assert isinstance(info, stages.ArgInfo)
    assert stages.CompilerOptions == dict[str, str | bool]


def test_a_traced_function_runs_again_and_under_transforms():
    traced = sw.jit(lambda x, y: {"a": x * y["b"]}).trace(V, {"b": V})
    assert traced.effects == frozenset()
    np.testing.assert_array_equal(traced(V, {"b": V + 1})["a"], V * (V + 1))
    slope = sw.grad(lambda x: traced(x, {"b": V})["a"].sum())(V)
    np.testing.assert_array_equal(slope, V)
    with pytest.raises(TypeError) as error:
        traced(V)
    assert str(error.value).startswith("traced <lambda> takes arguments with the pytree structure ")


def test_values_from_outside_become_arguments():
    weights = jnp.asarray(V + 1)
    traced = sw.jit(lambda x: x * weights).trace(V)
    consts, fun = traced.closure_convert()
    np.testing.assert_array_equal(consts[0], V + 1)
    np.testing.assert_array_equal(fun(consts, V), V * (V + 1))
    np.testing.assert_array_equal(fun([V], V), V * V)
    slope = sw.grad(lambda c: fun(c, V).sum())(consts)
    np.testing.assert_array_equal(slope[0], V)


# -- compiled programs --


EXACT = (
    "A compiled program runs on arguments of exactly its types: convert them, or call the jitted "
    "function, which compiles for others."
)


def test_compiled_programs_check_their_arguments():
    def scale(a, factor):
        return a * factor

    compiled = sw.jit(scale).lower(X, 2.0).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X, 3.0)), X * 3)
    assert message(TypeError, compiled, X[:4], 2.0) == (
        f"compiled scale: a must be of type f32[8,4]; got f32[4,4]. {EXACT}"
    )
    with pytest.raises(TypeError) as caught:
        compiled(X)
    assert str(caught.value) == (
        "compiled scale takes arguments with the pytree structure ((*, *), {}); got ((*,), {}): "
        "only the program has args[1]."
    )
    for bad in ("two", sw.ShapeDtypeStruct((), np.float32)):
        assert message(TypeError, compiled, X, bad) == (
            f"compiled scale: factor: expected an array or a scalar, got {bad!r} of type "
            f"{type(bad).__name__}."
        )


def test_all_arguments_that_do_not_fit_a_compiled_program_are_listed():
    def step(params, x, *, k):
        return params["w"] * x + params["b"] * k

    four = np.ones(4, np.float32)
    compiled = sw.jit(step).lower({"w": four, "b": four}, four, k=2.0).compile()
    assert message(TypeError, compiled, {"w": four[:2], "b": four.astype(np.int32)}, four, k=3) == (
        "compiled step: 3 arguments do not match:\n"
        "  params['b'] must be of type f32[4]; got i32[4]\n"
        "  params['w'] must be of type f32[4]; got f32[2]\n"
        "  k must be of type ~f32[]; got ~i32[]\n"
        f"{EXACT}"
    )
    assert message(TypeError, compiled, {"w": four}, [four], k=2.0) == (
        "compiled step takes arguments with the pytree structure (({'b': *, 'w': *}, *), {'k': "
        "*}); got (({'w': *}, [*]), {'k': *}): args[1] is a leaf in the program and a list of 1 in "
        "the call; only the program has args[0]['b']."
    )


def test_compiled_programs_move_only_what_nobody_placed():
    there = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    compiled = sw.jit(lambda a, b: a + b).lower(there, there).compile()
    assert compiled(X, sw.numpy.asarray(X)).sharding == sharding("x")
    alike = sw.device_put(X, NamedSharding(MESH, P("x", None)))
    assert compiled(alike, ours(X, "x")).sharding == sharding("x")
    assert message(ValueError, compiled, ours(X, "y"), ours(X)) == (
        "compiled <lambda>: 2 arguments do not match:\n"
        f"  a of type f32[8,4] is on {sharding('y')}, but the program was compiled for "
        f"{sharding('x')}\n"
        f"  b of type f32[8,4] is on {sharding()}, but the program was compiled for "
        f"{sharding('x')}\n"
        "Use `device_put` to bring it there."
    )
    elsewhere = sw.device_put(X, sw.devices()[3])
    assert message(ValueError, sw.jit(lambda a: a * 2).lower(X).compile(), elsewhere) == (
        f"compiled <lambda>: a of type f32[8,4] is on {elsewhere.sharding}, but the program was "
        f"compiled for {SingleDeviceSharding(sw.devices()[0])}. Use `device_put` to bring it there."
    )


def test_static_arguments_are_not_passed_to_compiled_programs():
    compiled = sw.jit(lambda a, n: a * n, static_argnums=1).lower(X, 3).compile()
    np.testing.assert_array_equal(np.asarray(compiled(X)), X * 3)


def test_compiled_programs_are_not_transformed():
    compiled = sw.jit(lambda a, b: a + b["c"]).lower(V, {"c": V}).compile()
    for transform in (sw.jit, sw.vmap, lambda f: sw.grad(lambda v: f(v).sum())):
        assert message(TypeError, transform(lambda v: compiled(V, {"c": v})), V) == (
            "compiled <lambda>: b['c'] is a traced value, but a compiled program runs on arrays "
            "only and cannot be transformed. Call the jitted function instead."
        )


def test_compile_refuses_other_devices():
    lowered = sw.jit(lambda x: x + 1).lower(V)
    here, other = sw.devices()[:2]
    assert lowered.compile(device_assignment=(here,))(V)[0] == 1
    assert message(ValueError, lowered.compile, device_assignment=(other,)) == (
        "compile: <lambda> is lowered for devices [0]; device_assignment requests [1]. Lower it "
        "with arguments, or shardings of `ShapeDtypeStruct`, on these."
    )


def test_compiler_options():
    f = sw.jit(lambda a: a * 2, compiler_options={"xla_cpu_enable_fast_math": False})
    np.testing.assert_array_equal(np.asarray(f(X)), X * 2)
    levels = {"optimization_level": "O1", "memory_fitting_level": "O0"}
    np.testing.assert_array_equal(sw.jit(lambda a: a * 3, compiler_options=levels)(X), X * 3)
    wrong = sw.jit(lambda a: a * 4, compiler_options={"optimization_level": "O9"})
    assert message(ValueError, wrong, X) == (
        "optimization_level must be one of UNKNOWN, O0, O1, O2, O3; got 'O9'."
    )


def test_lowered_for_an_abstract_mesh_and_compiled_for_devices():
    mesh = sw.make_mesh((2,), ("x",))
    place, f = NamedSharding(mesh.abstract_mesh, P("x")), sw.jit(lambda x, y: x * y)
    abstract = ShapeDtypeStruct((8, 2), "f4", sharding=place)
    traced = f.trace(abstract, 2.0)
    lowered = traced.lower(lowering_platforms=("cpu",))
    assert "mhlo.num_partitions = 2" in lowered.as_text()
    assert "num_partitions = 2" in traced.lower(lowering_platforms=("tpu",)).as_text()
    compiled = lowered.compile(device_assignment=tuple(mesh.flat_devices))
    x = sw.device_put(np.ones((8, 2), np.float32), NamedSharding(mesh, P("x")))
    y = compiled(x, np.float32(2))
    assert y.sharding == NamedSharding(mesh, P("x", None)) and y.sum() == 32
    for call, error in (
        (traced.lower, ValueError),
        (lowered.compile, RuntimeError),
        (lambda: lowered.compile(device_assignment=sw.devices()[:1]), ValueError),
        (lambda: f.trace(abstract, sw.device_put(1.0, sw.devices()[0])), ValueError),
    ):
        with pytest.raises(error, match="device"):
            call()
    with use_abstract_mesh(mesh.abstract_mesh):
        lowered = sw.jit(lambda: jnp.arange(8)).trace().lower(lowering_platforms=("tpu",))
        committed = sw.jit(lambda x: x + 1).trace(x).lower(lowering_platforms=("cpu",))
    assert "num_partitions = 2" in lowered.as_text() and "partitions = 2" in committed.as_text()
    concrete = ShapeDtypeStruct((8, 2), "f4", sharding=NamedSharding(mesh, P()))
    both = f.trace(abstract, concrete).lower().compile()
    assert [s.mesh for s in both.input_shardings[0]] == [mesh, mesh]

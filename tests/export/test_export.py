"""Exported functions return what the functions return, directly and from bytes, in transforms."""

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import export
from shardwise._src.base.config import (
    export_calling_convention_version,
    sharded_linalg_min_size_bytes,
)
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.meshes import BACK, MESH, REVERSED, mesh_of

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(4, 3)
Y = np.arange(6, dtype=np.float32).reshape(3, 2)


def f(x, y):
    return {"a": jnp.sin(x) @ y, "b": (x.sum(), [y.max()])}


def same(got, wanted):
    assert sw.tree.structure(got) == sw.tree.structure(wanted)
    for a, b in zip(sw.tree.leaves(got), sw.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def again(exported, vjp_order=0):
    """From bytes."""
    return export.deserialize(exported.serialize(vjp_order))


def exported(fun, *args, **options):
    return export.export(sw.jit(fun), **options)(*args)


def test_the_record_says_what_was_exported():
    found = exported(f, X, Y)
    for e in (found, again(found)):
        assert (e.fun_name, e.nr_devices, e.platforms) == ("f", 1, ("cpu",))
        assert [t.str_short(True) for t in e.in_avals] == ["f32[4,3]", "f32[3,2]"]
        assert [t.str_short(True) for t in e.out_avals] == ["f32[4,2]", "f32[]", "f32[]"]
        assert e.in_tree == sw.tree.structure(((X, Y), {}))
        assert e.out_tree == sw.tree.structure(f(X, Y))
        assert e.calling_convention_version == 10 and not e.uses_global_constants
        assert e.module_kept_var_idx == (0, 1)
        assert e.in_shardings_jax() == e.in_shardings_hlo == (None, None)
        assert (e.ordered_effects, e.unordered_effects, e.disabled_safety_checks) == ((), (), ())
        assert "func.func public @main(%arg0: tensor<4x3xf32>" in e.mlir_module()
        assert str(e) == "Exported(fun_name=f, ...)"
    low = export.minimum_supported_calling_convention_version
    assert low <= 10 == export.maximum_supported_calling_convention_version
    assert found.serialize() == again(found).serialize()
    with export_calling_convention_version(9):
        assert again(exported(f, X, Y)).calling_convention_version == 9
        with pytest.raises(ValueError, match=r"modules over 8 devices have version 10\."):
            exported(sw.lax.sin, sw.device_put(X, NamedSharding(MESH, P())))
    with export_calling_convention_version(11), pytest.raises(ValueError, match="versions 9 to 10"):
        exported(f, X, Y)


@pytest.mark.sweep
def test_calls_under_transforms():
    wanted = f(X, Y)
    for e in (exported(f, X, Y), again(exported(f, X, Y), 2)):
        same(e.call(X, Y), wanted)
        same(sw.jit(lambda x, y, e=e: e.call(x, y))(X, Y), wanted)
        same(sw.jit(lambda x, y, e=e: e.call(x * 1, y)["a"] + 1)(X, Y), wanted["a"] + 1)

        def loss(x, y, fun=e.call):
            return (fun(x, y)["a"] ** 2).sum()

        args = sw.numpy.asarray(X), sw.numpy.asarray(Y)
        for of in (sw.grad, lambda g, argnums: sw.jit(sw.grad(g, argnums))):
            got = of(loss, argnums=(0, 1))(*args)
            want = sw.grad(lambda x, y: loss(x, y, f), argnums=(0, 1))(*args)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

        def second(fun, loss=loss):
            return sw.grad(lambda x: (sw.grad(loss)(x, Y, fun) ** 2).sum())(X)

        np.testing.assert_allclose(second(e.call), second(f), rtol=1e-4)


def test_integers_have_no_derivatives():
    def scaled(x, n):
        return (x * n).sum(), n + 1

    e = again(exported(scaled, X, np.int32(3)), 2)
    kinds = [t.str_short(True) for t in e.vjp().in_avals]
    assert kinds == ["f32[4,3]", "i32[]", "f32[]", "float0[]"]
    assert [t.str_short(True) for t in e.vjp().out_avals] == ["f32[4,3]", "float0[]"]
    assert e.vjp().module_kept_var_idx == (1, 2)
    slope = sw.grad(lambda x: e.call(x, np.int32(3))[0])(X)
    np.testing.assert_array_equal(slope, np.full_like(X, 3))
    twice = sw.grad(lambda x: sw.grad(lambda y: e.call(y, np.int32(3))[0] ** 2)(x).sum())(X)
    np.testing.assert_allclose(twice, np.full_like(X, 2 * 9 * 12))
    assert e.vjp().has_vjp() and not e.vjp().vjp().has_vjp()


def test_keys_constants_and_dtypes():
    held = np.random.default_rng(0).normal(size=200).astype(np.float32)
    masks = held > 0
    small = np.arange(-3, 4).astype("int4")
    e = again(exported(lambda x: (jnp.where(masks, x * held, 0), jnp.asarray(small)), held))
    np.testing.assert_array_equal(e.call(held)[0], np.where(masks, held * held, 0))
    np.testing.assert_array_equal(np.asarray(e.call(held)[1]), small)
    key = sw.random.key(3)
    e = again(exported(lambda k: (sw.random.uniform(k, (3,)), sw.random.split(k)), key))
    np.testing.assert_array_equal(e.call(key)[0], sw.random.uniform(key, (3,)))
    assert e.call(key)[1].dtype == key.dtype
    for name in ("bool", "int8", "uint16", "bfloat16", "float16", "complex64", "float8_e4m3fn"):
        x = np.ones((2, 3)).astype(jnp.dtype(name))
        e = again(exported(lambda x: (x, x[::-1].T), x))
        assert e.in_avals[0].dtype == x.dtype
        same(e.call(x)[0], sw.numpy.asarray(x))
    with sw.enable_x64(True):
        e = exported(lambda x: x / 3, np.ones(2))
        np.testing.assert_array_equal(again(e).call(np.ones(2)), np.ones(2) / 3)


class Sized:
    """Only for arrays: it checks its leaf."""

    def __init__(self, held):
        self.held, self.count = held, len(held)


class Pair(NamedTuple):
    left: object
    right: object


class Box:
    def __init__(self, held, label):
        self.held, self.label = held, label


def test_trees():
    sw.tree_util.register_pytree_node(Box, lambda b: ((b.held,), b.label), lambda n, c: Box(*c, n))
    export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
    export.register_pytree_node_serialization(
        Box,
        serialized_name="tests.Box",
        serialize_auxdata=str.encode,
        deserialize_auxdata=bytes.decode,
    )

    def g(args, *, more=None):
        box = args[0]["b"]
        return Pair(Box(box.held + 1, box.label), OrderedDict(b=args[1], a=[more, (), {}]))

    args = [{"b": Box(X, "label"), "a": Y}, Pair(1.0, None)]
    e = export.export(sw.jit(g))(args, more=X)
    for each in (e, again(e)):
        got = each.call(args, more=X)
        same(got, sw.jit(g)(args, more=X))
        assert got.left.label == "label" and got.right.keys() == {"b": 0, "a": 0}.keys()
    fails(
        ValueError,
        "call of the exported g: it takes arguments with the pytree structure "
        "(([{'a': *, 'b': CustomNode(Box[label], [*])}, CustomNode(namedtuple[Pair], [*, None])],)"
        ", {'more': *}); got ((*,), {}): args[0] is a list of 2 in the export and a leaf in the "
        "call; only the export has kwargs['more'].",
        e.call, X,
    )  # fmt: skip


def test_classes_that_check_their_leaves():
    sw.tree_util.register_pytree_node(Sized, lambda s: ((s.held,), None), lambda _, c: Sized(*c))
    assert exported(lambda s: s, Sized(X)).call(Sized(X)).count == 4


def test_compiled_functions_of_the_library():
    same(export.export(jnp.sin)(X).call(X), jnp.sin(X))


def test_shardings():
    split = NamedSharding(MESH, P("x"))
    x = sw.device_put(np.arange(16, dtype=np.float32).reshape(8, 2), split)

    def g(x):
        return sw.lax.with_sharding_constraint(x * 2 + x.sum(), NamedSharding(MESH, P("y")))

    e = again(exported(g, x), 2)
    assert e.nr_devices == 8
    assert e.in_shardings_jax() == (NamedSharding(MESH.abstract_mesh, P("x")),)
    assert e.in_shardings_jax(MESH) == (split,) and e.out_shardings_jax(MESH) == (None,)
    for mesh in (MESH, REVERSED):
        y = sw.device_put(x, NamedSharding(mesh, P("x")))
        same(e.call(y), g(x))
        assert e.call(y).sharding == NamedSharding(mesh, P("y"))
        same(sw.jit(lambda x: e.call(x + 0))(y), g(x))
        np.testing.assert_array_equal(
            sw.grad(lambda x: (e.call(x) ** 2).sum())(y), sw.grad(lambda x: (g(x) ** 2).sum())(x)
        )
    whole = sw.device_put(x, NamedSharding(MESH, P()))
    same(e.call(whole), g(x))  # transferred to the devices that it was exported for
    small = sw.device_put(x, NamedSharding(BACK, P("x")))
    fails(
        ValueError,
        "g was exported for 8 devices, but is called on 4. Place its arguments on a mesh of 8 "
        "devices: `in_shardings_jax(mesh)` returns their shardings.",
        e.call, small,
    )  # fmt: skip
    one = again(exported(lambda x: x * 2, np.ones((8, 2), np.float32)))
    same(one.call(x), x * 2)  # a function for one device is sharded like its arguments


def test_shardings_that_are_asked_for():
    mesh = mesh_of(2, 2, types=(AxisType.Explicit, AxisType.Auto))
    ins, outs = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P("x", "y"))
    e = again(export.export(sw.jit(lambda x: x * 2, in_shardings=ins))(np.ones((4, 4))))
    assert e.in_shardings_jax(mesh) == (ins,)
    assert [t.str_short(True) for t in e.in_avals] == ["f32[4,4@x]"]
    over = mesh.abstract_mesh
    assert e.in_shardings_jax(over) == (NamedSharding(over, ins.spec, memory_kind="device"),)
    e = again(export.export(sw.jit(jnp.sin, out_shardings=outs))(np.ones((4, 4))))
    assert e.out_shardings_jax(mesh) == (outs,)
    got = e.call(sw.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P())))
    assert got.sharding.is_equivalent_to(outs, 2)
    uneven = sw.device_put(np.ones((7, 2), np.float32), NamedSharding(MESH, P("x")))
    fails(
        ValueError,
        "shardwise.export.export: argument 0 of sin, of type f32[7,2], is sharded unevenly by "
        f"{NamedSharding(MESH.abstract_mesh, P('x'))}: exported programs support shards of equal "
        "size only. Choose mesh axes whose sizes divide it, or replicate it.",
        exported, jnp.sin, uneven,
    )  # fmt: skip


def test_maps_over_meshes():
    mesh = Mesh(MESH.devices.ravel(), ("i",))

    def g(x):
        return sw.shard_map(
            lambda x: sw.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()
        )(x)

    x = sw.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("i")))
    same(again(exported(g, x)).call(x), g(x))


def test_platforms():
    everywhere = "cpu", "cuda", "tpu"
    e = again(exported(jnp.sin, X, platforms=everywhere))
    assert e.platforms == everywhere and e.uses_global_constants
    same(e.call(X), jnp.sin(X))
    s = X.T @ X + np.eye(3, dtype=np.float32)
    e = again(exported(jnp.linalg.cholesky, s, platforms=("cuda", "cpu")), 1)
    assert '"stablehlo.case"(%arg0)' in e.mlir_module()
    same(e.call(s), jnp.linalg.cholesky(s))
    np.testing.assert_allclose(
        sw.grad(lambda s: e.call(s).sum())(s), sw.grad(lambda s: jnp.linalg.cholesky(s).sum())(s),
        rtol=1e-4,
    )  # fmt: skip
    inner = exported(jnp.cos, X, platforms=everywhere)
    outer = again(exported(lambda x: inner.call(x) + 1, X, platforms=("cuda", "cpu")))
    same(outer.call(X), jnp.cos(X) + 1)
    e = exported(jnp.sin, X, platforms=("tpu",))
    fails(
        ValueError,
        "sin was exported for 'tpu', but is called on 'cpu'. Export it with platforms=('tpu', "
        "'cpu').",
        e.call, X,
    )  # fmt: skip
    free = export.DisabledSafetyCheck.platform()
    e = again(exported(jnp.sin, X, platforms=("tpu",), disabled_checks=[free]))
    same(e.call(X), jnp.sin(X))
    assert export.default_export_platform() == "cpu"


def test_messages():
    e = exported(f, X, Y)
    fails(
        ValueError,
        "call of the exported f: args[0] must be of type f32[4,3]; got f32[3,2]. Convert it, or "
        "export the function for such arguments.",
        e.call, Y, Y,
    )  # fmt: skip
    fails(
        ValueError,
        "call of the exported f: args[1] must be of type f32[3,2]; got i32[3,2]. Convert it, or "
        "export the function for such arguments.",
        e.call, X, Y.astype(np.int32),
    )  # fmt: skip
    with pytest.raises(NotImplementedError) as caught:
        sw.vmap(e.call)(X[None], Y[None])
    assert str(caught.value) == (
        "vmap of the exported f is not supported: its module is fixed to the shapes that it was "
        "exported for. Export the mapped function: shardwise.export.export(jit(vmap(f)))."
    )
    once = again(e)
    assert not once.has_vjp()
    with pytest.raises(ValueError) as caught:
        sw.grad(lambda x: once.call(x, Y)["a"].sum())(X)
    assert str(caught.value) == (
        "f was exported without a vjp of this order. Pass a larger `vjp_order` to `serialize` "
        "where it is exported."
    )
    with pytest.raises(ValueError, match=r"^shardwise\.export\.export takes a function "):
        export.export(f)
    fails(
        ValueError,
        "shardwise.export.export: platforms must be among 'cpu', 'cuda', 'rocm' and 'tpu', without "
        "duplicates; got ('gpu',).",
        exported, jnp.sin, X, platforms=["gpu"],
    )  # fmt: skip

    def prints(x):
        sw.debug.print("{}", x)
        return x

    fails(
        NotImplementedError,
        "shardwise.export.export: prints calls host functions (a callback, or "
        "`shardwise.debug.print`), which exist in this process only. Export it without them.",
        exported, prints, X,
    )  # fmt: skip


def test_kernels_that_are_only_here():
    """The kernels for sharded matrices request programs from this process."""
    x = sw.device_put(np.eye(8, dtype=np.float32), NamedSharding(MESH, P("x")))
    least = sharded_linalg_min_size_bytes(0)
    with least, pytest.raises(ValueError, match=r"calls kernels that other releases may not have"):
        exported(jnp.linalg.cholesky, x)


def test_lowerings_of_jax_are_refused():
    message = (
        r"^shardwise\.export\.export: _override_lowering_rules must be None; got \[1\]\. Register "
        r"a lowering for your own primitive with `shardwise\.interpreters\.mlir\.register_lowering`"
    )
    with pytest.raises(NotImplementedError, match=message):
        export.export(sw.jit(lambda x: x), _override_lowering_rules=[1])

"""`jit`: where programs run, against jax; its options, unused arguments, and stages."""

import functools
import gc
import itertools

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base import context
from shardwise._src.base.errors import ConcretizationTypeError
from shardwise._src.runtime.compiler.shardy import parsed
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, assert_same, jax_sharding, ours, sharding, theirs
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
V = np.arange(4, dtype=np.float32)
ONE = SingleDeviceSharding(sw.devices()[0])


# ------------------------------------------------------------------------------ where it runs


def places(library, n):
    """Arguments on all kinds of devices and meshes, in either library."""
    kinds = sw.sharding if library is sw else jax.sharding
    devices = library.devices()

    def over(which, *spec):
        mesh = kinds.Mesh(np.array(devices[which]), ("x",))
        return kinds.NamedSharding(mesh, kinds.PartitionSpec(*spec))

    def put(where):
        return lambda: library.device_put(V, where)

    return {
        "host": lambda: V,
        "scalar": lambda: 2.0,
        "uncommitted": lambda: n.asarray(V),
        "device 0": put(devices[0]),
        "device 1": put(devices[1]),
        "mesh": put(over(slice(0, 4), "x")),
        "replicated": put(over(slice(0, 4))),
        "mesh of one": put(over(slice(0, 1))),
        "other mesh": put(over(slice(4, 8), "x")),
    }


MINE, THEIRS = places(sw, jnp), places(jax, jax.numpy)
FUNCTIONS = {
    "sum": lambda a, b: a + b,
    "both": lambda a, b: (a, b),
    "first": lambda a, b: a * 2,
    "argument": lambda a, b: b,
    "constant": lambda a, b: 1.0,
}


def placed(library, fun, args):
    """The result devices, what each holds, and whether results are committed; or the error."""
    try:
        out = library.jit(fun)(*args)
    except ValueError:
        return "ValueError"
    return [
        (x.committed, {d.id: i for d, i in x.sharding.devices_indices_map(x.shape).items()})
        for x in (out if isinstance(out, tuple) else (out,))
    ]


@pytest.mark.parametrize("name", everyday(FUNCTIONS, 1))
def test_where_programs_run_is_where_jax_runs_them(name):
    fun = FUNCTIONS[name]
    for one, two in itertools.product(MINE, MINE):
        got = placed(sw, fun, (MINE[one](), MINE[two]()))
        assert got == placed(jax, fun, (THEIRS[one](), THEIRS[two]())), (one, two)


def test_mismatches_name_both_arguments_and_the_way_out():
    def step(state, batch):
        return state["w"] + batch[1]

    batch = (V, sw.device_put(V, sw.devices()[5]))
    assert message(
        ValueError, sw.jit(step), {"w": ours(np.ones((8, 4), np.float32), "x")}, batch
    ) == (
        "step got arguments on different devices: state['w'] of type f32[8,4] is on devices [0, 1, "
        "2, 3, 4, 5, 6, 7], batch[1] of type f32[4] on device 5. Move one of them with "
        "`device_put(x, sharding)`."
    )
    moved = sw.device_put(batch[1], sharding())
    assert sw.jit(step)({"w": ours(X, "x")}, (V, moved)).sharding == sharding("x")


def test_results_over_a_mesh_of_one_device_stay_over_it():
    mesh = Mesh(np.array(sw.devices()[2:3]), ("x",))
    place = NamedSharding(mesh, P("x"))
    x = sw.device_put(V, place)
    double, total = sw.jit(lambda a: a * 2), sw.jit(lambda a, b: a + b)
    for y in (double(x), x * 2, x + 1, jnp.sin(x), total(x, V)):
        assert isinstance(y.sharding, NamedSharding) and y.sharding.mesh is mesh and y.committed
    other = jax.sharding.Mesh(np.array(jax.devices()[2:3]), ("x",))
    there = jax.sharding.NamedSharding(other, jax.sharding.PartitionSpec("x"))
    z = jax.jit(lambda a: a * 2)(jax.device_put(V, there))
    assert isinstance(z.sharding, jax.sharding.NamedSharding)
    assert sw.jit(lambda a: a, out_shardings=ONE)(V).sharding is ONE


def test_eager_operations_run_where_their_operands_are():
    x, w = ours(X, "x", "y"), ours(X.T, "y")
    other, weights = theirs(X, "x", "y"), theirs(X.T, "y")
    assert_same(x @ w, other @ weights)
    assert_same(jnp.sin(x).T + 1, jax.numpy.sin(other).T + 1)
    assert_same((x * 2).sum(1), (other * 2).sum(1))


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype("float16"),
        lambda x: jnp.asarray(x, "int32"),
        lambda x: x.real,
        lambda x: sw.lax.convert_element_type(x, "bfloat16"),
        lambda x: jnp.array(x, dtype=bool),
    ],
)
def test_conversions_move_nothing(convert):
    for x in (ours(X, "x", "y"), sw.device_put(X, sw.devices()[3])):
        y = convert(x)
        assert y.sharding is x.sharding and y.committed
        text = sw.jit(convert).lower(x).compile().as_text()
        assert not any(c in text for c in ("all-gather", "all-to-all", "collective-permute"))


def test_uneven_arrays_are_arguments_and_results_as_all_others():
    x = ours(np.arange(10.0, dtype=np.float32), "x")
    y = sw.jit(lambda a: a * 2 + 1, in_shardings=sharding("x"), out_shardings=sharding("x"))(x)
    assert y.shape == (10,) and y.sharding is sharding("x")
    np.testing.assert_array_equal(np.asarray(y), np.arange(10) * 2 + 1)


def test_host_values_are_global_and_replicated_without_in_shardings():
    f = sw.jit(lambda a, b: (a, b), in_shardings=(sharding("x"), None))
    a, b = f(X, X)
    assert a.sharding == sharding("x") and b.sharding == sharding() and a.shape == b.shape == (8, 4)


# ------------------------------------------------------------------------- in and out shardings


def test_prefixes_of_trees():
    tree = {"w": [X, X], "b": (X, {"c": X})}
    wanted = {"w": sharding("x"), "b": (None, sharding(None, "y"))}
    results = {"w": [None, sharding()], "b": None}
    f = sw.jit(lambda t: t, in_shardings=(wanted,), out_shardings=results)
    out = f(tree)
    got = [a.sharding for a in (*out["w"], out["b"][0], out["b"][1]["c"])]
    assert got == [sharding("x"), sharding(), sharding(), sharding(None, "y")]
    listed = sw.jit(lambda a, b: a, in_shardings=[sharding("x"), None])(X, X)
    assert listed.sharding == sharding("x")


BAD_SHARDINGS = {
    "tree": (
        {"in_shardings": ({"v": sharding()},)},
        ValueError,
        "jit of f: in_shardings must be a pytree prefix of the values that it describes, with "
        "one entry for each value or for a whole subtree: only in_shardings has t['v'] and only "
        "the value has t['w'].",
    ),
    "length": (
        {"out_shardings": [sharding(), None]},
        ValueError,
        "jit of f: out_shardings must be a pytree prefix of the values that it describes, with "
        "one entry for each value or for a whole subtree: only out_shardings has result[1].",
    ),
    "rank": (
        {"in_shardings": sharding(None, None, "x")},
        ValueError,
        "jit of f: in_shardings: t['w'] of type f32[8,4]: P(None, None, 'x') over Mesh('x': 4, "
        "'y': 2) has 3 entries, but the array has only 2 dimensions. Remove entries from the end "
        "of the spec.",
    ),
    "bare": (
        {"in_shardings": P("x")},
        ValueError,
        "jit of f: in_shardings: a bare P('x') needs a mesh in scope. Use NamedSharding(mesh, "
        "P('x')), or enter `with shardwise.set_mesh(mesh):`.",
    ),
    "string": (
        {"out_shardings": "x"},
        TypeError,
        "jit of f: out_shardings takes shardings, devices, PartitionSpecs or None; got 'x' of type "
        "str.",
    ),
    "open": (
        {"out_shardings": sharding("x", P.UNCONSTRAINED)},
        ValueError,
        "jit of f: out_shardings: P('x', UNCONSTRAINED) leaves a dimension unconstrained, "
        "which is supported by with_sharding_constraint only. Name its axes or None here, or pass "
        "no sharding and constrain the value inside of the function.",
    ),
    "devices": (
        {"in_shardings": ONE, "out_shardings": sharding("x")},
        ValueError,
        "f runs on one set of devices: t['w'] of type f32[8,4] is on device 0, but a result or "
        "intermediate value must be on devices [0, 1, 2, 3, 4, 5, 6, 7] "
        "(NamedSharding(mesh=Mesh('x': 4, 'y': 2), spec=P('x'))). Use `device_put` outside of it.",
    ),
}


@pytest.mark.parametrize("case", BAD_SHARDINGS)
def test_shardings_that_cannot_be(case):
    def f(t):
        return [t["w"] * 2]

    options, kind, message = BAD_SHARDINGS[case]
    with pytest.raises(kind) as caught:
        sw.jit(f, **options)({"w": X})
    assert str(caught.value) == message


def test_committed_arguments_must_be_where_in_shardings_say():
    f = sw.jit(lambda a: a * 2, in_shardings=sharding("x"))
    y = ours(X, "y")
    assert message(ValueError, f, y) == (
        f"jit of <lambda>: a of type f32[8,4] is on {y.sharding}, but in_shardings requires "
        f"{sharding('x')}. Use `device_put` to move it, or None in in_shardings to accept it "
        "unchanged."
    )
    assert f(sw.device_put(y, sharding("x"))).sharding == sharding("x")


def test_arguments_by_name_have_no_in_shardings():
    f = sw.jit(lambda a, b: a + b, in_shardings=sharding("x"))
    assert message(ValueError, f, X, b=X) == (
        "jit of <lambda>: in_shardings apply to positional arguments only; got 'b' by keyword. "
        "Pass it by position, or leave in_shardings out and place it with `device_put`."
    )
    with pytest.raises(ValueError):
        jax.jit(lambda a, b: a + b, in_shardings=jax_sharding("x"))(X, b=X)


def test_bare_specs_under_set_mesh():
    f = sw.jit(lambda a: a * 2, in_shardings=P("x"), out_shardings=P(None, "y"))
    with MESH:
        assert f(X).sharding == sharding(None, "y")
        assert f.lower(X).compile().input_shardings == ((sharding("x"),), {})


def test_an_abstract_mesh_is_that_of_the_arguments():
    abstract = AbstractMesh((4, 2), ("x", "y"), axis_types=MESH.axis_types)
    place = NamedSharding(abstract, P(None, "y"))
    for f in (
        sw.jit(lambda a: a * 2, out_shardings=place),
        sw.jit(lambda a: sw.with_sharding_constraint(a + 1, place)),
    ):
        assert f(ours(X, "x")).sharding == sharding(None, "y")


def test_static_arguments_are_not_counted_by_in_shardings():
    f = sw.jit(lambda k, a: a * k, static_argnums=0, in_shardings=(sharding("x"),))
    assert f(2, X).sharding == sharding("x")
    g = sw.jit(lambda a, *, k, c: a * k + c, static_argnames=("k",), donate_argnames=("c",))
    c = jnp.asarray(X)
    np.testing.assert_array_equal(np.asarray(g(X, k=3, c=c)), X * 3 + X)
    assert c.is_deleted()


# -------------------------------------------------------------------------- device and backend


def test_a_device_takes_what_is_elsewhere():
    there = sw.devices()[2]
    f = sw.jit(lambda a: a * 2, device=there)
    for x in (X, jnp.asarray(X), sw.device_put(X, sw.devices()[5]), ours(X, "x")):
        y = f(x)
        assert y.devices() == {there} and y.committed
        np.testing.assert_array_equal(np.asarray(y), X * 2)
    assert sw.jit(lambda: jnp.ones(3), device=there)().devices() == {there}
    assert sw.jit(lambda a: a * 2, backend="cpu")(X).devices() == {sw.devices()[0]}
    assert f.lower(X).compile()(X).devices() == {there}
    assert sw.jit(lambda a: f(a) + 1)(ours(X, "x")).sharding == sharding("x")


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"device": sw.devices()[0], "backend": "cpu"},
            f"jit of f: got device={sw.devices()[0]} and backend='cpu'; pass only one of them.",
        ),
        (
            {"device": sw.devices()[0], "in_shardings": ONE},
            "jit of f: got device together with in_shardings or out_shardings, which also determine where "
            "to run. Leave it out.",
        ),
        (
            {"backend": "cpu", "out_shardings": ONE},
            "jit of f: got backend together with in_shardings or out_shardings, which also determine "
            "where to run. Leave it out.",
        ),
    ],
)
def test_one_way_of_saying_where(options, message):
    def f(a):
        return a

    with pytest.raises(ValueError) as caught:
        sw.jit(f, **options)
    assert str(caught.value) == message


# ---------------------------------------------------------------------------- unused arguments


def test_unused_arguments_stay_where_they_are():
    elsewhere = sw.device_put(X, sw.devices()[3])
    f = sw.jit(lambda a, b, c: (c * 2, c))
    y, z = f(elsewhere, X, ours(X, "x"))
    assert y.sharding == z.sharding == sharding("x")
    text = f.lower(elsewhere, X, ours(X, "x")).as_text()
    assert "%arg0" in text and "%arg1" not in text
    theirs_text = jax.jit(lambda a, b, c: (c * 2, c)).lower(X, X, X).as_text()
    assert "%arg1" not in theirs_text
    compiled = f.lower(elsewhere, X, ours(X, "x")).compile()
    assert compiled.input_shardings == ((None, None, sharding("x")), {})
    np.testing.assert_array_equal(np.asarray(compiled(X, X, X)[0]), X * 2)
    with pytest.raises(TypeError):
        compiled(X[:1], X, X)  # the argument types must still match


def test_unused_arguments_may_be_gone_and_are_not_given_up():
    gone, kept = jnp.ones(4), jnp.ones(4)
    gone.delete()
    f = sw.jit(lambda a, b: b * 2, donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(f(gone, V)), V * 2)
    f(kept, V)
    assert not kept.is_deleted()


def test_all_arguments_may_be_unused_or_all_kept():
    f = sw.jit(lambda a, b: 1.0)
    assert float(f(ours(X, "x"), sw.device_put(X, sw.devices()[3]))) == 1.0
    kept = sw.jit(lambda a, b: b * 2, keep_unused=True)
    assert kept.lower(X, X).as_text().count("%arg0") == 1
    assert kept(ours(X, "x"), X).sharding == sharding()
    with pytest.raises(ValueError):
        kept(ours(X, "x"), sw.device_put(X, sw.devices()[3]))
    assert kept.lower(X, X).compile().input_shardings == ((ONE, ONE), {})


def test_arguments_that_only_effects_or_inner_programs_use_are_used():
    f = sw.jit(lambda a, b: sw.jit(lambda c, d: c)(a, b))
    np.testing.assert_array_equal(np.asarray(f(X, V)), X)
    g = sw.jit(lambda a, b: sw.lax.scan(lambda c, x: (c + b, x), a, V)[0])
    np.testing.assert_array_equal(np.asarray(g(1.0, 2.0)), 9.0)


# ------------------------------------------------------------------------------------- donation


@pytest.mark.parametrize("place", ["one", "mesh"])
def test_donation_is_told_by_the_analysis_of_memory(place):
    x = sw.device_put(X, sharding("x") if place == "mesh" else ONE)
    f = sw.jit(lambda a: a + 1, donate_argnums=0)
    lowered = f.lower(x)
    assert lowered.args_info[0][0].donated and lowered.donate_argnums == (0,)
    memory = lowered.compile().memory_analysis()
    assert (
        memory.alias_size_in_bytes
        == memory.output_size_in_bytes
        == X.nbytes // (4 if place == "mesh" else 1)
    )
    assert sw.jit(lambda a: a + 1).lower(x).compile().memory_analysis().alias_size_in_bytes == 0
    x = sw.device_put(x, may_alias=False)
    before = [s.data.unsafe_buffer_pointer() for s in x.addressable_shards]
    gc.collect()
    y = f(x)
    assert x.is_deleted() and not y.is_deleted()
    assert [s.data.unsafe_buffer_pointer() for s in y.addressable_shards] == before
    np.testing.assert_array_equal(y, X + 1)


# ------------------------------------------------------------------------- functions and methods


class Model:
    factor = 3.0

    @functools.partial(sw.jit, static_argnums=0)
    def scaled(self, x):
        """Doc."""
        return self.factor * x

    def __call__(self, x):
        return self.factor * x

    @staticmethod
    @sw.jit
    def doubled(x):
        return x * 2

    @classmethod
    def make(cls):
        return sw.jit(cls())


def test_what_can_be_jitted():
    def loss(x, scale):
        return (x * scale).sum()

    assert float(sw.jit(Model())(2.0)) == 6.0 and float(Model.make()(2.0)) == 6.0
    assert float(Model().scaled(2.0)) == 6.0 and float(Model.doubled(2.0)) == 4.0
    assert float(sw.jit(Model().__call__)(2.0)) == 6.0
    assert float(sw.jit(functools.partial(loss, scale=2.0))(V)) == 12.0
    assert float(sw.jit(functools.partial(loss, V))(2.0)) == 12.0
    half = functools.partial(loss, scale=2.0)
    assert float(sw.jit(half, static_argnames="scale")(V, scale=3)) == 18
    assert float(sw.jit(sw.jit(loss))(V, 2.0)) == 12.0
    assert float(sw.jit(sw.grad(sw.jit(loss), argnums=1))(V, 2.0)) == 6.0
    assert float(sw.jit(abs)(-2.0)) == 2.0 and sw.jit(jnp.sin).__name__ == "sin"
    assert sw.jit(loss).__wrapped__ is loss
    assert Model.scaled.__name__ == "scaled" and Model.scaled.__doc__ == "Doc."
    power = sw.jit(static_argnames="n")(lambda x, n: x**n)
    assert float(power(2.0, n=3)) == 8.0 and float(power(2.0, 3)) == 8.0
    with pytest.raises(TypeError) as caught:
        sw.jit(i for i in ())
    assert "jit takes a function; got <generator object" in str(caught.value)


def test_large_closures_are_no_text():
    big = np.arange(100_000, dtype=np.float32)
    held = jnp.asarray(big)
    for value in (big, held):
        f = sw.jit(lambda a, value=value: (a + jnp.asarray(value)).sum())
        assert len(f.lower(2.0).as_text()) < 2000
        np.testing.assert_allclose(float(f(2.0)), big.sum() + 2 * big.size, rtol=1e-5)
    inner = sw.jit(lambda a: a + held)
    assert len(sw.jit(lambda a: inner(a) + inner(a * 2)).lower(2.0).as_text()) < 3000


def test_disable_jit():
    seen = []
    f = sw.jit(lambda a: seen.append(type(a)) or (a * 2 if float(a) > 0 else a))
    g = sw.jit(lambda a: seen.append(type(a)) or a)
    with sw.disable_jit():
        assert float(f(2.0)) == 4.0
    with sw.disable_jit(), sw.disable_jit(False), pytest.raises(ConcretizationTypeError):
        f(2.0)
    del seen[:]
    g(jnp.asarray(X))
    with sw.disable_jit():
        g(jnp.asarray(X)), g(jnp.asarray(X))
    g(jnp.asarray(X))
    assert len(seen) == 3 and seen[0] is not seen[1] is seen[2]


def test_ensure_compile_time_eval():
    seen = []

    @sw.jit
    def f(a):
        with sw.ensure_compile_time_eval():
            best = int(jnp.argmax(jnp.array([1.0, 5.0, 2.0])))
            seen.append(best)
        return a[best]

    assert float(f(V)) == 1.0 and seen == [1]
    assert float(sw.grad(lambda a: f(a))(V)[1]) == 1.0


def test_traced_values_stay_traced_at_compile_time():
    def both(library, n):
        def f(a):
            with library.ensure_compile_time_eval():
                twice = library.jit(lambda b: b * 2)(n.arange(3))
                last, _ = library.lax.scan(lambda c, x: (c + x, c), 0, twice)
                steps = int(last) + int(n.zeros(3).at[1].set(4.0)[1])  # concrete
                a = n.where(a > 1, a, library.jit(n.sin)(a)).at[0].add(1.0)  # traced
                rows = library.vmap(lambda x: (x * a).sum())(n.ones(2))
            return (a * steps).sum() + rows.sum()

        out = f(n.asarray(V)), library.jit(f)(V), library.vmap(f)(X)
        return *out, library.jit(library.grad(f))(V), library.vmap(library.grad(f))(X)

    for mine, jaxs in zip(both(sw, jnp), both(jax, jax.numpy), strict=True):
        np.testing.assert_allclose(mine, jaxs, rtol=1e-5)


# --------------------------------------------------------------------------------------- stages


def test_texts_of_stages():
    def f(a):
        return jnp.sort(jnp.sin(a), axis=0).sum()

    lowered = sw.jit(f).lower(ours(X, "x"))
    text = lowered.as_text()
    assert lowered.as_text("stablehlo") == text and "loc(" not in text
    assert lowered.as_text("hlo").startswith("HloModule jit_f")
    assert "metadata=" not in lowered.as_text("hlo")
    assert 'op_name="f"' in lowered.as_text("hlo", debug_info=True)
    located = lowered.as_text(debug_info=True)
    assert f'loc("f"("{__file__}":' in located and "stablehlo.sort" in located
    parsed(located)  # it is StableHLO
    assert (
        message(ValueError, lowered.as_text, "mhlo")
        == "as_text: unknown dialect 'mhlo'; expected 'stablehlo' or 'hlo'."
    )
    assert str(lowered.compiler_ir().operation.name) == "builtin.module"
    assert lowered.compiler_ir("hlo").as_hlo_text() == lowered.as_text("hlo")
    assert "HloModule" in lowered.compile().as_text()


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
        "<lambda> is lowered for the devices of its arguments, of platform 'cpu'; "
        "lowering_platforms requests 'tpu'."
    )


def test_compiled_programs_are_not_transformed():
    compiled = sw.jit(lambda a, b: a + b["c"]).lower(V, {"c": V}).compile()
    for transform in (sw.jit, sw.vmap, lambda f: sw.grad(lambda v: f(v).sum())):
        assert message(TypeError, transform(lambda v: compiled(V, {"c": v})), V) == (
            "compiled <lambda>: b['c'] is a traced value, but a compiled program runs on arrays "
            "only and cannot be transformed. Call the jitted function instead."
        )


def test_looking_at_functions():
    t = sw.ShapeDtypeStruct((8, 4), np.float32, sharding=sharding("x"))
    assert t.update(shape=(4,), sharding=None) == sw.ShapeDtypeStruct((4,), np.float32)
    assert sw.eval_shape(lambda a, b: a @ b, t, b=X.T).shape == (8, 8)
    axes = []
    program = sw.make_jaxpr(
        lambda a: axes.append(context.current().axis("i").size) or a * 2, axis_env=[("i", 4)]
    )(t)
    assert axes == [4] and str(program).startswith("{ lambda ; a:f32[8,4]. let")
    _, shape = sw.make_jaxpr(lambda a, n: [a] * n, static_argnums=1, return_shape=True)(t, 2)
    assert [s.shape for s in shape] == [(8, 4)] * 2

"""No table of the library grows without bound, whatever types, meshes and flags are used."""

import gc
import sys
import weakref

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.arrays.signature import signature
from shardwise._src.base.caches import Interned, Table
from shardwise._src.core.op import OPS
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.compiler import modules
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

N = 1000
MAPPINGS = (
    dict,
    list,
    set,
    Interned,
    Table,
    weakref.WeakValueDictionary,
    weakref.WeakKeyDictionary,
    weakref.WeakSet,
)
# By dtypes, packages, platforms and degrees, which are few.
FINITE = {
    f"_src.{name}"
    for name in (
        "ops.special.uniform_asymptotics.coefficients",
        "types.dtypes._info",
        "types.dtypes._limits",
        "types.dtypes.has_infinity",
        "base.lazy._table",
        "runtime.cuda._plugin_path",
        "runtime.cuda._register_functions",
        "runtime.cuda.register_host_functions",
        "runtime.rocm._plugin_path",
        "runtime.tpu._library_path",
        "runtime.backend._default_client",
        "runtime.compiler.mosaic._context",
        "runtime.compiler.shardy._context",
        "runtime.compiler.triton_modules._context",
        "runtime.compiler.shardy.upstream_dialects",
        "saving.arrays.shared_context",
        "saving.arrays.store_context",
        "runtime.compiler.fingerprint._machine",
        "runtime.compiler.fingerprint._environment",
        "saving.chunk_files._threads",
        "saving.chunk_files.checksum",
        "runtime.compiler.lapack.register",
    )
}


def spaces():
    """The names of all modules of the library, and of the classes in them."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("shardwise."):
            short = name.removeprefix("shardwise.")
            yield short, vars(module)
            for k, v in list(vars(module).items()):
                if isinstance(v, type) and v.__module__ == name:
                    yield f"{short}.{k}", vars(v)


def sizes():
    found = {f"op {name}": len(op.inferred or ()) for name, op in OPS.items()}
    found["eager"] = len(EAGER.cache)
    for where, space in spaces():
        for k, v in list(space.items()):
            if isinstance(v, MAPPINGS) and not k.startswith("__"):
                found[f"{where}.{k}"] = len(v)
            elif hasattr(v, "cache_info"):
                found[f"{where}.{k}"] = v.cache_info().currsize
    return found


def grown(before, limit):
    rows = {k: (before.get(k, 0), n) for k, n in sizes().items()}
    return {k: (a, b) for k, (a, b) in rows.items() if b - a > limit and k in before}


@pytest.fixture
def small_tables(monkeypatch):
    """Tables with room for a tenth of the entries."""
    for _, space in spaces():
        for v in list(space.values()):
            if isinstance(v, Interned):
                monkeypatch.setattr(v, "_size", min(v._size, N // 10))
            elif isinstance(v, Table):
                monkeypatch.setattr(v, "limit", min(v.limit, N // 10))
    monkeypatch.setattr("shardwise._src.core.infer.INFERENCE_CACHE_SIZE", N // 10)
    monkeypatch.setattr("shardwise._src.types.promotion.CONTEXTS_REMEMBERED", N // 10)
    monkeypatch.setattr("shardwise._src.transforms.stage.LITERAL_CACHE_SIZE", N // 10)
    monkeypatch.setattr("shardwise._src.transforms.templates.SIZE", N // 10)
    forget()


def forget():
    sw.clear_caches()
    for _ in range(3):  # collected objects release others
        gc.collect()


MODE = sw.make_user_context(0)


def use(i, f):
    """Uses new types, specs, meshes, shardings, literals and contexts."""
    rows, columns = f"rows{i}", f"columns{i}"
    devices = np.array(sw.devices()[:4]).reshape(2, 2)
    for axis_type in (AxisType.Auto, AxisType.Explicit):
        mesh = Mesh(devices, (rows, columns), axis_type)
        place = NamedSharding(mesh, P(rows, None))
        t = sw.ShapeDtypeStruct((2, i), np.float32, sharding=place)
        with mesh, MODE(i):
            assert sw.eval_shape(f, t).shape == (2, i)
            jnp.result_type(np.int8, 1.5)
        assert signature(t.aval, place, True) is signature(t.aval, place, True)
    abstract = NamedSharding(AbstractMesh((2, i), (rows, columns)), P((rows, columns)))
    assert abstract.mesh is AbstractMesh((2, i), (rows, columns))
    sw.eval_shape(lambda a: a * (i + 0.5), np.float32(1))


def test_tables_stay_small(small_tables):
    f = sw.jit(lambda x: jnp.sin(x) * 2)
    for i in range(3):
        use(i + 2, f)
    f.clear_cache()
    forget()
    before = sizes()
    for i in range(N):
        use(i + 10, f)
        if i % 100 == 0:
            f.clear_cache()  # caches the types that it was traced for, up to its own bound
    f.clear_cache()
    modules.result_handler.cache_clear()  # caches types, up to its bound
    gc.collect()
    # Each round adds two or more entries to each table. Tables of N / 10 hold entries of others.
    assert {k for k in grown(before, N) if not is_bounded(k)} == set()
    forget()
    assert grown(before, 3) == {}


def is_bounded(name):
    """Whether a function's cache states its own maximum size."""
    for where, space in spaces():
        for k, v in space.items():
            if f"{where}.{k}" == name and hasattr(v, "cache_info"):
                return v.cache_info().maxsize is not None
    return False


def test_functions_that_remember_have_bounds():
    without = {
        f"{where}.{k}"
        for where, space in spaces()
        for k, v in list(space.items())
        if hasattr(v, "cache_info")
        and v.cache_info().maxsize is None
        and v.__module__ == f"shardwise.{where}"
    }
    assert without <= FINITE


def test_meshes_and_what_was_made_over_them_go():
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("once", "only"))
    place = NamedSharding(mesh, P("once"))
    x = sw.device_put(np.ones((8, 4231), np.float32), place)  # a type that no other test uses
    with mesh:
        y = sw.jit(lambda a: jnp.sin(a) + a.sum())(x) + 1
        sw.grad(lambda a: (a * a).sum())(x)
    assert y.sharding.mesh is mesh
    seen = [weakref.ref(v) for v in (mesh, place, place.spec, x._sig, x.aval)]
    del mesh, place, x, y
    forget()
    assert [s() for s in seen] == [None] * 5


def test_what_is_held_stays_the_same_when_caches_are_cleared():
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    spec, place = P("x", ("y",)), NamedSharding(mesh, P("x"))
    t = sw.ShapeDtypeStruct((24, 7), np.float32).aval
    held, abstract = signature(t, place, True), mesh.abstract_mesh
    forget()
    assert P("x", "y") is spec and P("x", ["y"]) is spec
    assert Mesh(mesh.devices, ("x", "y")) is mesh
    assert NamedSharding(mesh, P("x")) is place
    assert AbstractMesh((4, 2), ("x", "y"), AxisType.Auto) is abstract
    assert sw.ShapeDtypeStruct((24, 7), "float32").aval is t
    assert signature(t, place, True) is held


def test_thousands_of_functions_made_anew():
    """Equal code over equal values is compiled once, and no part of a function outlives it."""
    x = jnp.ones(3)

    def once(k):
        def scaled(a):
            return a * k

        jitted = sw.jit(scaled)
        value = jitted(x)
        return value, weakref.ref(scaled), weakref.ref(jitted)

    for _ in range(5):
        once(2.0)
    gc.collect()
    before = sizes()
    for step in range(3_000):
        value, *seen = once(2.0)
        if step % 1000 == 0:
            np.testing.assert_array_equal(value, [2, 2, 2])
            assert [s() for s in seen] == [None, None]  # immediately, without the garbage collector
    assert grown(before, 3) == {}

"""Mutable references: against JAX, and rejected uses."""

from __future__ import annotations

import copy
import operator
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.state.discharge import run_state as jax_run_state

import shardwise as sw
import shardwise.numpy as np_
from shardwise import lax
from shardwise.errors import DtypeError
from shardwise.experimental.state import run_state
from tests.helpers.errors import message as refused
from tests.helpers.refs import X, both, here

# -- outside of transforms --


def test_reading_and_writing():
    def make(lib, xp):
        def f(x):
            r = lib.new_ref(x)
            before = r[...]
            r[0, 1] = 7.0
            r[1] += xp.ones(3)
            r[:, 2] = xp.zeros(2)
            old = lib.ref.swap(r, (0, slice(0, 2)), xp.full(2, 5.0))
            lib.ref.addupdate(r, np.array([0, 0]), xp.ones((2, 3)))
            lib.ref.set(r, (1, 0), 3.0)
            return before, old, r[0], lib.ref.get(r, (slice(None), 1)), lib.freeze(r)

        return f

    both(make, X)


def test_methods_and_attributes():
    r = sw.new_ref(X)
    assert (r.shape, r.dtype, r.ndim, r.size, len(r)) == ((2, 3), np.float32, 2, 6, 2)
    assert r.sharding == np_.asarray(X).sharding
    assert repr(r) == repr(np_.asarray(X)).replace("Array", "Ref")
    assert [x.tolist() for x in r] == X.tolist()
    assert r.swap(0.0).tolist() == X.tolist()
    r.set(2, 1)
    r.addupdate(1.0, (slice(None), 0))
    assert r.get().tolist() == [[1, 0, 0], [3, 2, 2]]
    part = r.at[1]
    part[1:] = 8
    part.addupdate(1.0, 0)
    assert part.swap(9.0, 0) == 4.0
    assert (part.get().tolist(), part[2]) == ([9, 8, 8], 8.0)
    assert r[1].tolist() == [9, 8, 8]


def test_values_keep_type():
    r = sw.new_ref(1)
    assert r.dtype == np.int32
    assert not sw.typeof(r[...]).weak_type
    message = "Ref{i32[]} cannot hold ~f32[]: its dtype cannot change. Cast the value with "
    assert refused(DtypeError, r.set, 1.5) == message + "`.astype(ref.dtype)`."
    assert refused(ValueError, r.set, X.astype(np.int32)) == (
        "Ref{i32[]} cannot hold i32[2,3]: it cannot be broadcast to the ref's shape."
    )
    with pytest.raises(ValueError, match="cannot be broadcast"):
        sw.new_ref(X).set(X, 0)


@pytest.mark.parametrize("scalar", [float, np.float32, np.asarray])
def test_equal_scalars_are_not_shared(scalar):
    """Users receive the arrays that refs hold, and may delete or donate them."""
    refs = [sw.new_ref(scalar(1.25)), sw.new_ref(scalar(1.25)), sw.new_ref(scalar(0.0))]
    refs[2][...] = scalar(1.25)
    places = {r[...].unsafe_buffer_pointer() for r in refs}
    assert len(places) == 3
    refs[0][...].delete()
    assert [r[...].item() for r in refs[1:]] == [1.25, 1.25]
    assert sw.new_ref(scalar(1.25))[...] == 1.25 and np_.asarray(scalar(1.25)) == 1.25
    sw.jit(lambda x: x * 2, donate_argnums=0)(refs[1][...])
    assert refs[2][...] + 1.25 == 2.5


def test_array_is_not_written():
    x = np_.asarray(X)
    r = sw.new_ref(x)
    seen = r[...]
    r[...] = 0.0
    assert x.tolist() == seen.tolist() == X.tolist()


def test_freeze_ends():
    r = sw.new_ref(X)
    sw.freeze(r)
    message = "Ref{f32[2,3]} was frozen at test_refs.py, and can no longer be used."
    for f in (r.get, lambda: r.set(0), lambda: sw.freeze(r), lambda: sw.jit(lambda r: 0)(r)):
        assert here(refused(ValueError, f)) == message


def test_is_no_array():
    r = sw.new_ref(X)
    message = "Ref{f32[2,3]} is a ref, not an array: read its value with `ref[...]`."
    assert refused(TypeError, np.asarray, r) == message
    assert refused(TypeError, np_.asarray, r) == f"asarray: {message}"
    assert refused(TypeError, bool, r) == message
    refused(TypeError, np_.sin, r)
    refused(TypeError, operator.add, r, 1)
    assert refused(TypeError, sw.ref.get, X[0]).startswith("get: expected a Ref; got array(")
    assert refused(TypeError, sw.new_ref, r).startswith("new_ref: got Ref{f32[2,3]}, which is")
    assert refused(TypeError, len, sw.new_ref(1.0)) == (
        "len() of Ref{f32[]}, which has no dimensions."
    )


# -- jit --


def test_argument_of_jit():
    def make(lib, xp):
        @lib.jit
        def f(r, x, *, other):
            r[0] += x
            other["a"][...] = r[...] * 2
            return r[...].sum()

        def run(x):
            r, s = lib.new_ref(x), lib.new_ref(x)
            outs = [f(r, 1.0, other={"a": s}), f(r, 2.0, other={"a": s})]
            return outs, lib.freeze(r), lib.freeze(s)

        return run

    both(make, X)


def test_closed_over_by_jit():
    traces = []

    def make(lib, xp):
        def run(x):
            r, only_read = lib.new_ref(x), lib.new_ref(x)

            @lib.jit
            def f(x):
                traces.append(lib)
                r[...] = r[...] * x + only_read[...]
                return r[0] - x

            outs = [f(2.0), f(3.0)]
            r[1] = xp.zeros(3)
            only_read[...] = -x
            outs.append(f(4.0))
            return outs, r[...], only_read[...]

        return run

    both(make, X)
    assert traces.count(sw) == 1  # the refs are discovered while the program is traced


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": (1,)},
        {"static_argnames": ("y",)},
        {"donate_argnums": (1,)},
        {"donate_argnames": ("y",)},
    ],
    ids=str,
)
def test_positions_of_arguments_that_are_left_out(options):
    r = sw.new_ref(np_.float32(1))
    held = r[...]

    def f(x, y=2):
        r[...] += x * y
        return r[...]

    run = sw.jit(f, **options)
    assert float(run(3.0)) == 7 and float(held) == 1
    assert float(run(x=3.0, y=1 if "static" in str(options) else np.float32(1))) == 10


def test_nested_jit_and_both_ways_in():
    def make(lib, xp):
        def run(x):
            outer, passed = lib.new_ref(x), lib.new_ref(x)

            @lib.jit
            def inner(r):
                r[...] += outer[...]
                outer[0] = r[1]

            @lib.jit
            def f(r):
                inner(r)
                local = lib.new_ref(r[...])
                inner(local)
                return lib.freeze(local)

            return f(passed), f(passed), outer[...], passed[...]

        return run

    both(make, X)


def test_options_of_jit():
    mesh = sw.make_mesh((8,), ("x",))
    there = sw.NamedSharding(mesh, sw.P("x"))
    r = sw.new_ref(np_.zeros(8))
    s = sw.new_ref(np.float32(1))

    def f(k, r, x):
        r[...] += x * k * s[...]
        s[...] += 1
        return r[...]

    g = sw.jit(f, static_argnums=0, in_shardings=(there, there), out_shardings=there)
    out = g(2, r, np.ones(8, np.float32))
    assert out.sharding == there
    assert g(3, r, np_.ones(8)).tolist() == [8.0] * 8
    assert (r[...].tolist(), s[...]) == ([8.0] * 8, 3.0)


def test_aliases_are_refused():
    r = sw.new_ref(X)
    f = sw.jit(lambda a, b: None)
    assert refused(ValueError, f, r, [r]) == (
        "jit of <lambda>: Ref{f32[2,3]} is passed more than once, as a and b[0]. A write to "
        "one would have to be visible in the other: pass it once."
    )
    message = (
        "Ref{f32[2,3]}, made at test_refs.py, is an argument of %s of <lambda>, and that function "
        "also uses it from outside. A function that gets a ref must not access it in another way: "
        "use the argument."
    )
    text = refused(ValueError, sw.jit(lambda a: r[...]), r)
    assert here(text) == message % "jit"
    text = refused(ValueError, sw.vmap(lambda a: r[...]), r)
    assert here(text) == message % "vmap"
    assert r[...].tolist() == X.tolist()  # and it can be used again


def test_results_are_refused():
    r = sw.new_ref(X)
    message = (
        " returned Ref{f32[2,3]}, made at %s. A ref cannot leave a staged function: "
        "return its value, `ref[...]` or `freeze(ref)`."
    )
    text = refused(ValueError, sw.jit(lambda a: [a]), r)
    assert here(text) == "jit of <lambda>" + message % "errors.py"
    text = refused(ValueError, sw.jit(lambda x: sw.new_ref(x)), X)
    assert here(text) == "jit of <lambda>: the function" + message % "test_refs.py"
    refused(TypeError, lax.scan, lambda c, x: (c, None), r, None, 2)


def test_escapes_are_refused():
    kept = []
    sw.jit(lambda x: kept.append(sw.new_ref(x)))(X)
    text = refused(ValueError, kept[0].get)
    assert here(text) == (
        "Ref{f32[2,3]}, made at test_refs.py, is used where it cannot be reached: it belongs to "
        "jit of <lambda>, called at test_refs.py. Return `freeze(ref)` instead of storing the ref "
        "outside."
    )
    r = sw.new_ref(X)
    assert "belongs to a function outside" in refused(ValueError, sw.jit(lambda: sw.freeze(r)))


def test_failed_calls_change_nothing():
    r = sw.new_ref(X)

    @sw.jit
    def f(s):
        s[...] = 0.0
        r2[...] = 0.0
        raise KeyError("no")

    r2 = sw.new_ref(X)
    refused(KeyError, f, r)
    assert r[...].tolist() == r2[...].tolist() == X.tolist()


def test_not_passed_through():
    r = sw.new_ref(X)

    @sw.custom_jvp
    def f(x):
        return x * r[...]

    f.defjvp(lambda p, t: (f(*p), t[0]))
    text = refused(NotImplementedError, sw.jit(f), 1.0)
    assert here(text) == (
        "Ref{f32[2,3]} from outside is used in a function that is staged by custom_jvp of f, "
        "called at errors.py, which does not support refs. Read the ref beforehand and pass "
        "the value; `jit`, `checkpoint`, `checkify`, `scan`, `map`, `associative_scan`, `cond`, "
        "`switch`, `while_loop`, `fori_loop`, `shard_map` and `pmap` support refs."
    )


@pytest.mark.parametrize("index", [7, -4, (0, 3), (slice(None), 3), (..., -4), (None, 0, 9)])
@pytest.mark.parametrize("jitted", [False, True])
def test_known_integers_out_of_bounds_are_refused(index, jitted):
    def uses(r):
        yield lambda: r[index]
        yield lambda: r.set(0.0, index)
        yield lambda: r.addupdate(1.0, index)
        yield lambda: r.swap(1.0, index)

    def f(r):
        for use in uses(r):
            text = refused(IndexError, use)
            assert re.fullmatch(
                r"Ref\{f32\[2,3\]\} has no element \[[-0-9:, ]+\]: an integer of the index is out "
                r"of bounds\.",
                text,
            )

    r = sw.new_ref(X)
    (sw.jit(f) if jitted else f)(r)
    np.testing.assert_array_equal(r[...], X)
    assert refused(IndexError, lambda: r[1, 7]) == (
        "Ref{f32[2,3]} has no element [1, 7]: an integer of the index is out of bounds."
    )


def test_copies():
    r = sw.new_ref(X)
    for other in (copy.deepcopy(r), pickle.loads(pickle.dumps(r))):
        other[0] = 9.0
        assert other[0].tolist() == [9.0] * 3
    assert copy.copy(r) is r
    np.testing.assert_array_equal(r[...], X)


def test_free_and_empty():
    r = sw.ref.empty_ref(sw.ShapeDtypeStruct((2, 3), np.float32))
    r[...] = X
    np.testing.assert_array_equal(r[...], X)
    sw.ref.free_ref(r)
    assert here(refused(ValueError, r.get)) == (
        "Ref{f32[2,3]} was freed at test_refs.py, and can no longer be used."
    )


@pytest.mark.parametrize("jitted", [False, True])
def test_host_functions_get_values(jitted, capsys):
    seen = []

    def f(r):
        sw.debug.print("{} {}", r, [r])
        sw.debug.callback(lambda x: seen.append(x.tolist()), r)
        return sw.pure_callback(lambda x: -x, sw.ShapeDtypeStruct((2, 3), np.float32), r)

    r = sw.new_ref(X)
    np.testing.assert_array_equal((sw.jit(f) if jitted else f)(r), -X)
    sw.effects_barrier()
    assert seen == [X.tolist()] and capsys.readouterr().out.startswith("[[1. 2. 3.]")


# -- custom_vjp --


@pytest.mark.parametrize("jitted", [False, True])
def test_refs_that_watch_cotangents(jitted):
    def make(lib, xp):
        @lib.custom_vjp
        def watch(kept, x):
            return x["a"] * x["b"]

        def fwd(kept, x):
            return x["a"] * x["b"], (kept["ref"], x)

        def bwd(residuals, ct):
            ref, x = residuals
            ref[...] += ct
            return None, {"a": ct * x["b"], "b": ct * x["a"] * 2.0}

        watch.defvjp(fwd, bwd)

        def run(ref, x):
            def f(x):
                return xp.sum(xp.sin(watch({"ref": ref}, {"a": x, "b": x + 1.0})))

            return lib.grad(f)(x), f(x)

        def call(x):
            ref = lib.new_ref(xp.ones(3))
            g = lib.jit(run) if jitted else run
            return g(ref, x), g(ref, x), ref[...]

        return call

    both(make, X[0])


# -- run_state --


def test_run_state():
    def write(refs):
        a, b = refs
        a[...] = a[...] * b[0]
        b[1] += a[0]

    got = run_state(write)((X[0], X[1]))
    wanted = jax_run_state(write)((jnp.asarray(X[0]), jnp.asarray(X[1])))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b)

    def loss(x):
        a, b = run_state(write)((x, X[1]))
        return (a * b).sum()

    def jax_loss(x):
        a, b = x * X[1, 0], jnp.asarray(X[1])
        return (a * b.at[1].add(a[0])).sum()

    np.testing.assert_allclose(sw.grad(loss)(X[0]), jax.grad(jax_loss)(X[0]), rtol=1e-6)
    assert refused(TypeError, run_state(lambda r: 1), X) == (
        "run_state: the function must return None, as its results are in the refs; it returned 1."
    )


# -- shardings --


def test_explicit_shardings():
    mesh = sw.make_mesh((8,), ("x",), axis_types=(sw.sharding.AxisType.Explicit,))
    x = sw.device_put(np.arange(16, dtype=np.float32), sw.NamedSharding(mesh, sw.P("x")))
    r = sw.new_ref(x)

    def body(c, _):
        r[...] = np_.sin(r[...]) + c
        return c, None

    with sw.set_mesh(mesh):
        sw.jit(lambda: lax.scan(body, 0.5, None, 3))()
    r[...] = np_.zeros(16) + r[...]
    r[0] = 0.0
    r.addupdate(0.0)
    r.addupdate(np.zeros(16, np.float32))
    assert r[...].sharding == x.sharding
    assert sw.typeof(r[...]) == sw.typeof(x)
    wanted = np.arange(16, dtype=np.float32)
    for _ in range(3):
        wanted = np.sin(wanted) + np.float32(0.5)
    wanted[0] = 0
    np.testing.assert_allclose(r[...], wanted, rtol=1e-6)
    for value in (1.0, np.ones(16, np.float32), np_.ones(16)):
        r[...] = value
        assert (r[...].sharding, r[3]) == (x.sharding, 1)


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_uneven_arrays(kind):
    mesh = sw.make_mesh((8,), ("x",), axis_types=(getattr(sw.sharding.AxisType, kind),))
    there = sw.NamedSharding(mesh, sw.P("x"))
    r = sw.new_ref(sw.device_put(np.arange(13, dtype=np.float32), there))
    wanted = np.arange(13, dtype=np.float32)

    @sw.jit
    def f(s, i):
        s[i] += 10.0
        s[...] *= 2.0
        return s[...].sum()

    for i in (0, 12):
        total = f(r, i)
        wanted[i] += 10
        wanted *= 2
        assert total == wanted.sum()
    r[5:] = 1.0
    wanted[5:] = 1
    np.testing.assert_array_equal(r[...], wanted)
    r[...] = 2.0
    assert (r[...].sharding, r[...].tolist()) == (there, [2.0] * 13)

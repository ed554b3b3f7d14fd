"""Refs, host callbacks and random numbers inside `shard_map` and `pmap`."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import io_callback
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH

X = np.arange(16, dtype=np.float32).reshape(8, 2)
PARTS = P("x", "y")
BLOCKS = [X[2 * i : 2 * i + 2, j : j + 1] for i in range(4) for j in range(2)]


@pytest.fixture(params=["eager", "jit"])
def wrap(request):
    return sw.jit if request.param == "jit" else lambda f: f


@pytest.fixture(params=[True, False], ids=["checked", "unchecked"])
def over(request, wrap):
    def mapped(f, ins=PARTS, outs=PARTS, **how):
        return wrap(
            sw.shard_map(f, mesh=MESH, in_specs=ins, out_specs=outs, check_vma=request.param, **how)
        )

    mapped.checked = request.param
    return mapped


# -- refs --


def test_a_ref_of_each_device(over):
    def f(x):
        r = sw.new_ref(jnp.zeros_like(x))
        r[...] = 2 * x
        r[0] += 1.0
        return r[...]

    wanted = 2 * X
    wanted[::2] += 1
    close(over(f)(X), wanted, 0)


def test_a_ref_of_each_device_in_loops(over):
    def f(x):
        total = sw.new_ref(jnp.zeros(()))
        lax.fori_loop(0, 3, lambda i, _: total.addupdate(x.sum() * i), None)
        lax.scan(lambda c, row: (c, total.addupdate(row.sum())), 0, x)
        lax.while_loop(lambda i: i < 2, lambda i: (total.addupdate(1), i + 1)[1], 0)
        lax.cond(x[0, 0] > 7, lambda: total.set(-1.0), lambda: None)
        return total[...][None, None]

    wanted = [-1 if b[0, 0] > 7 else 4 * b.sum() + 2 for b in BLOCKS]
    wanted = np.array(wanted, np.float32).reshape(4, 2)
    close(over(f)(X), wanted, 1e-6)


def test_derivatives_by_way_of_refs(over):
    def f(x):
        r = sw.new_ref(jnp.sin(x))
        r[...] *= x
        return r[...]

    close(sw.grad(lambda x: jnp.sum(over(f)(x)))(X), np.sin(X) + X * np.cos(X), 1e-5)


def test_a_ref_as_an_argument_is_divided(over):
    r = sw.new_ref(jnp.ones((8, 2)))

    def f(r, x):
        lax.fori_loop(0, 3, lambda i, _: r.addupdate(x), None)
        return x + r[0]

    run = over(f, (PARTS, PARTS))
    for turn in (1, 2):
        y = run(r, X)
        close(r[...], 1 + 3 * turn * X, 1e-6)
        close(y, X + 1 + 3 * turn * np.repeat(X[::2], 2, axis=0), 1e-6)


def test_a_ref_that_is_whole_along_an_axis(over):
    r = sw.new_ref(jnp.zeros((2, 2)))
    over(lambda r, x: r.set(lax.psum(x, "x")), (P(None, "y"), PARTS), P())(r, X)
    close(r[...], X.reshape(4, 2, 2).sum(0), 1e-6)


def test_a_ref_from_outside_is_the_same_on_all_devices(over):
    r, other = sw.new_ref(jnp.ones((2, 1))), sw.new_ref(np.float32(3))

    def f(x):
        r[...] += lax.psum(x, ("x", "y"))
        return x * other[...]

    run = over(f)
    for turn in (1, 2):
        close(run(X), 3 * X, 0)
        close(r[...], 1 + turn * X.reshape(4, 2, 2).sum((0, 2))[:, None], 1e-6)


def test_a_function_with_refs_is_traced_once():
    traces, r, other = [], sw.new_ref(jnp.ones((2, 1))), sw.new_ref(np.float32(3))

    def f(own, x):
        traces.append(1)
        r[...] += lax.psum(x, ("x", "y"))
        own[...] = x * other[...]
        return x

    passed = sw.new_ref(jnp.zeros_like(X))
    f_of_shards = sw.shard_map(f, mesh=MESH, in_specs=PARTS, out_specs=PARTS)
    close(f_of_shards(passed, X), X, 0)
    close(passed[...], 3 * X, 0)
    assert traces == [1]
    sw.jit(f_of_shards)(passed, X)
    assert traces == [1, 1]


def test_a_ref_of_an_explicit_mesh_in_a_loop():
    mesh = sw.make_mesh((8,), ("i",))
    r = sw.new_ref(sw.device_put(jnp.float32(1), sw.NamedSharding(mesh, P())))
    x = sw.device_put(np.ones(8, np.float32), sw.NamedSharding(mesh, P("i")))

    def f(x):
        return lax.fori_loop(0, 2, lambda i, c: c + r[...], x)

    with sw.set_mesh(mesh):
        close(sw.shard_map(f, out_specs=P("i"))(x), np.full(8, 3, np.float32), 0)


def written(r):
    return lambda x: (r.set(x), x)[1]


def written_in_a_loop(r):
    return lambda x: (lax.fori_loop(0, 3, lambda i, _: r.set(x), None), x)[1]


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (written,
         "shard_map of <lambda>: the value written to Ref{f32[2,1]} from outside, of type "
         "f32[2,1]{V:x,y}, may vary along 'x', 'y', but the ref has one value along these axes. "
         "Pass the ref as an argument with a spec that names them, or write a value that is the "
         "same on all devices, such as `shardwise.lax.psum(x, 'x')`."),
        (written_in_a_loop,
         "fori_loop: the value written to Ref{f32[2,1]} in the loop, of type f32[2,1]{V:x,y}, may "
         "vary along 'x', 'y', but the ref has one value along these axes. Create it inside "
         "`shard_map`, pass it in with a spec that names them, or write a value that is the same "
         "on all devices."),
    ],
)  # fmt: skip
def test_what_varies_cannot_be_one_value(f, expected, over):
    r = sw.new_ref(jnp.zeros((2, 1)))
    if over.checked:
        assert message(ValueError, over(f(r)), X) == expected
    else:  # the caller's responsibility: the value of the first device
        close(over(f(r))(X), X, 0)
        close(r[...], BLOCKS[0], 0)


def test_refs_that_are_refused(over, wrap):
    r = sw.new_ref(jnp.zeros((8, 2)))
    of = "shard_map of <lambda>" if wrap is not sw.jit else "jit of <lambda>"
    twice = over(lambda r, s: r.set(s[...]), (PARTS, PARTS))
    assert message(ValueError, twice, r, r) == (
        f"{of}: Ref{{f32[8,2]}} is passed more than once, as r and s. A write to one would "
        "have to be visible in the other: pass it once."
    )
    t = "f32[2,1]{V:x,y}" if over.checked else "f32[2,1]"
    assert message(TypeError, over(lambda r: r), r) == (
        f"shard_map of <lambda>: the result: Ref{{{t}}} is a ref, not an array: read its value "
        "with `ref[...]`."
    )


def test_refs_and_pmap(wrap):
    r, total, w = (sw.new_ref(jnp.zeros(s)) for s in ((8, 2), (2,), (2, 8)))

    def f(r, w, x):
        r[...] = 2 * x
        r[0] = -1.0
        w[...] += x
        total[...] += lax.psum(x, "i")
        return x + r[...]

    run = wrap(sw.pmap(f, axis_name="i", in_axes=(0, 1, 0)))
    for turn in (1, 2):
        y = run(r, w, X)
        close(r[...], np.stack([-np.ones_like(X[:, 0]), 2 * X[:, 1]], 1), 0)
        close(y, X + r[...], 0)
        close(w[...], turn * X.T, 0)
        close(total[...], turn * X.sum(0), 1e-6)


def test_refs_of_a_map_in_a_map():
    r = sw.new_ref(jnp.zeros((8, 2)))

    def f(r, x):
        return sw.pmap(lambda r, x: (r.set(lax.psum(x, ("i", "j"))), x)[1], axis_name="j")(r, x)

    close(sw.pmap(f, axis_name="i")(r, X), X, 0)
    close(r[...], np.full((8, 2), X.sum(), np.float32), 0)


# -- host callbacks --


def test_prints_of_each_device(over, capsys):
    def f(x):
        sw.debug.print("{} at {}", x.sum(), lax.axis_index("x"))
        return x

    close(over(f)(X), X, 0)
    sw.effects_barrier()
    wanted = [f"{b.sum()} at {i // 2}" for i, b in enumerate(BLOCKS)]
    assert sorted(capsys.readouterr().out.split("\n")) == sorted([*wanted, ""])


def test_callbacks_of_each_device(over):
    seen = []

    def sine(v):
        seen.append(float(v.sum()))
        return np.sin(v)

    def f(x):
        t = sw.ShapeDtypeStruct(x.shape, x.dtype)
        return sw.pure_callback(np.cos, t, x) + io_callback(sine, t, x)

    close(over(f)(X), np.sin(X) + np.cos(X), 1e-6)
    sw.effects_barrier()
    assert sorted(seen) == sorted(float(b.sum()) for b in BLOCKS)


def test_callbacks_in_loops_and_branches(over):
    seen = []

    def f(x):
        def step(i, c):
            sw.debug.callback(lambda i, s: seen.append((int(i), float(s))), i, c.sum())
            return c + 1

        y = lax.fori_loop(0, 2, step, x)
        return lax.cond(x[0, 0] > 7, lambda y: sw.pure_callback(np.negative, y, y), lambda y: y, y)

    wanted = X + 2
    for i, b in enumerate(BLOCKS):
        if b[0, 0] > 7:
            wanted[2 * (i // 2) : 2 * (i // 2) + 2, i % 2 : i % 2 + 1] *= -1
    close(over(f)(X), wanted, 0)
    sw.effects_barrier()
    assert sorted(seen) == sorted((i, float((b + i).sum())) for b in BLOCKS for i in range(2))


def test_callbacks_where_some_axes_are_manual():
    f = sw.shard_map(
        lambda x: sw.pure_callback(np.sin, sw.ShapeDtypeStruct(x.shape, x.dtype), x),
        mesh=MESH,
        in_specs=P("x"),
        out_specs=P("x"),
        axis_names={"x"},
    )
    close(sw.jit(f)(X), np.sin(X), 1e-6)


def test_callbacks_of_pmap(capsys):
    seen = []

    def f(x):
        sw.debug.print("row {}", lax.axis_index("i"))
        return io_callback(lambda v: (seen.append(float(v[0])), v)[1], x, x)

    close(sw.pmap(f, axis_name="i")(X), X, 0)
    sw.effects_barrier()
    assert sorted(seen) == X[:, 0].tolist()
    assert sorted(capsys.readouterr().out.split()) == sorted([*"01234567", *["row"] * 8])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (sw.debug.print("{}", x, ordered=True), x)[1],
        lambda x: io_callback(np.sin, x, x, ordered=True),
    ],
)
def test_ordered_calls_are_refused(f, over):
    assert message(NotImplementedError, over(f), X) == (
        "[shard_map] does not support ordered effects: there is no order in which devices could "
        "call the host. Pass ordered=False, or call the host outside of it, with the results."
    )


def test_inspecting_is_refused():
    def f(x):
        sw.debug.inspect_array_sharding(x, callback=print)
        return x

    run = sw.jit(sw.shard_map(f, mesh=MESH, in_specs=PARTS, out_specs=PARTS))
    assert message(NotImplementedError, run, X) == (
        "f: inspect_array_sharding is not supported inside a loop, a branch, a shard_map or a "
        "function with a custom derivative. Return the value from it, and inspect it outside."
    )


# -- random numbers --

KEY = sw.random.key(7)
KEYS = sw.random.split(KEY, 8).reshape(4, 2)
DRAWS = {
    "bits": lambda random, k: random.bits(k, (3,)),
    "uniform": lambda random, k: random.uniform(k, (3,)),
    "normal": lambda random, k: random.normal(k, (3,)),
    "randint": lambda random, k: random.randint(k, (3,), 0, 100),
    "permutation": lambda random, k: random.permutation(k, 5),
    "split": lambda random, k: random.key_data(random.split(k)),
    "gamma": lambda random, k: random.gamma(k, 2.0, (3,)),
    "fold_in": lambda random, k: random.key_data(random.fold_in(k, 3)),
}


@pytest.mark.parametrize("name", everyday(DRAWS, 2))
def test_draws_of_a_key_for_each_device(name, over):
    draw = DRAWS[name]
    run = over(lambda k: draw(sw.random, k[0, 0])[None, None], outs=P("x", "y"))
    theirs = jax.random.split(jax.random.key(7), 8)
    wanted = np.stack([np.asarray(draw(jax.random, k)) for k in theirs])
    close(np.asarray(run(KEYS)).reshape(wanted.shape), wanted, 1e-6)


def test_a_key_for_all_devices(over):
    """The same numbers on all devices, as their types say; different if the index is folded in."""
    same = over(lambda k: sw.random.normal(k, (3,)), P(), P())(KEY)
    close(same, sw.random.normal(KEY, (3,)), 0)

    def own(k):
        i = lax.axis_index("x") * lax.axis_size("y") + lax.axis_index("y")
        return sw.random.normal(sw.random.fold_in(k, i), (1, 1))

    wanted = [sw.random.normal(sw.random.fold_in(KEY, i), (1, 1)) for i in range(8)]
    close(np.asarray(over(own, P())(KEY)).ravel(), np.ravel(wanted), 0)


def test_keys_of_pmap():
    keys = sw.random.split(KEY, 8)
    y = sw.pmap(lambda k: sw.random.normal(k, (3,)))(keys)
    close(y, np.stack([sw.random.normal(k, (3,)) for k in keys]), 0)
    old = sw.random.split(sw.random.PRNGKey(7), 8)
    z = sw.pmap(lambda k: sw.random.split(k)[0])(old)
    close(z, np.stack([sw.random.split(k)[0] for k in old]), 0)


# -- where the partitioner splits along other axes --


@pytest.mark.parametrize("check_vma", [True, False])
def test_one_of_the_devices_that_see_the_same_part_calls_the_host(check_vma):
    """Also if the callback returns their numbers: signs of zeros and NaN are preserved."""
    mesh, calls = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y")), []
    x = np.array([0.0, -0.0, np.nan, 3, np.inf, -1, 2, -np.inf], np.float32)

    def host(v):
        calls.append(v)
        return -v, v > 0

    def f(v):
        types = sw.ShapeDtypeStruct(v.shape, v.dtype), sw.ShapeDtypeStruct(v.shape, np.dtype(bool))
        return io_callback(host, types, v)

    for run in (sw.shard_map, lambda f, **k: sw.jit(sw.shard_map(f, **k))):
        negative, positive = run(
            f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=check_vma
        )(x)
        assert len(calls) == 4
        calls.clear()
        np.testing.assert_array_equal(np.asarray(negative).view(np.uint32), (-x).view(np.uint32))
        np.testing.assert_array_equal(positive, x > 0)


def test_one_of_the_devices_that_see_the_same_part_prints(capfd):
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))

    def f(v):
        sw.debug.print("{}", v[0])
        return lax.psum(v, "x")

    sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P(), axis_names={"x"})(np.arange(4.0))
    sw.effects_barrier()
    assert sorted(capfd.readouterr().out.split()) == ["0.0", "1.0", "2.0", "3.0"]

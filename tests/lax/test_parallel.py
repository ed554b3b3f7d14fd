"""Collectives over the named axes of `vmap`: against NumPy, jax, and finite differences."""

import itertools
import math

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.testing import check_grads
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)
SIZES = {"i": 2, "j": 3}
X = np.arange(1, 5, dtype=np.float32)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


# -- what each collective does, as a function of the list of all values --


def total(xs):
    return np.sum(np.stack(xs), 0)


def pieces(x, count, axis):
    return np.split(x, count, axis)


def exchanged(xs, split, concat, tiled):
    found = []
    for k in range(len(xs)):
        own = [pieces(x, len(xs), split)[k] for x in xs]
        found.append(
            np.concatenate(own, concat)
            if tiled
            else np.stack([np.squeeze(p, split) for p in own], concat)
        )
    return found


def scattered(xs, axis, tiled):
    parts = pieces(total(xs), len(xs), axis)
    return parts if tiled else [np.squeeze(p, axis) for p in parts]


def permuted(xs, perm):
    found = [np.zeros_like(x) for x in xs]
    for source, to in perm:
        found[to] = xs[source]
    return found


def everywhere(fun):
    return lambda xs: [fun(xs)] * len(xs)


# name → (function of one value and names, reference), with the shape of a value for n indices.
def cases(n):
    pairs = [(0, n - 1), (n - 1, 0)] if n > 1 else []
    found = {
        "psum": ((2, 5), lambda x, a: lax.psum(x, a), everywhere(total)),
        "pmean": ((2, 5), lambda x, a: lax.pmean(x, a), everywhere(lambda xs: total(xs) / n)),
        "pmax": ((2, 5), lambda x, a: lax.pmax(x, a), everywhere(lambda xs: np.max(xs, 0))),
        "pmin": ((2, 5), lambda x, a: lax.pmin(x, a), everywhere(lambda xs: np.min(xs, 0))),
        "ppermute": ((5,), lambda x, a: lax.ppermute(x, a, pairs), lambda xs: permuted(xs, pairs)),
        "pshuffle": ((5,), lambda x, a: lax.pshuffle(x, a, range(n)[::-1]), lambda xs: xs[::-1]),
        "pbroadcast": ((5,), lambda x, a: lax.pbroadcast(x, a, n - 1), lambda xs: [xs[-1]] * n),
        "axis_index": (
            (2,),
            lambda x, a: x + lax.axis_index(a),
            lambda xs: [x + k for k, x in enumerate(xs)],
        ),
        "pswapaxes": (
            (4, n),
            lambda x, a: lax.pswapaxes(x, a, -1),
            lambda xs: exchanged(xs, 1, 1, False),
        ),
    }
    for axis, tiled in itertools.product((0, 1), (False, True)):
        at = f"axis={axis} tiled={tiled}"
        join = np.concatenate if tiled else np.stack
        found[f"all_gather {at}"] = (
            (2, 3),
            lambda x, a, axis=axis, tiled=tiled: lax.all_gather(x, a, axis=axis, tiled=tiled),
            everywhere(lambda xs, join=join, axis=axis: join(xs, axis)),
        )
        shape = [2, 3]
        shape[axis] = n * 2 if tiled else n
        found[f"psum_scatter {at}"] = (
            tuple(shape),
            lambda x, a, axis=axis, tiled=tiled: lax.psum_scatter(
                x, a, scatter_dimension=axis, tiled=tiled
            ),
            lambda xs, axis=axis, tiled=tiled: scattered(xs, axis, tiled),
        )
    for split, concat, tiled in itertools.product(range(3), range(3), (False, True)):
        shape = [2, 3, 5]
        shape[split] = n * 2 if tiled else n
        found[f"all_to_all split={split} concat={concat} tiled={tiled}"] = (
            tuple(shape),
            lambda x, a, s=split, c=concat, tiled=tiled: lax.all_to_all(x, a, s, c, tiled=tiled),
            lambda xs, s=split, c=concat, tiled=tiled: exchanged(xs, s, c, tiled),
        )
    return found


def along(reference, x, names):
    """A reference over named axes, for values whose first two dimensions are the axes i and j."""
    order = [d for d, n in enumerate(SIZES) if n not in names] + ["ij".index(n) for n in names]
    rest = x.shape[2:]
    count = math.prod([SIZES[n] for n in names])
    moved = np.transpose(x, (*order, *range(2, x.ndim))).reshape(-1, count, *rest)
    found = np.stack([np.stack(reference(list(row))) for row in moved])
    found = found.reshape(*[list(SIZES.values())[d] for d in order], *found.shape[2:])
    return np.transpose(found, (*np.argsort(order), *range(2, found.ndim)))


@pytest.mark.parametrize(
    "names", everyday([("i",), ("j",), ("i", "j"), ("j", "i")], 1), ids="".join
)
def test_against_numpy(names):
    found = cases(math.prod([SIZES[n] for n in names]))
    axes = names[0] if len(names) == 1 else names
    inputs = {name: normal(2, 3, *shape) for name, (shape, _, _) in found.items()}

    def all_of_them(xs):
        return {name: f(xs[name], axes) for name, (_, f, _) in found.items()}

    if names == ("j", "i"):
        nested = sw.vmap(sw.jit(sw.vmap(sw.jit(all_of_them), axis_name="j")), axis_name="i")
    else:
        nested = sw.vmap(sw.vmap(all_of_them, axis_name="j"), axis_name="i")
    results = sw.jit(nested)(inputs)
    for name, (_, _, reference) in found.items():
        wanted = along(reference, inputs[name], names)
        np.testing.assert_allclose(
            np.asarray(results[name]), wanted, rtol=1e-5, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize("in_axes", everyday([0, 1, None], 1))
def test_against_jax(in_axes):
    """Eagerly, also where the mapped axis is not the first, and where the value is not mapped."""
    x = normal(4, 4, 4)

    def run(lib):
        def f(x, k):
            outs = {
                "psum": lib.psum({"a": x, "b": 2}, "i"),
                "pmean": lib.pmean(x, "i"),
                "pmax": lib.pmax(x, "i"),
                "pmin": lib.pmin([x], "i"),
                "gather": lib.all_gather(x, "i", axis=1),
                "index": lib.axis_index("i"),
                "scatter": lib.psum_scatter(x, "i"),
                "shuffle": lib.pshuffle(x, "i", [3, 2, 0, 1]),
                "bool": lib.psum(x > 0, "i"),
                "int8": lib.psum(x.astype("int8"), "i"),
                "mean of ints": lib.pmean(x.astype("int32"), "i"),
                "positions": lib.psum(x, ("i", 0)),
            }
            if in_axes is not None:  # for unmapped values, jax returns other shapes
                outs |= {
                    "all_to_all": lib.all_to_all(x, "i", 0, 1),
                    "swap": lib.pswapaxes(x, "i", 0),
                    "tiled": lib.all_to_all(x, "i", 0, 1, tiled=True),
                    "size": lib.axis_size("i") + 0 * k,
                }
            return outs

        return f

    ours = sw.vmap(run(lax), (in_axes, 0), axis_name="i")(x, X)
    theirs = jax.jit(jax.vmap(run(jax.lax), (in_axes, 0), axis_name="i"))(x, X)
    pairs = zip(sw.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    for a, b in pairs:
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


def test_numbers_stay_numbers():
    found = []

    def f(x):
        found[:] = [
            lax.psum(1, "i"),
            lax.psum(2.5, "i"),
            lax.psum(True, "i"),
            lax.pmean(1, "i"),
            lax.pmax(3, "i"),
            lax.axis_size("i"),
            lax.axis_size(()),
            lax.psum(1, "i", axis_index_groups=[[0, 1], [2, 3]]),
        ]
        return lax.psum(np.float32(3), "i")

    assert sw.vmap(f, axis_name="i", out_axes=None)(X) == 12
    assert found == [4, 10.0, 4, 1.0, 3, 4, 1, 2]
    assert [type(v) for v in found] == [int, float, int, float, int, int, int, int]


def test_parts_of_a_sum_of_booleans():
    flags = np.arange(16).reshape(4, 4) % 3 == 0

    def f(x):
        return lax.psum_scatter(x, "i")

    for run in (sw.vmap(f, axis_name="i"), sw.pmap(f, axis_name="i")):
        found = run(flags)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, flags.sum(0))


def test_results_that_are_the_same_for_all():
    """Results may be unmapped, as may results that depend on no mapped argument."""
    for f in (lax.psum, lax.pmax, lax.all_gather):
        sw.vmap(lambda x, f=f: f(x, "i"), axis_name="i", out_axes=None)(X)


def test_shadowed_names_and_sizes():
    inner = sw.vmap(sw.jit(lambda y: lax.psum(y, "i") * lax.axis_size("i")), axis_name="i")
    outer = sw.vmap(lambda x: inner(x) + lax.axis_size("i"), axis_name="i")
    np.testing.assert_array_equal(np.asarray(outer(np.ones((4, 3)))), np.full((4, 3), 13))
    jitted = sw.jit(lambda x: x / lax.psum(1, "i") + lax.psum(x, "i"))
    for n in (2, 4, 2):
        got = sw.vmap(jitted, axis_name="i")(np.ones(n, np.float32))
        np.testing.assert_array_equal(np.asarray(got), np.full(n, 1 / n + n))


def test_rules_see_the_size_of_their_own_axis():
    """A cached derivative for one size is not reused for another."""

    @sw.custom_jvp
    def f(x):
        return x * 1.0

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * lax.axis_size("i")))
    jitted = sw.jit(f)
    for n in (2, 4):
        slope = sw.vmap(sw.grad(jitted), axis_name="i")(np.ones(n, np.float32))
        np.testing.assert_array_equal(np.asarray(slope), np.full(n, n))


# -- groups --

GROUPED = {
    "psum": (lambda x, g: lax.psum(x, "i", axis_index_groups=g), everywhere(total)),
    "pmean": (
        lambda x, g: lax.pmean(x, "i", axis_index_groups=g),
        lambda xs: [total(xs) / len(xs)] * len(xs),
    ),
    "pmax": (
        lambda x, g: lax.pmax(x, "i", axis_index_groups=g),
        everywhere(lambda xs: np.max(xs, 0)),
    ),
    "all_gather": (lambda x, g: lax.all_gather(x, "i", axis_index_groups=g), everywhere(np.stack)),
    "psum_scatter": (
        lambda x, g: lax.psum_scatter(x, "i", axis_index_groups=g),
        lambda xs: scattered(xs, 0, False),
    ),
    "all_to_all": (
        lambda x, g: lax.all_to_all(x, "i", 0, 0, axis_index_groups=g),
        lambda xs: exchanged(xs, 0, 0, False),
    ),
    "pswapaxes": (
        lambda x, g: lax.pswapaxes(x, "i", 0, axis_index_groups=g),
        lambda xs: exchanged(xs, 0, 0, False),
    ),
}


def in_groups(reference, x, groups):
    found = {}
    for group in groups:
        found |= dict(zip(group, reference([x[i] for i in group]), strict=True))
    return np.stack([found[i] for i in range(len(x))])


def test_groups():
    x, groups = normal(6, 2, 3), [[0, 3], [5, 1], [2, 4]]
    mapped = sw.jit(
        sw.vmap(lambda x: {n: f(x, groups) for n, (f, _) in GROUPED.items()}, axis_name="i")
    )(x)
    for name, (_, reference) in GROUPED.items():
        wanted = in_groups(reference, x, groups)
        np.testing.assert_allclose(np.asarray(mapped[name]), wanted, rtol=1e-5, err_msg=name)


def test_groups_of_different_sizes():
    x, groups = normal(5, 2), [[4, 0, 1], [2, 3]]
    for name in ("psum", "pmean", "pmax"):
        f, reference = GROUPED[name]
        got = sw.vmap(lambda x, f=f: f(x, groups), axis_name="i")(x)
        np.testing.assert_allclose(np.asarray(got), in_groups(reference, x, groups), rtol=1e-5)
    counted = sw.vmap(
        lambda x: lax.psum(1, "i", axis_index_groups=groups) + 0 * x[0].astype(int), axis_name="i"
    )(x)
    assert np.asarray(counted).tolist() == [3, 3, 2, 2, 3]


def test_groups_of_values_that_do_not_vary():
    f = sw.vmap(
        lambda x: 0 * x + lax.psum(np.float32(2), "i", axis_index_groups=[[0, 1], [2, 3]]),
        axis_name="i",
    )
    np.testing.assert_array_equal(np.asarray(f(X)), np.full(4, 4))


def test_sums_of_what_does_not_vary_count_it_for_all():
    f = sw.vmap(lambda x: 0 * x + lax.psum(lax.psum(np.float32(3), "i") + 1, "i"), axis_name="i")
    np.testing.assert_array_equal(np.asarray(f(X)), np.full(4, 4 * (4 * 3 + 1)))


# -- derivatives --


def derivatives(f, lib):
    """Derivatives of a function of one value and others; per index, and through the map."""
    cube = lambda x: lib.numpy.sum(f(x) ** 3 * 0.1)  # noqa: E731
    mapped = lambda xs: lib.numpy.sum(lib.vmap(cube, axis_name="i")(xs))  # noqa: E731
    along = lambda g: lambda x: lib.jvp(g, (x,), (lib.numpy.cos(x),))[1]  # noqa: E731
    vm = lambda g: lib.vmap(g, axis_name="i")  # noqa: E731
    return {
        "grad": vm(lib.grad(cube)),
        "jvp": vm(along(f)),
        "grad of jit": vm(lib.grad(lib.jit(cube))),
        "grad of grad": vm(lib.grad(lambda x: lib.numpy.sum(lib.grad(cube)(x) ** 2))),
        "through the map": lib.grad(mapped),
        "jvp of grad": vm(along(lib.grad(cube))),
    }


SMOOTH = {
    "psum": lambda lax, x: lax.psum(x, "i"),
    "psum of a square": lambda lax, x: x * lax.psum(x * x, "i"),
    "pmean": lambda lax, x: lax.pmean(x, "i") * x,
    "all_gather": lambda lax, x: lax.all_gather(x, "i")[1:] * x,
    "tiled all_gather": lambda lax, x: lax.all_gather(x, "i", tiled=True)[:4] * x,
    "psum_scatter": lambda lax, x: lax.psum_scatter(x, "i") * x,
    "all_to_all": lambda lax, x: lax.all_to_all(x, "i", 0, 0) * x,
    "pshuffle": lambda lax, x: lax.pshuffle(x, "i", [2, 0, 3, 1]) * x,
}


def test_derivatives_against_jax():
    x = {name: normal(4, 4) for name in SMOOTH}
    ours, theirs = [
        {
            name: derivatives(lambda x, f=f, lax=lib.lax: f(lax, x), lib)
            for name, f in SMOOTH.items()
        }
        for lib in (sw, jax)
    ]
    run = lambda made: (  # noqa: E731
        lambda x: {name: {n: g(x[name]) for n, g in fs.items()} for name, fs in made.items()}
    )
    got, wanted = sw.jit(run(ours))(x), jax.jit(run(theirs))(x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-4),
        got,
        wanted,
    )


@pytest.mark.parametrize("name", ["psum of a square", "all_gather"])
def test_eager_derivatives(name):
    x, f = normal(4, 4), SMOOTH[name]
    got = derivatives(lambda x: f(lax, x), sw)["grad"](x)
    wanted = jax.jit(derivatives(lambda x: f(jax.lax, x), jax)["grad"])(x)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=2e-4, atol=2e-4)


GROUPS = [[0, 2], [3, 1]]
DIFFERENTIATED = {
    "pmax": lambda x: lax.pmax(x, "i") * x,
    "pmin": lambda x: lax.pmin(x, "i") ** 2,
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 3)]) * x,
    "pbroadcast": lambda x: lax.pbroadcast(x, "i", 2) * x,
    "groups": lambda x: lax.psum(x, "i", axis_index_groups=GROUPS) * x,
    "gathered in groups": lambda x: lax.all_gather(x, "i", axis_index_groups=GROUPS)[0] * x,
    "scattered in groups": lambda x: (
        lax.psum_scatter(x, "i", axis_index_groups=GROUPS, tiled=True) * x[:2]
    ),
    "exchanged in groups": lambda x: (
        lax.all_to_all(x, "i", 0, 0, axis_index_groups=GROUPS, tiled=True) * x
    ),
}


APART = RNG.permuted(np.arange(16, dtype=np.float32)).reshape(4, 4) / 8  # one extreme each


FORMS = ["pmax", "pmin", "ppermute", "pbroadcast", "groups"]


@pytest.mark.parametrize("name", everyday(FORMS, 1))
def test_derivatives_against_finite_differences(name):
    f = DIFFERENTIATED[name]
    check_grads(sw.jit(sw.vmap(f, axis_name="i")), (APART,), 2, eps=1e-2)


def test_derivatives_inside_and_outside_of_the_map():
    """Per index, the derivative of the sum of all losses, as collectives transpose."""

    def both(x, f):
        loss = lambda x: swnp.sum(swnp.sin(f(x)))  # noqa: E731
        inside = sw.vmap(sw.grad(loss), axis_name="i")(x)
        return inside, sw.grad(lambda xs: swnp.sum(sw.vmap(loss, axis_name="i")(xs)))(x)

    found = sw.jit(lambda x: {n: both(x, f) for n, f in DIFFERENTIATED.items()})(APART)
    for name, (inside, outside) in found.items():
        np.testing.assert_allclose(
            np.asarray(inside), np.asarray(outside), rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_equal_values_share_the_derivative_of_a_maximum():
    x = np.array([1, 3, 3, 2], np.float32)
    outside = sw.grad(lambda xs: swnp.sum(sw.vmap(lambda x: lax.pmax(x, "i"), axis_name="i")(xs)))
    inside = sw.vmap(sw.grad(lambda x: lax.pmax(x, "i")), axis_name="i")
    for f in (outside, inside):
        np.testing.assert_array_equal(np.asarray(f(x)), [0, 2, 2, 0])


# -- staged --


def test_programs_show_names():
    staged = sw.make_jaxpr(
        lambda x: lax.psum(x, "i") + lax.axis_index("j"), axis_env=[("i", 4), ("j", 2)]
    )(np.float32(1))
    check_program(staged)
    assert str(staged) == (
        "{ lambda ; a:f32[]. let\n"
        "    b:f32[] = psum[groups=None names=('i',) sizes=(4,)] a\n"
        "    c:i32[] = axis_index[names=('j',) sizes=(2,) varies=False]\n"
        "    d:f32[] = convert_element_type[dtype=float32 weak=False] c\n"
        "    e:f32[] = add b d\n"
        "  in (e,) }"
    )


def test_keys_and_extended_dtypes_can_be_gathered():
    keys = sw.random.split(sw.random.key(0), 4)
    got = sw.vmap(lambda k: lax.pshuffle(k, "i", [1, 2, 3, 0]), axis_name="i")(keys)
    np.testing.assert_array_equal(
        np.asarray(sw.random.key_data(got)), np.roll(np.asarray(sw.random.key_data(keys)), -1, 0)
    )


def test_pcast_changes_no_value():
    got = sw.vmap(lambda x: lax.pcast({"a": x}, "i", to="varying"), axis_name="i")(X)
    np.testing.assert_array_equal(np.asarray(got["a"]), X)


# -- errors; others are in test_collective_messages --


def test_axes_of_a_mesh_are_no_named_axes():
    with sw.set_mesh(sw.make_mesh((2,), ("x",))), pytest.raises(NameError) as error:
        sw.jit(lambda a: lax.psum(a, "x"))(X)
    assert str(error.value) == (
        "shardwise.lax.psum: unbound axis name: x. The axes in scope are: none. 'x' is an axis of "
        "the mesh, which is only bound inside `shardwise.shard_map`. To bind an axis name, wrap "
        "the call in a map: `shardwise.vmap(f, axis_name='x')` or `shardwise.shard_map`."
    )


def test_programs_without_their_map_do_not_run():
    staged = sw.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 4)])(X)
    assert message(NameError, sw.jit(staged), X) == (
        "[psum] axis 'i' is not bound where the program runs. Call the function with the "
        "collective inside of `shardwise.vmap(f, axis_name=...)` or `shardwise.shard_map`."
    )

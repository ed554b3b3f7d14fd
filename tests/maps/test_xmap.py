"""`xmap`: values never depend on the resources of its axes."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, nn
from shardwise.experimental.maps import (
    AnonymousSerialLoop,
    Loop,
    ResourceEnv,
    SerialLoop,
    serial_loop,
    thread_resources,
    xmap,
)
from shardwise.sharding import Mesh, PartitionSpec
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

X = np.arange(48, dtype=np.float32).reshape(8, 6)
ACROSS = [  # resources of an axis of size 8, in programs with collectives over it
    {},
    {"i": "x"},
    {"i": "y"},
    {"i": ("x", "y")},
    {"i": ("y", "x")},
]
SERIAL = [{"i": SerialLoop(4)}, {"i": "l"}, {"i": ("x", SerialLoop(2))}, {"i": ("l", "y")}]
ALL = everyday(ACROSS + SERIAL, 5)
SOME = everyday(ACROSS, 3)


@pytest.fixture
def mesh():
    with Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y")) as mesh, serial_loop("l", 2):
        yield mesh


def both(f, *args, in_axes, out_axes, resources, want, rtol=1e-6, **options):
    """Runs `f` over resources, eagerly and under `jit`, and compares the results."""
    mapped = xmap(f, in_axes, out_axes, axis_resources=resources, **options)
    for run in (mapped, sw.jit(mapped)):
        found = run(*args)
        sw.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol), found, want)
    return mapped


@pytest.mark.parametrize("resources", everyday(SOME, 1), ids=str)
@pytest.mark.parametrize(
    "f, want",
    [
        (lambda x: x / lax.psum(x + 1, "i"), X / (X + 1).sum(0)),
        (lambda x: lax.pmean(x, "i") + x, X.mean(0) + X),
        (lambda x: x - lax.pmax(x, "i") * lax.pmin(x, "i"), X - X.max(0) * X.min(0)),
        (lambda x: lax.all_gather(x, "i").sum(0) * x, X.sum(0) * X),
        (lambda x: lax.ppermute(x, "i", [(k, (k + 3) % 8) for k in range(8)]), np.roll(X, 3, 0)),
        (lambda x: lax.pshuffle(x, "i", range(7, -1, -1)), X[::-1]),
        (lambda x: lax.pbroadcast(x, "i", 5), X[[5] * 8]),
        (lambda x: x + lax.axis_index("i") * lax.axis_size("i"), X + 8.0 * np.arange(8)[:, None]),
        (
            lambda x: lax.psum_scatter(jnp.arange(8.0) * x[0], "i") + x,
            (np.arange(8) * X[:, 0].sum())[:, None] + X,
        ),
        (
            lambda x: lax.all_to_all(jnp.arange(8.0) + 10 * x[0], "i", 0, 0).sum() + x,
            X + (8.0 * np.arange(8) + 10 * X[:, 0].sum())[:, None],
        ),
        (lambda x: x * lax.psum(2, "i"), X * 16),
    ],
)
def test_collectives_do_not_know_what_an_axis_runs_over(f, want, resources, mesh):
    both(f, X, in_axes=["i", ...], out_axes=["i", ...], resources=resources, want=want)


@pytest.mark.parametrize("resources", ALL, ids=str)
def test_a_program_without_collectives_runs_over_anything(resources, mesh):
    w = np.arange(6, dtype=np.float32)

    def f(x, w):
        i, j = lax.axis_index("i"), lax.axis_index("j")
        return {"both": x * w + 10 * i + j, "one": jnp.sin(w), "none": jnp.float32(3)}

    i, j = np.arange(8)[:, None], np.arange(6)
    both(
        f,
        X,
        w,
        in_axes=(["i", "j"], {0: "j"}),
        out_axes={"both": ["j", "i"], "one": ["j"], "none": {}},
        resources=resources,
        want={"both": (X * w + 10 * i + j).T, "one": np.sin(w), "none": np.float32(3)},
    )


@pytest.mark.parametrize("other", ["y", SerialLoop(3), None], ids=str)
@pytest.mark.parametrize("resource", everyday(["x", SerialLoop(2), "l", ("x", "l")], 1), ids=str)
def test_two_axes_over_two_resources(resource, other, mesh):
    resources = {"i": resource} | ({} if other is None else {"j": other})

    def f(x):
        total = lax.psum(x, "j") if not isinstance(other, SerialLoop) else x
        return total * lax.axis_index("i")

    i = np.arange(8)[:, None]
    if isinstance(other, SerialLoop):
        want, out = X * i, ["i", "j"]
    else:
        want, out = (X.sum(1) * i[:, 0]), ["i"]
    both(f, X, in_axes=["i", "j"], out_axes=out, resources=resources, want=want)


GROUPS = [[0, 3, 5, 6], [7, 1, 2, 4]]


@pytest.mark.parametrize("resources", everyday(SOME, 1), ids=str)
@pytest.mark.parametrize(
    "f",
    [
        lambda x, g: lax.psum(x, "i", axis_index_groups=g),
        lambda x, g: lax.psum(x, "i", axis_index_groups=[[0, 3, 5], [7, 1, 2, 4, 6]]),
        lambda x, g: lax.pmax(x, "i", axis_index_groups=g),
        lambda x, g: lax.all_gather(x, "i", axis_index_groups=g),
        lambda x, g: lax.psum_scatter(x, "i", axis_index_groups=g, tiled=True),
        lambda x, g: lax.all_to_all(x, "i", 0, 0, axis_index_groups=g, tiled=True),
    ],
    ids=["psum", "uneven", "pmax", "all_gather", "psum_scatter", "all_to_all"],
)  # fmt: skip
def test_groups_of_indices_may_be_on_several_devices(f, resources, mesh):
    x = np.arange(64, dtype=np.float32).reshape(8, 8)

    def loss(x):
        return (f(x, GROUPS) ** 2).sum()

    want = sw.vmap(lambda x: f(x, GROUPS), axis_name="i")(x)
    args = {"in_axes": ["i", ...], "out_axes": ["i", ...], "resources": resources}
    both(lambda x: f(x, GROUPS), x, want=want, **args)
    both(sw.grad(loss), x, want=sw.vmap(sw.grad(loss), axis_name="i")(x), **args)


@pytest.mark.parametrize("resources", everyday(SOME, 1), ids=str)
def test_names_in_einsum_reductions_and_one_hot(resources, mesh):
    a = np.sin(np.arange(8 * 6 * 4, dtype=np.float32)).reshape(8, 6, 4)
    names = ["i", "j", ...]
    both(
        lambda a, b: jnp.einsum("a{i},b{i}->ab", a, b),
        a,
        a[..., :3],
        in_axes=(names, names),
        out_axes=["j", ...],
        resources=resources,
        want=np.einsum("ija,ijb->jab", a, a[..., :3]),
        rtol=1e-4,
    )
    both(
        lambda a: lax.pdot(a, a, ("i", "j"), ((0,), (0,))),
        a,
        in_axes=names,
        out_axes={},
        resources=resources,
        want=np.float32((a * a).sum()),
    )
    both(
        lambda a: (jnp.sum(a, axis=("i", 0)), jnp.max(a, axis="j"), jnp.std(a, axis=("j", "i"))),
        a,
        in_axes=names,
        out_axes=(["j"], ["i", ...], {}),
        resources=resources,
        rtol=1e-4,
        want=(a.sum((0, 2)), a.max(1), a.std((0, 1))),
    )
    both(
        lambda k: nn.one_hot(k, 8, axis="i"),
        np.arange(5),
        in_axes=["k"],
        out_axes=["k", "i"],
        axis_sizes={"i": 8},
        resources=resources,
        want=np.eye(5, 8, dtype=np.float32),
    )
    e = np.exp(a)
    both(
        lambda a: nn.softmax(a, axis="i"),
        a,
        in_axes=names,
        out_axes=names,
        resources=resources,
        want=e / e.sum(0),
        rtol=1e-5,
    )


def test_dimensions_are_where_they_are_said_to_be():
    x = np.arange(2 * 3 * 4 * 5.0, dtype=np.float32).reshape(2, 3, 4, 5)
    f = xmap(
        lambda x, y: (x.sum(0) + y, x),
        ({1: "b", 3: "a"}, ["a", None]),
        ({0: "a", 2: "b"}, ["b", "a", ...]),
    )
    y = np.arange(5 * 4.0, dtype=np.float32).reshape(5, 4)
    first, second = f(x, y)
    want = x.sum(0).transpose(2, 1, 0) + y[:, :, None]  # [a, c, b]
    np.testing.assert_allclose(first, want)
    np.testing.assert_allclose(second, x.transpose(1, 3, 0, 2))


@pytest.mark.parametrize("resources", [{}, {"i": "x"}], ids=str)
def test_what_does_not_vary_is_repeated_where_a_result_has_the_axis(resources, mesh):
    f = xmap(lambda x: lax.psum(x, "i"), ["i", ...], [None, "i"], axis_resources=resources)
    np.testing.assert_allclose(f(X), np.repeat(X.sum(0)[:, None], 8, 1))


def test_axes_of_no_argument():
    f = xmap(lambda: lax.axis_index("i"), (), ["i"], axis_sizes={"i": np.int64(5)})
    np.testing.assert_array_equal(f(), np.arange(5))


def test_trees():
    args = {"a": X, "b": (X.T, np.float32(2))}
    f = xmap(
        lambda d: [d["a"] + d["b"][0], d["b"][1]],
        ({"a": ["i", ...], "b": ({1: "i"}, {})},),
        [["i", ...], {}],
    )
    found = f(args)
    np.testing.assert_allclose(found[0], 2 * X)
    assert found[1] == 2


@pytest.mark.parametrize("resources", everyday(SOME, 1), ids=str)
def test_derivatives(resources, mesh):
    """Derivatives of the map, and inside it: there, of the sum of all losses, as in `vmap`."""

    def f(x):
        return jnp.sum(jnp.sin(x) * lax.psum(x, "i"))

    args = {"in_axes": ["i", ...], "resources": resources}
    s = X.sum(0)
    gradient = np.cos(X) * s + np.sin(X).sum(0)
    both(sw.grad(f), X, out_axes=["i", ...], want=gradient, rtol=1e-4, **args)
    mapped = xmap(f, ["i", ...], ["i"], axis_resources=resources)
    np.testing.assert_allclose(sw.grad(lambda x: mapped(x).sum())(X), gradient, rtol=1e-4)
    tangent = np.cos(X) * s + np.sin(X) * s * 0 + np.sin(X) * np.ones_like(X).sum(0)
    _, found = sw.jvp(mapped, (X,), (np.ones_like(X),))
    np.testing.assert_allclose(found, tangent.sum(1), rtol=1e-4)


@pytest.mark.parametrize("resources", ALL, ids=str)
def test_a_batch_of_maps(resources, mesh):
    xs = np.stack([X, 2 * X, 3 * X])
    mapped = xmap(lambda x: jnp.sin(x).sum(), ["i", ...], ["i"], axis_resources=resources)
    np.testing.assert_allclose(sw.vmap(mapped)(xs), np.sin(xs).sum(2), rtol=1e-5)


@pytest.mark.parametrize("inner", everyday([{}, {"j": "y"}, {"j": SerialLoop(2)}], 1), ids=str)
@pytest.mark.parametrize("outer", [{}, {"i": "x"}, {"i": SerialLoop(2)}], ids=str)
def test_a_map_in_a_map(outer, inner, mesh):
    def f(row):
        g = xmap(
            lambda v: v * lax.axis_index("j") + lax.axis_index("i") * 100,
            ["j"],
            ["j"],
            axis_resources=inner,
        )
        return g(row)

    want = X * np.arange(6) + 100 * np.arange(8)[:, None]
    both(f, X, in_axes=["i", ...], out_axes=["i", ...], resources=outer, want=want)


def test_an_inner_map_may_sum_over_the_axis_of_an_outer_one(mesh):
    def f(row):
        return xmap(lambda v: lax.psum(v, ("i", "j")), ["j"], {}, axis_resources={"j": "y"})(row)

    both(f, X, in_axes=["i", ...], out_axes={}, resources={"i": "x"}, want=X.sum())


@pytest.mark.parametrize("resources", SOME, ids=str)
def test_control_flow_inside(resources, mesh):
    def f(x):
        def step(total, v):
            return total + lax.psum(v, "i"), lax.cond(
                v > 20, lambda: v, lambda: -lax.axis_index("i") * v
            )

        total, ys = lax.scan(step, jnp.float32(0), x)
        return total, lax.fori_loop(0, 2, lambda k, y: lax.pmax(y, "i") + x * k, ys)

    own = np.where(X > 20, X, -np.arange(8)[:, None] * X)
    first = own.max(0)
    second = np.broadcast_to(first, X.shape).max(0) + X
    want = X.sum(), second
    both(f, X, in_axes=["i", ...], out_axes=({}, ["i", ...]), resources=resources, want=want)


def test_over_what_others_share_a_loop_if_no_value_has_both(mesh):
    a, b = np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32)
    for resource in ("l", "y"):
        resources = {"i": resource, "j": resource}
        f = xmap(
            lambda a, b: (a * 2, b + 1), (["i"], ["j"]), (["i"], ["j"]), axis_resources=resources
        )
        first, second = f(a, b)
        np.testing.assert_allclose(first, a * 2)
        np.testing.assert_allclose(second, b + 1)
        g = xmap(lambda a, b: a * b, (["i"], ["j"]), ["i", "j"], axis_resources=resources)
        assert message(TypeError, g, a, b) == (
            f"xmap of <lambda>: the axes 'i' and 'j' both run over {resource!r}, and result has "
            "both of them. Give them different resources."
        )


def test_over_what_others_share_a_mesh_axis_if_no_value_inside_has_both(mesh):
    a, b = np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32)
    f = xmap(
        lambda a, b: lax.psum(sw.jit(lambda a, b: a * b)(a, b), "i"),
        (["i"], ["j"]),
        ["j"],
        axis_resources={"i": "y", "j": "y"},
    )
    assert message(TypeError, f, a, b) == (
        "xmap of <lambda>: the axes 'i' and 'j' both run over 'y', and a result of [jit] in it has "
        "both of them. Give them different resources."
    )


def test_an_axis_may_have_the_name_of_what_it_runs_over(mesh):
    f = xmap(
        lambda x: lax.psum(x, "x") + lax.axis_index("x"),
        ["x", ...],
        ["x", ...],
        axis_resources={"x": "x"},
    )
    np.testing.assert_allclose(f(X), X.sum(0) + np.arange(8)[:, None])


def test_results_are_divided_as_their_axes_run(mesh):
    f = xmap(lambda x: x, ["i", ...], [None, "i"], axis_resources={"i": ("x", "y")})
    assert f(X).sharding.spec == PartitionSpec(None, ("x", "y"))


def test_lowered_for_types(mesh):
    f = xmap(lambda x: x + 4, ["i", ...], ["i", ...], axis_resources={"i": "x"})
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    lowered = f.lower(sw.ShapeDtypeStruct(x.shape, x.dtype))
    np.testing.assert_array_equal(lowered.compile()(x), x + 4)
    assert "sdy.manual_computation" in lowered.as_text()
    with pytest.raises(TypeError, match="pytree structure"):
        lowered.compile()([x])


def test_one_trace_for_repeated_calls(mesh):
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * 2

    g = xmap(f, ["i", ...], ["i", ...], axis_resources={"i": "x"})
    g(X), g(X + 1), g(jnp.asarray(X))
    assert count == 1
    with serial_loop("other", 3):
        g(X)
    assert count == 2  # the scope may matter


@pytest.mark.parametrize("resources", SOME, ids=str)
def test_values_that_are_moved_stay_what_they_are(resources, mesh):
    """Signs of zeros, NaN and keys are preserved."""
    special = np.resize(np.array([-0.0, np.nan, 0.0, -0.0, np.inf], np.float32), (8, 3))
    sources = [3, 1, 0, 2, 7, 6, 5, 4]
    pairs = [(0, 3), (1, 4), (6, 2)]

    def f(x):
        return lax.pshuffle(x, "i", sources), lax.ppermute(x, "i", pairs)

    g = xmap(f, ["i", ...], ["i", ...], axis_resources=resources)
    wanted = np.zeros_like(special)
    wanted[[3, 4, 2]] = special[[0, 1, 6]]
    for found, want in zip(g(special), (special[sources], wanted), strict=True):
        np.testing.assert_array_equal(np.asarray(found).view(np.int32), want.view(np.int32))
    keys = sw.random.split(sw.random.key(0), 8)
    data = np.asarray(sw.random.key_data(keys))
    np.testing.assert_array_equal(sw.random.key_data(g(keys)[0]), data[sources])


@pytest.mark.sweep
def test_no_traced_value_is_left_behind(mesh):
    def f(x):
        return x + lax.axis_index("i")

    with sw.checking_leaks():
        for resources in ACROSS + SERIAL:
            y = xmap(f, ["i", ...], ["i", ...], axis_resources=resources)(X)
            np.testing.assert_array_equal(y, X + np.arange(8)[:, None])


def test_donation():
    x = jnp.ones((8, 6))
    xmap(lambda x: x + 1, ["i", ...], ["i", ...], donate_argnums=0)(x)
    assert x.is_deleted()


def test_what_is_in_scope():
    assert thread_resources.env.physical_mesh.empty
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    with mesh, serial_loop("l", 3):
        env = thread_resources.env
        assert env == ResourceEnv(mesh, (Loop("l", 3),))
        assert env.physical_resource_axes == {"x", "y"}
        assert env.loop_resource_axes == {"l"}
        assert env.resource_axes == {"x", "y", "l"}
        assert [*env.shape.items()] == [*env.local_shape.items()] == [("x", 4), ("y", 2), ("l", 3)]
        assert env.with_extra_loop(Loop("m", 2)).loops == (Loop("l", 3), Loop("m", 2))
    assert AnonymousSerialLoop is SerialLoop
    assert repr(SerialLoop(4)) == "SerialLoop(4)"


def test_a_loop_is_no_axis_of_values():
    with serial_loop("l", 3), pytest.raises(NameError) as error:
        lax.axis_index("l")
    assert str(error.value).startswith(
        "shardwise.lax.axis_index: unbound axis name: l. The axes in scope are: none."
    )


# -- a network with named dimensions --


def predict(w1, w2, images):
    hidden = nn.relu(lax.pdot(w1, images, "inputs"))
    logits = lax.pdot(w2, hidden, "hidden")
    return logits - nn.logsumexp(logits, axis="classes")


def loss(w1, w2, images, labels):
    targets = nn.one_hot(labels, 10, axis="classes")
    losses = jnp.sum(targets * predict(w1, w2, images), axis="classes")
    return -jnp.mean(losses, axis="batch")


@pytest.mark.parametrize(
    "resources",
    everyday([
        {}, {"batch": "x"}, {"batch": "x", "hidden": "y"}, {"inputs": "y", "hidden": "x"},
        {"batch": ("x", "y")}, {"classes": "y"},
    ], 1),
    ids=str,
)  # fmt: skip
def test_a_network_by_names(resources, mesh):
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(size=(16, 32)), rng.normal(size=(32, 10))
    images, labels = rng.normal(size=(24, 16)), rng.integers(0, 10, 24)
    w1, w2, images = [x.astype(np.float32) for x in (w1, w2, images)]

    def by_numbers(w1, w2):
        logits = nn.relu(images @ w1) @ w2
        return -jnp.mean(nn.log_softmax(logits)[np.arange(24), labels])

    f = xmap(
        loss, (["inputs", "hidden"], ["hidden", "classes"], ["batch", "inputs"], ["batch"]), [],
        axis_sizes={"classes": 10}, axis_resources=resources,
    )  # fmt: skip
    np.testing.assert_allclose(f(w1, w2, images, labels), by_numbers(w1, w2), rtol=1e-5)
    found = sw.jit(sw.grad(f, (0, 1)))(w1, w2, images, labels)
    for a, b in zip(found, sw.grad(by_numbers, (0, 1))(w1, w2), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_functions_that_are_mapped_again_are_found_by_what_they_do(mesh, caplog):
    def run(x):
        return xmap(lambda x: x * 2, ["i", ...], ["i", ...], axis_resources={"i": "x"})(x)

    with sw.log_compiles(True), caplog.at_level("WARNING", "shardwise"):
        run(X)
        assert len(caplog.messages) == 2
        run(X)
        assert len(caplog.messages) == 2


@pytest.mark.parametrize("size", [0, 1])
def test_axes_without_indices_and_of_one(size, mesh):
    f = xmap(lambda x: x + lax.psum(x, "i"), ["i", ...], ["i", ...], axis_resources={})
    assert f(np.ones((size, 3))).shape == (size, 3)


@pytest.mark.parametrize("resources", everyday(SOME, 1), ids=str)
def test_rules_of_custom_derivatives_know_the_axes(resources, mesh):
    @sw.custom_jvp
    def f(x):
        return jnp.sin(x) * lax.axis_index("i")

    @f.defjvp
    def _(primals, tangents):
        ((x,), (t,)) = primals, tangents
        return f(x), jnp.cos(x) * lax.axis_index("i") * lax.psum(t, "i")

    @sw.custom_vjp
    def g(x):
        return jnp.sin(x)

    def back(x, ct):
        return (jnp.cos(x) * lax.psum(ct, "i") + lax.axis_size("i") * lax.axis_index("i"),)

    g.defvjp(lambda x: (g(x), x), back)
    x, i = X[:, 0] / 10, np.arange(8, dtype=np.float32)
    by_f = (2 * np.sin(x) * i * np.cos(x) * i).sum()
    for fun, want in (
        (f, np.full(8, by_f)), (g, np.cos(x) * (2 * np.sin(x)).sum() + 8 * i),
    ):  # fmt: skip
        mapped = xmap(fun, ["i"], ["i"], axis_resources=resources)
        gradient = sw.grad(lambda x, mapped=mapped: (mapped(x) ** 2).sum())
        np.testing.assert_allclose(gradient(x), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sw.jit(gradient)(x), want, rtol=1e-4, atol=1e-5)


def test_a_rule_does_not_know_where_a_loop_is():
    f = sw.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(*p), jnp.cos(*p) * t[0] * lax.axis_index("i")))
    mapped = xmap(f, ["i"], ["i"], axis_resources={"i": SerialLoop(2)})
    assert message(NotImplementedError, lambda: sw.grad(lambda x: mapped(x).sum())(np.ones(8))) == (
        "the index along 'i', which runs in a serial loop, is unknown in a custom derivative rule. "
        "Compute it in the function, and pass it to the rule as an argument."
    )


@pytest.mark.parametrize("resources", everyday(ALL, 2), ids=str)
def test_refs_among_the_arguments(resources, mesh):
    sums, last = sw.new_ref(jnp.zeros((6, 8))), sw.new_ref(jnp.zeros(6))

    def f(sums, last, x):
        sums[...] += x
        sums[...] *= 2
        last[...] = last[...] + 1
        return sums[...].sum()

    mapped = xmap(f, ({1: "i"}, [None], ["i", ...]), ["i"], axis_resources=resources)
    for run in (mapped, sw.jit(mapped)):
        before = np.asarray(sums[...])
        want = 2 * (before + X.T)
        np.testing.assert_allclose(run(sums, last, X), want.sum(0), rtol=1e-5)
        np.testing.assert_allclose(sums[...], want, rtol=1e-6)
    np.testing.assert_array_equal(last[...], np.full(6, 2))

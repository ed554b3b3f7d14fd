"""Shapes with named axes: different numbers for each index, however the axis is mapped."""

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random
from shardwise.core import NamedShape
from shardwise.experimental.maps import SerialLoop, xmap
from shardwise.nn import initializers
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

KEY = random.key(7)
SAMPLERS = {
    "bits": random.bits,
    "uniform": random.uniform,
    "normal": random.normal,
    "randint": lambda k, s: random.randint(k, s, 0, 1000),
    "bernoulli": lambda k, s: random.bernoulli(k, 0.5, s),
    "rademacher": random.rademacher,
    "truncated_normal": lambda k, s: random.truncated_normal(k, -1, 1, s),
    "lognormal": lambda k, s: random.lognormal(k, 1.0, s),
    "maxwell": random.maxwell,
    "double_sided_maxwell": lambda k, s: random.double_sided_maxwell(k, 0.0, 1.0, s),
    "wald": lambda k, s: random.wald(k, 1.0, s),
    "exponential": random.exponential,
    "pareto": lambda k, s: random.pareto(k, 2.0, s),
    "weibull_min": lambda k, s: random.weibull_min(k, 1.0, 2.0, s),
    "rayleigh": lambda k, s: random.rayleigh(k, 1.0, s),
    "gumbel": random.gumbel,
    "laplace": random.laplace,
    "logistic": random.logistic,
    "cauchy": random.cauchy,
    "triangular": lambda k, s: random.triangular(k, 0.0, 0.5, 1.0, s),
    "gamma": lambda k, s: random.gamma(k, 2.0, s),
    "loggamma": lambda k, s: random.loggamma(k, 2.0, s),
    "beta": lambda k, s: random.beta(k, 2.0, 3.0, s),
    "dirichlet": lambda k, s: random.dirichlet(k, jnp.ones(3), s),
    "chisquare": lambda k, s: random.chisquare(k, 2.0, s),
    "t": lambda k, s: random.t(k, 3.0, s),
    "f": lambda k, s: random.f(k, 3.0, 5.0, s),
    "generalized_normal": lambda k, s: random.generalized_normal(k, 2.0, s),
    "ball": lambda k, s: random.ball(k, 3, shape=s),
    "categorical": lambda k, s: random.categorical(k, jnp.zeros(50), shape=s),
    "choice": lambda k, s: random.choice(k, 100, s),
    "geometric": lambda k, s: random.geometric(k, 0.1, s),
    "poisson": lambda k, s: random.poisson(k, 20.0, s),
    "binomial": lambda k, s: random.binomial(k, 30.0, 0.5, s),
    "multivariate_normal": lambda k, s: random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2), s),
    "orthogonal": lambda k, s: random.orthogonal(k, 3, s),
}


def wanted(draw, size, positional):
    """The numbers of each index: its own key's."""
    return np.stack([np.asarray(draw(random.fold_in(KEY, i), positional)) for i in range(size)])


def test_all_samplers_are_here():
    """Samplers that take a shape; for `multinomial`, the shape of the trials."""
    found = {
        name
        for name in dir(random)
        if inspect.isfunction(getattr(random, name))
        and "shape" in inspect.signature(getattr(random, name)).parameters
    }
    assert found - {"multinomial"} == {*SAMPLERS}


@pytest.mark.parametrize("name", everyday(SAMPLERS, 3))
def test_each_index_has_the_numbers_of_its_own_key(name):
    draw = SAMPLERS[name]
    found = sw.vmap(lambda _: draw(KEY, NamedShape(5, i=4)), axis_name="i")(np.arange(4))
    want = wanted(draw, 4, (5,))
    # Matrices have a tolerance relative to their norm, numbers to their size.
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * (name == "orthogonal"))
    assert len(np.unique(want, axis=0)) == 4


@pytest.mark.parametrize(
    "resources",
    everyday([{}, {"i": ("y", "x")}, {"i": SerialLoop(4)}, {"i": ("y", SerialLoop(2))}], 1),
    ids=str,
)
@pytest.mark.parametrize("name", ["bits", "normal", "gamma"])
def test_numbers_do_not_depend_on_what_an_axis_runs_over(name, resources):
    draw = SAMPLERS[name]
    with Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y")):
        f = xmap(
            lambda: draw(KEY, NamedShape(3, i=8)),
            (),
            ["i", ...],
            axis_sizes={"i": 8},
            axis_resources=resources,
        )
        np.testing.assert_allclose(f(), wanted(draw, 8, (3,)), rtol=1e-5)


@pytest.mark.parametrize("check_vma", [True, False])
def test_over_axes_of_a_mesh(check_vma):
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))

    def f():
        one = random.normal(KEY, NamedShape(1, 3, x=4))
        return one, random.normal(KEY, NamedShape(1, y=2, x=4))

    g = sw.shard_map(
        f, mesh=mesh, in_specs=(), out_specs=(P("x"), P(("x", "y"))), check_vma=check_vma
    )
    one, two = g()
    np.testing.assert_array_equal(one, wanted(random.normal, 4, (3,)))
    keys = [random.fold_in(random.fold_in(KEY, x), y) for x in range(4) for y in range(2)]
    np.testing.assert_array_equal(two, [random.normal(key, ()) for key in keys])


@pytest.mark.sweep
@settings(max_examples=8, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=2).map(tuple),
    size=st.sampled_from([1, 2, 4, 8]),
    over=st.sampled_from(["vmap", "shard_map", "pmap", "xmap", "xmap over x"]),
    name=st.sampled_from(["bits", "uniform", "normal", "truncated_normal"]),
)
def test_any_shape_over_any_map(shape, size, over, name):
    draw = SAMPLERS[name]

    def one(_):
        return draw(KEY, NamedShape(*shape, i=size))

    xs, mesh = np.arange(size), Mesh(np.array(sw.devices()[:size]), ("i",))
    if over == "vmap":
        found = sw.vmap(one, axis_name="i")(xs)
    elif over == "pmap":
        found = sw.pmap(one, axis_name="i")(xs)
    elif over == "shard_map":
        found = sw.shard_map(lambda x: one(x)[None], mesh=mesh, in_specs=P("i"), out_specs=P("i"))(
            xs
        )
    else:
        with Mesh(np.array(sw.devices()[:size]), ("x",)):
            resources = {"i": "x"} if over == "xmap over x" else {}
            found = xmap(one, ["i"], ["i", ...], axis_resources=resources)(xs)
    np.testing.assert_allclose(found, wanted(draw, size, shape), rtol=1e-5, atol=1e-7)


@settings(max_examples=8, deadline=None)
@given(
    spec=st.sampled_from([P(), P("x"), P(None, "x"), P("y", "x"), P(("x", "y"))]),
    shape=st.tuples(st.integers(1, 12), st.integers(1, 9)),
    name=st.sampled_from(["bits", "uniform", "normal", "exponential", "gamma"]),
)
def test_numbers_do_not_depend_on_how_they_are_divided(spec, shape, name):
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    place = sw.sharding.NamedSharding(mesh, spec)
    draw = SAMPLERS[name]
    found = sw.jit(lambda key: draw(key, shape), out_shardings=place)(KEY)
    assert found.sharding == place
    np.testing.assert_allclose(found, draw(KEY, shape), rtol=1e-6)


def test_numbers_are_the_same_for_equal_shapes():
    """The order of the names does not matter."""

    def f(shape):
        return sw.vmap(sw.vmap(lambda _: random.uniform(KEY, shape), axis_name="b"), axis_name="a")(
            np.zeros((2, 3))
        )

    np.testing.assert_array_equal(f(NamedShape(2, a=2, b=3)), f(NamedShape(2, b=3, a=2)))
    assert len(np.unique(f(NamedShape(a=2, b=3)))) == 6
    assert len(np.unique(f(NamedShape(a=2)))) == 2


def test_initial_values():
    shape = NamedShape(4, i=3, o=2)

    def of(init, *args):
        g = xmap(lambda: init(KEY, *args), (), ["i", "o", ...], axis_sizes={"i": 3, "o": 2})
        return np.asarray(g())

    found = of(initializers.he_normal(in_axis="i", out_axis="o"), shape)
    plain = of(initializers.variance_scaling(2.0, "fan_in", "truncated_normal", 0, 1), (4, 3))[0, 0]
    assert found.shape == (3, 2, 4)
    assert len(np.unique(found)) == 24
    by_hand = of(
        initializers.variance_scaling(2 / 4 * 4, "fan_in", "truncated_normal", "i", 0), shape
    )
    # 3 inputs times a receptive field of 4; with `out_axis` a dimension, of 2
    np.testing.assert_allclose(found * np.sqrt(12 / 6), by_hand, rtol=1e-6)
    assert plain.shape == (4, 3)
    np.testing.assert_array_equal(of(initializers.ones, shape), np.ones((3, 2, 4)))


def test_the_shape_itself():
    shape = NamedShape(2, 3, i=4, a=5)
    assert repr(shape) == "NamedShape(2, 3, a=5, i=4)"
    assert (shape.rank, shape.positional_rank, shape.named_rank, shape.total) == (4, 2, 2, 120)
    assert (shape[0], shape[-1], shape["i"], shape.names) == (2, 3, 4, ("a", "i"))
    assert [*shape.named_items()] == [("a", 5), ("i", 4)]
    same = NamedShape(2, 3, {"a": 5}, i=4)
    assert shape == same
    assert hash(shape) == hash(same)
    assert NamedShape(2, 3) == (2, 3) and hash(NamedShape(2, 3)) == hash((2, 3))
    assert shape != (2, 3)
    with pytest.raises(KeyError, match="has no axis 'k'"):
        shape["k"]
    with pytest.raises(AttributeError, match="immutable"):
        shape.positional = (1,)


def test_errors():
    with pytest.raises(NameError) as unbound:
        random.normal(KEY, NamedShape(3, i=4))
    message = "normal: unbound axis name: i. The axes in scope are: none."
    assert str(unbound.value).startswith(message)
    with pytest.raises(ValueError) as size:
        sw.vmap(lambda _: random.normal(KEY, NamedShape(3, i=4)), axis_name="i")(np.zeros(5))
    assert str(size.value) == (
        "normal: NamedShape(3, i=4) has size 4 for the axis 'i', whose size is 5."
    )
    with pytest.raises(ValueError) as negative:
        sw.vmap(lambda _: random.normal(KEY, NamedShape(-3, i=5)), axis_name="i")(np.zeros(5))
    assert str(negative.value) == "normal: sizes must not be negative; got shape (-3,)."

"""`grad`, `value_and_grad` and `vjp` with `axis_name`: losses of many indices, gradients of all."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

rng = np.random.default_rng(0)
W = rng.normal(size=3).astype(np.float32)
X = rng.normal(size=(8, 3)).astype(np.float32)
V = (X @ W)[:, None]
BY_W = 2 * (V - 1) * X  # for each loss
BY_X = 2 * (V - 1) * W


def loss(w, x):
    return (jnp.dot(w, x) - 1) ** 2


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def wrapped(f, form):
    """`f` inside a construct that stages it."""
    if form == "jit":
        return sw.jit(f)
    if form == "scan":
        return lambda w, x: sw.tree.map(
            lambda ys: ys[0], lax.scan(lambda c, _: (c, f(w, x)), 0, None, length=2)[1]
        )
    if form == "cond":
        return lambda w, x: lax.cond(x[0] < 1e9, f, f, w, x)
    if form == "checkpoint":
        return sw.checkpoint(f)
    return f


@pytest.fixture(params=["plain", "jit", "scan", "cond", "checkpoint"])
def form(request):
    return request.param


def test_in_a_batch(form):
    """A shared argument has the gradient of all losses; a mapped one, of its own loss."""
    both = sw.grad(loss, (0, 1), axis_name="i")
    f = sw.vmap(wrapped(both, form), in_axes=(None, 0), out_axes=(None, 0), axis_name="i")
    if form == "cond":  # all branches run, and rows select their results
        f = sw.vmap(wrapped(both, form), in_axes=(None, 0), axis_name="i")
        by_w, by_x = f(W, X)
        close(by_w, np.broadcast_to(BY_W.sum(0), X.shape))
    else:
        by_w, by_x = f(W, X)
        close(by_w, BY_W.sum(0))
    close(by_x, BY_X)


def test_without_the_name_each_index_has_its_own(form):
    both = wrapped(sw.grad(loss, (0, 1)), form)
    by_w, by_x = sw.vmap(both, in_axes=(None, 0), axis_name="i")(W, X)
    close(by_w, BY_W)
    close(by_x, BY_X)


def test_a_mapped_argument_is_not_summed():
    ws = np.stack([W] * 8)
    by_w = sw.vmap(sw.grad(loss, axis_name="i"), axis_name="i")(ws, X)
    close(by_w, BY_W)


@pytest.mark.parametrize("resources", everyday([{}, {"i": "x"}, {"i": ("y", "x")}], 3), ids=str)
def test_over_devices(resources, form):
    both = wrapped(sw.value_and_grad(loss, (0, 1), reduce_axes=("i",)), form)
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    # the type system assumes that results of a cond with row predicates differ by row
    out = ["i", ...] if form == "cond" else {}
    with mesh:
        f = xmap(both, ({}, ["i", ...]), (["i"], (out, ["i", ...])), axis_resources=resources)
        value, (by_w, by_x) = f(W, X)
    close(value, (V[:, 0] - 1) ** 2)
    close(by_w, np.broadcast_to(BY_W.sum(0), by_w.shape))
    close(by_x, BY_X)


def test_where_types_say_what_varies_gradients_are_sums_already():
    mesh = Mesh(np.array(sw.devices()), ("i",))
    f = sw.shard_map(
        lambda w, x: sw.grad(loss, axis_name="i")(w, x[0]),
        mesh=mesh,
        in_specs=(P(), P("i")),
        out_specs=P(),
    )
    close(f(W, X), BY_W.sum(0))


@pytest.mark.parametrize("names", ["i", "j", ("i", "j"), ["j", "i"]], ids=str)
def test_some_of_several_axes(names):
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    v = x @ W - 1
    per_index = 2 * v[..., None] * x
    inner = sw.vmap(sw.grad(loss, axis_name=names), in_axes=(None, 0), axis_name="j")
    found = sw.vmap(inner, in_axes=(None, 0), axis_name="i")(W, x)
    over = tuple({"i": 0, "j": 1}[n] for n in names)
    close(found, np.broadcast_to(per_index.sum(over, keepdims=True), x.shape))


def test_vjp():
    def f(w, x):
        _, back = sw.vjp(lambda w: jnp.stack([loss(w, x), 2 * loss(w, x)]), w, axis_name="i")
        return back(jnp.ones(2))[0]

    found = sw.vmap(f, in_axes=(None, 0), out_axes=None, axis_name="i")(W, X)
    close(found, 3 * BY_W.sum(0))


def test_a_loss_with_collectives():
    """The gradient is the gradient of the sum of all losses."""

    def of_all(w, x):
        return lax.pmean(loss(w, x), "i") * x[0]

    found = sw.vmap(
        sw.grad(of_all, axis_name="i"), in_axes=(None, 0), out_axes=None, axis_name="i"
    )(W, X)
    close(found, BY_W.mean(0) * X[:, 0].sum())


def test_trees_and_aux():
    params = {"w": W, "n": np.int32(3)}

    def f(p, x):
        return loss(p["w"], x), p["n"]

    grad = sw.grad(f, has_aux=True, allow_int=True, axis_name="i")
    found, aux = sw.vmap(grad, in_axes=(None, 0), out_axes=None, axis_name="i")(params, X)
    close(found["w"], BY_W.sum(0))
    assert aux == 3


def test_derivatives_of_it():
    """A second derivative, and a derivative through the map."""

    def f(w):
        return sw.vmap(
            sw.grad(loss, axis_name="i"), in_axes=(None, 0), out_axes=None, axis_name="i"
        )(w, X)

    close(sw.jacfwd(f)(W), 2 * X.T @ X)
    close(sw.jacrev(f)(W), 2 * X.T @ X)


def test_errors():
    assert message(NameError, lambda: sw.grad(loss, axis_name="k")(W, X[0])) == (
        "shardwise.grad: unbound axis name: k. The axes in scope are: none. To bind an axis name, "
        "wrap the call in a map: `shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`."
    )
    with pytest.raises(NotImplementedError) as refused:
        sw.pmap(sw.grad(loss, axis_name="i"), axis_name="i", in_axes=(None, 0))(W, X)
    assert str(refused.value) == (
        "[shared_sum] whether an argument is invarying along 'i' is unknown inside a shard_map "
        "with check_vma=False or a pmap. Leave check_vma on, so that derivatives with respect to "
        "invarying values are already summed; or leave out axis_name, and sum with "
        "`shardwise.lax.psum`."
    )

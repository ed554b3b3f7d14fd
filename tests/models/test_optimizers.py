"""Optimizers against jax's, on pytrees, under jit, and sharded over devices."""

import inspect

import jax
import numpy as np
import pytest
from jax.example_libraries import optimizers as theirs

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.example_libraries import optimizers as ours
from tests.helpers.everyday import everyday

MAKERS = {
    "sgd": (0.1,),
    "momentum": (0.1, 0.9),
    "nesterov": (0.1, 0.9),
    "adagrad": (0.1,),
    "rmsprop": (0.1,),
    "rmsprop_momentum": (0.1,),
    "adam": (0.1,),
    "adamax": (0.1,),
    "sm3": (0.1,),
}
SCHEDULES = {
    "constant": (0.1,),
    "exponential_decay": (0.1, 3, 0.5),
    "inverse_time_decay": (0.1, 3, 0.5),
    "polynomial_decay": (0.1, 5, 0.01, 2.0),
    "piecewise_constant": ([1, 3], [0.3, 0.2, 0.1]),
}
PARAMS = {
    "w": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3),
    "b": [np.float32([1, 0, -2]), np.float32(0.5)],
}


def trained(lib, root, name, args, steps=4):
    init, update, get_params = getattr(lib, name)(*args)
    state = init(root.tree.map(root.numpy.asarray, PARAMS))
    for i in range(steps):
        grads = root.tree.map(lambda x: 2 * x - 0.25, get_params(state))
        state = update(i, grads, state)
    return root.tree.leaves(get_params(state))


def equal(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", everyday(MAKERS, 4))
def test_steps_are_those_of_jax(name):
    equal(trained(ours, sw, name, MAKERS[name]), trained(theirs, jax, name, MAKERS[name]))


def test_sm3_of_matrices_is_that_of_jax_and_takes_scalars():
    w, g = PARAMS["w"], np.float32([[1, 2, 3], [0, -1, 5]])
    found = []
    for lib in (ours, theirs):
        init, update, get_params = lib.sm3(0.1)
        state = init(w)
        for i in range(3):
            state = update(i, g, state)
        found.append(get_params(state))
    equal([found[0]], [found[1]])
    init, update, get_params = ours.sm3(0.1)
    assert get_params(update(0, jnp.float32(2.0), init(jnp.float32(1.0)))).shape == ()


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_jax(name):
    a, b = getattr(ours, name)(*SCHEDULES[name]), getattr(theirs, name)(*SCHEDULES[name])
    equal([a(i) for i in range(7)], [b(i) for i in range(7)])
    equal([ours.inverse_time_decay(1.0, 3, 0.5, True)(jnp.float32(4))], [1 / 1.5])
    equal(trained(ours, sw, "adam", (a,)), trained(theirs, jax, "adam", (b,)))


def test_states_go_through_jit_and_stay_split():
    mesh = sw.make_mesh((4,), ("x",))
    place = sw.NamedSharding(mesh, sw.P("x"))
    init, update, get_params = ours.adam(0.1)
    w = np.arange(8, dtype=np.float32)
    state = init({"w": sw.device_put(w, place)})
    step = sw.jit(update)
    whole = init({"w": w})
    for i in range(2):
        state = step(i, {"w": get_params(state)["w"] + 1}, state)
        whole = update(i, {"w": get_params(whole)["w"] + 1}, whole)
    assert get_params(state)["w"].sharding.spec == sw.P("x")
    equal([get_params(state)["w"]], [get_params(whole)["w"]])


def test_norms_and_states_in_pieces():
    tree = sw.tree.map(jnp.asarray, PARAMS)
    equal([ours.l2_norm(tree)], [theirs.l2_norm(PARAMS)])
    cut, wanted = ours.clip_grads(tree, 0.5), theirs.clip_grads(PARAMS, 0.5)
    equal(sw.tree.leaves(cut), jax.tree.leaves(wanted))
    state = ours.adam(0.1).init_fn(tree)
    marked = ours.unpack_optimizer_state(state)
    assert isinstance(marked["w"], ours.JoinPoint)
    again = ours.pack_optimizer_state(marked)
    assert again.tree_def == state.tree_def and again.subtree_defs == state.subtree_defs
    equal(sw.tree.leaves(again), sw.tree.leaves(state))


def test_mistakes():
    init, update, _ = ours.sgd(0.1)
    with pytest.raises(TypeError) as error:
        update(0, [1.0], init(1.0))
    assert str(error.value) == (
        "optimizer update: the gradients must have the pytree structure of the parameters, "
        "PyTreeDef(*); got PyTreeDef([*])."
    )
    broken = ours.optimizer(lambda: (lambda x: x, lambda i, g, x: (x, x), lambda x: x))()
    with pytest.raises(TypeError, match="a state with the pytree structure of its argument"):
        broken.update_fn(0, 1.0, broken.init_fn(1.0))
    with pytest.raises(TypeError, match="a step size must be a number, or a function from"):
        ours.sgd(np.ones(2))
    with pytest.raises(ValueError, match="got 2 values and 2 boundaries"):
        ours.piecewise_constant([1, 2], [1, 2])
    with pytest.raises(ValueError, match="takes sequences"):
        ours.piecewise_constant(1, [1, 2])
    with pytest.raises(TypeError, match="whose leaves are all JoinPoints"):
        ours.pack_optimizer_state([1])


@pytest.mark.parametrize("name", [*MAKERS, *SCHEDULES, "optimizer", "l2_norm", "clip_grads"])
def test_arguments_have_the_names_of_jaxs(name):
    a, b = (inspect.signature(getattr(lib, name)).parameters for lib in (ours, theirs))
    assert [(p.name, p.default) for p in a.values()] == [(p.name, p.default) for p in b.values()]

"""Layers against jax's, with the same keys and parameters."""

import inspect

import jax
import numpy as np
import pytest
from jax.example_libraries import stax as theirs

import shardwise as sw
from shardwise.example_libraries import optimizers
from shardwise.example_libraries import stax as ours
from tests.helpers.everyday import everyday

IMAGES = np.random.default_rng(0).normal(size=(2, 6, 5, 3)).astype(np.float32)
LAYERS = {
    "Dense": lambda s: s.Dense(4),
    "Conv": lambda s: s.Conv(4, (3, 2), (2, 1), "SAME"),
    "ConvTranspose": lambda s: s.ConvTranspose(2, (3, 3), (2, 2)),
    "GeneralConv": lambda s: s.GeneralConv(("NCHW", "OIHW", "NHWC"), 2, (1, 3)),
    "BatchNorm": lambda s: s.BatchNorm(),
    "scaled": lambda s: s.BatchNorm(center=False),
    "centered": lambda s: s.BatchNorm(scale=False),
    "of one axis": lambda s: s.BatchNorm(0),
    "MaxPool": lambda s: s.MaxPool((2, 2), (2, 2)),
    "SumPool": lambda s: s.SumPool((2, 3)),
    "AvgPool": lambda s: s.AvgPool((2, 2), padding="SAME"),
    "NCHW": lambda s: s.AvgPool((2, 2), spec="NCHW"),
    "elementwise": lambda s: s.serial(
        s.Tanh,
        s.Relu,
        s.Exp,
        s.Softplus,
        s.Sigmoid,
        s.Elu,
        s.LeakyRelu,
        s.Selu,
        s.Gelu,
        s.Softmax,
        s.LogSoftmax,
        s.Identity,
    ),
    "fans": lambda s: s.serial(
        s.FanOut(3), s.parallel(s.Dense(2), s.Identity, s.Dense(1)), s.FanInConcat(), s.Flatten
    ),
    "sums": lambda s: s.serial(s.FanOut(2), s.parallel(s.Relu, s.Dense(3)), s.FanInSum),
    "by shape": lambda s: s.shape_dependent(lambda shape: s.Dense(shape[1])),
    "Dropout": lambda s: s.serial(s.Dropout(0.5), s.Dropout(0.5, mode="test")),
}


@pytest.mark.parametrize("name", everyday(LAYERS, 3))
def test_layers(name):
    found = []
    for lib, root in ((ours, sw), (theirs, jax)):
        init, apply = LAYERS[name](lib)
        shape, params = init(root.random.key(1), IMAGES.shape)
        out = apply(params, IMAGES, rng=root.random.key(2))
        assert tuple(shape) == out.shape
        found.append([*root.tree.leaves(params), out])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-5)


def test_a_network_learns_and_takes_any_batch():
    init, apply = ours.serial(
        ours.Conv(4, (3, 3), padding="SAME"),
        ours.Relu,
        ours.MaxPool((2, 2)),
        ours.Flatten,
        ours.Dense(2),
        ours.LogSoftmax,
    )
    shape, params = init(sw.random.key(0), (-1, 6, 5, 3))
    assert shape == (-1, 2)
    first, update, get = optimizers.adam(1e-2)
    state, losses = first(params), []
    loss = lambda p, x: -apply(p, x)[:, 0].mean()  # noqa: E731
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    images = sw.device_put(IMAGES, sw.NamedSharding(mesh, sw.P("x")))
    step = sw.jit(lambda i, s: (update(i, sw.grad(loss)(get(s), images), s), loss(get(s), images)))
    for i in range(5):
        state, value = step(i, state)
        losses.append(float(value))
    assert losses[-1] < losses[0]


def test_dropout_needs_a_key():
    with pytest.raises(ValueError, match="Dropout needs a key: call the apply function with one"):
        ours.Dropout(0.5)[1]((), IMAGES)


@pytest.mark.parametrize(
    "name",
    [n for n in dir(ours) if n[0] != "_" and callable(getattr(ours, n)) and hasattr(theirs, n)],
)
def test_arguments_have_the_names_of_jaxs(name):
    a, b = (inspect.signature(getattr(lib, name)).parameters for lib in (ours, theirs))
    assert [*a] == [*b]

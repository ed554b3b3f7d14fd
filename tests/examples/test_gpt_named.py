"""The transformer with logical axes: equal losses per strategy, by the table alone, less code."""

import ast
import importlib
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import named
from shardwise.explain import collectives
from shardwise.sharding import AxisType, Mesh

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEVICES = np.array(sw.devices()[:8])
BOTH = {"batch": "data", "heads": "model", "mlp": "model", "embed": named.stored("data")}


@pytest.fixture(scope="module")
def models():
    """(gpt_model, gpt_named)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("gpt_model"), importlib.import_module("gpt_named")


@pytest.fixture(scope="module")
def config(models):
    return models[0].Config(layers=2, width=32, heads=8, context=16, batch=16, steps=20)


def batches(config):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (config.batch, config.context + 1), np.int32) for _ in range(3)]


@pytest.fixture(scope="module")
def plain(models, config):
    """The losses of `gpt_model.py` on one device, from the same start."""
    model, ours = models
    state = ours.init_state(config)

    def unstacked(tree):
        flat = {"qkv": (32, 96), "out": (32, 32), "up": (32, 128), "down": (128, 32)}
        blocks = [{name: w[i].reshape(flat[name]) for name, w in tree["blocks"].items()}
                  for i in range(config.layers)]  # fmt: skip
        return tree | {"blocks": blocks}

    state |= {name: unstacked(state[name]) for name in ("parameters", "mean", "square")}
    mesh = Mesh(DEVICES[:1].reshape(1, 1), ("data", "model"))
    step = sw.jit(partial(model.train_step, config=config, mesh=mesh))
    losses = []
    for windows in batches(config):
        state, value = step(state, windows)
        losses.append(float(value))
    return losses


def run(ours, config, table, mesh):
    """(losses, collectives as (kind, bytes), the fraction of parameters that a device stores)"""
    losses = []
    with named.rules(table, mesh):
        state, step = ours.laid_out(config)
        weights = sw.tree.leaves(state["parameters"])
        share = sum(w.addressable_shards[0].data.size for w in weights) / sum(
            w.size for w in weights
        )
        for windows in batches(config):
            where = named.shardings("batch seq")
            state, value = step(state, sw.device_put(windows, where))
            losses.append(float(value))
        for kept in state["mean"], state["square"]:  # sharded like the parameters
            for moment, weight in zip(sw.tree.leaves(kept), weights, strict=True):
                assert moment.sharding == weight.sharding
    return losses, [(c.kind, c.bytes * c.runs) for c in collectives(step.as_text())], share


STRATEGIES = ["one device", "data parallel", "tensor parallel", "fully sharded"]


@pytest.mark.sweep
@pytest.mark.parametrize("way", STRATEGIES)
def test_each_way_has_the_losses_of_one_device_and_its_own_collectives(models, config, plain, way):
    ours = models[1]
    mesh = Mesh(DEVICES[: 1 if way == "one device" else 8], ("all",))
    losses, sent, share = run(ours, config, ours.STRATEGIES[way], mesh)
    np.testing.assert_allclose(losses, plain, rtol=2e-5)
    kinds = {kind for kind, _ in sent}
    total = 4 * models[0].count_parameters(ours.init_parameters(config))  # bytes of parameters
    reduced, gathered = (sum(n for k, n in sent if k == kind) for kind in KINDS)
    tokens = 4 * config.batch * config.context  # bytes of a float for each
    if way == "one device":
        assert kinds == set()
        assert share == 1
    elif way == "data parallel":  # gradients and the loss, nothing else
        assert kinds == {"all-reduce"}
        assert total <= reduced <= total + 64
        assert share == 1
    elif way == "tensor parallel":  # two sums in a layer forward, two backward; no gradients
        assert kinds == {"all-reduce"}
        stream = tokens * config.width
        assert 4 * config.layers * stream <= reduced <= (4 * config.layers + 4) * stream
        assert share < 0.25
    else:  # each weight is gathered where it is used, its gradient summed
        assert kinds == {"all-reduce", "all-gather"}
        assert total <= gathered <= 2 * total
        assert total <= reduced <= total + 64
        assert share == 1 / 8


KINDS = ("all-reduce", "all-gather")


@pytest.mark.sweep
def test_two_ways_at_once(models, config, plain):
    ours = models[1]
    mesh = Mesh(DEVICES.reshape(4, 2), ("data", "model"))
    losses, sent, share = run(ours, config, ours.WHOLE | BOTH, mesh)
    np.testing.assert_allclose(losses, plain, rtol=2e-5)
    assert {kind for kind, _ in sent} >= set(KINDS)
    assert share < 1 / 4


@pytest.mark.sweep
def test_shardings_in_types(models, config, plain):
    """Over an Explicit axis only the communication in the program is done."""
    ours = models[1]
    mesh = Mesh(DEVICES, ("all",), axis_types=AxisType.Explicit)
    losses, sent, share = run(ours, config, ours.STRATEGIES["fully sharded"], mesh)
    np.testing.assert_allclose(losses, plain, rtol=2e-5)
    assert {kind for kind, _ in sent} >= set(KINDS)
    assert share == 1 / 8


def test_no_axis_is_mistaken_for_another(models, config):
    ours = models[1]
    state = sw.eval_shape(partial(ours.init_state, config))
    windows = sw.ShapeDtypeStruct((config.batch, config.context + 1), np.int32)
    named.check(partial(ours.train_step, config=config), state, windows)


def code_size(path, names):
    """The number of nodes of the syntax tree in the definitions of these names, less docstrings."""
    size = 0
    for node in ast.parse(path.read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else node
        if (getattr(target, "name", None) or getattr(target, "id", None)) in names:
            size += len([*ast.walk(node)])
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                size -= len([*ast.walk(node.body[0])])
    return size


def test_it_takes_less_code():
    both = {"init_parameters", "attention", "mlp", "logits", "loss", "init_state", "train_step"}
    theirs = code_size(EXAMPLES / "gpt_model.py", both | {"parameter_specs", "state_shardings"})
    words = {"BLOCK", "WEIGHTS", "Block", "Weights", "Tokens", "Stream", "WHOLE"}
    ours = code_size(EXAMPLES / "gpt_named.py", both | words | {"sizes", "block"})
    assert 0 < ours < theirs


@pytest.mark.sweep
def test_it_runs():
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "gpt_named.py"), "data parallel"],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("data parallel   losses ")
    assert done.stdout.count("\n") == 1
    assert "all-reduce of" in done.stdout

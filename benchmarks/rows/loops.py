"""A user's training loop over 8 devices: batches from NumPy, donated state, metrics, checkpoints.

A small network, so that the loop is mostly the front end: every step passes a batch of NumPy arrays
and donates the state; every tenth step reads the loss; every hundredth writes a checkpoint, of each
library by the same code, `numpy.savez` of the values.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.libs import DEVICES, Lib
from benchmarks.runner import Row

STEPS, METRICS = 100, 10  # steps for each checkpoint, and for each reading of the loss
BATCH, WIDTH, LAYERS = 64, 64, 6


def parameters() -> dict[str, dict[str, Any]]:
    rng = numpy.random.default_rng(0)
    return {
        f"layer_{i}": {
            "w": rng.normal(0, 0.1, (WIDTH, WIDTH)).astype("float32"),
            "b": numpy.zeros(WIDTH, "float32"),
        }
        for i in range(LAYERS)
    }


def make_step(lib: Lib) -> Callable[..., Any]:
    tree = lib.root.tree

    def loss_of(params: Any, x: Any, y: Any) -> Any:
        for layer in params.values():
            x = lib.np.tanh(x @ layer["w"] + layer["b"])
        return ((x - y) ** 2).mean()

    def step(state: Any, x: Any, y: Any) -> Any:
        loss, grads = lib.root.value_and_grad(loss_of)(state["params"], x, y)
        moments = tree.map(lambda m, g: 0.9 * m + g, state["moments"], grads)
        params = tree.map(lambda p, m: p - 0.01 * m, state["params"], moments)
        return {"params": params, "moments": moments}, loss

    return step


def training(lib: Lib) -> Callable[[], Any]:
    mesh = lib.mesh(d=DEVICES)
    whole, rows = lib.named(mesh), lib.named(mesh, "d")
    step = lib.root.jit(
        make_step(lib),
        in_shardings=(whole, rows, rows),
        out_shardings=(whole, whole),
        donate_argnums=0,
    )
    params = parameters()
    moments = {k: {n: 0 * v for n, v in layer.items()} for k, layer in params.items()}
    state = lib.root.device_put({"params": params, "moments": moments}, whole)
    rng = numpy.random.default_rng(1)
    data = rng.normal(size=(STEPS, 2, BATCH, WIDTH)).astype("float32")

    def hundred_steps() -> list[float]:
        nonlocal state
        losses = []
        for i in range(STEPS):
            x, y = data[i]
            state, loss = step(state, x, y)
            if i % METRICS == METRICS - 1:
                losses.append(float(loss))
        numpy.savez(io.BytesIO(), *map(numpy.asarray, lib.root.tree.leaves(state)))
        return losses

    return hundred_steps


ROWS = (
    Row("loop.steps", 1.0, training, clock="wall", per=STEPS),
    Row("loop.front_end", 0.7, training, clock="thread", per=STEPS),
)

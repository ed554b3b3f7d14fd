"""A small GPT with its AdamW step, in plain NumPy-style code: one source for both libraries.

    step = make_step(lib, TRACE)
    params, moments, loss = step(params, moments, tokens, targets)

Layers are a Python loop over a list and parameters are nested dicts, so that the traced program
grows with the depth: a realistic load for a front end, not the most favorable one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from benchmarks.libs import Lib


@dataclass(frozen=True)
class Config:
    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    batch: int


# About 4,800 equations in JAX, value_and_grad and AdamW together. The arrays are tiny: these
# rows trace and lower, and compile nothing.
TRACE = Config(layers=12, width=32, heads=4, vocabulary=64, length=16, batch=8)
# Small enough to compile in a second or two, large enough that a step is mostly products.
STEADY = Config(layers=2, width=128, heads=4, vocabulary=512, length=64, batch=16)

RATES = {"learning": 1e-3, "decay": 0.01, "first": 0.9, "second": 0.99, "epsilon": 1e-8}


def initial(config: Config) -> tuple[Any, Any]:
    """NumPy parameters and the moments of AdamW with its step count: equal for all libraries."""
    random = numpy.random.default_rng(0)
    width, inner = config.width, 4 * config.width

    def matrix(*shape: int) -> numpy.ndarray:
        return (random.standard_normal(shape) * 0.02).astype(numpy.float32)

    def norm() -> dict[str, numpy.ndarray]:
        return {"scale": numpy.ones(width, "float32"), "bias": numpy.zeros(width, "float32")}

    def layer() -> dict[str, Any]:
        return {
            "norm_1": norm(),
            "query": matrix(width, width),
            "key": matrix(width, width),
            "value": matrix(width, width),
            "out": matrix(width, width),
            "norm_2": norm(),
            "up": matrix(width, inner),
            "down": matrix(inner, width),
        }

    params = {
        "tokens": matrix(config.vocabulary, width),
        "positions": matrix(config.length, width),
        "layers": [layer() for _ in range(config.layers)],
        "norm": norm(),
    }
    moments = {
        "first": zeros_like(params),
        "second": zeros_like(params),
        "count": numpy.zeros((), "int32"),
    }
    return params, moments


def zeros_like(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: zeros_like(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [zeros_like(value) for value in tree]
    return numpy.zeros_like(tree)


def batch(config: Config) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Tokens and targets, int32[batch, length]."""
    random = numpy.random.default_rng(1)
    shape = (config.batch, config.length + 1)
    text = random.integers(0, config.vocabulary, shape).astype(numpy.int32)
    return text[:, :-1].copy(), text[:, 1:].copy()


def layer_norm(lib: Lib, weights: Any, x: Any) -> Any:
    mean = lib.np.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    variance = lib.np.mean(centred * centred, axis=-1, keepdims=True)
    return centred * lib.lax.rsqrt(variance + 1e-5) * weights["scale"] + weights["bias"]


def attention(lib: Lib, config: Config, layer: Any, x: Any) -> Any:
    np = lib.np
    rows, length, width = x.shape
    split = (rows, length, config.heads, width // config.heads)
    query = (x @ layer["query"]).reshape(split)  # f32[batch, length, heads, head]
    key = (x @ layer["key"]).reshape(split)
    value = (x @ layer["value"]).reshape(split)
    scores = np.einsum("bqhd,bkhd->bhqk", query, key) / split[-1] ** 0.5
    causal = np.tril(np.ones((length, length), dtype=bool))
    weights = lib.nn.softmax(np.where(causal, scores, -1e9), axis=-1)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, value)
    return mixed.reshape(rows, length, width) @ layer["out"]


def logits(lib: Lib, config: Config, params: Any, tokens: Any) -> Any:
    x = params["tokens"][tokens] + params["positions"]  # f32[batch, length, width]
    for layer in params["layers"]:
        x = x + attention(lib, config, layer, layer_norm(lib, layer["norm_1"], x))
        inner = layer_norm(lib, layer["norm_2"], x) @ layer["up"]
        x = x + lib.nn.gelu(inner) @ layer["down"]
    return layer_norm(lib, params["norm"], x) @ params["tokens"].T


def make_loss(lib: Lib, config: Config) -> Callable[[Any, Any, Any], Any]:
    def loss(params: Any, tokens: Any, targets: Any) -> Any:
        log_probabilities = lib.nn.log_softmax(logits(lib, config, params, tokens), axis=-1)
        wanted = lib.nn.one_hot(targets, config.vocabulary)
        return -lib.np.mean(lib.np.sum(log_probabilities * wanted, axis=-1))

    return loss


def make_step(
    lib: Lib, config: Config, learning: float = RATES["learning"], axis: str | None = None
) -> Callable[..., Any]:
    """A new function `step(params, moments, tokens, targets) -> (params, moments, loss)`.

    `learning` is closed over, so that two steps with different rates are different programs to
    caches that compare functions by their code.

    With `axis` it is one device's part of a step, on its rows of the batch: losses and gradients
    are averaged over that axis.
    """
    np, tree = lib.np, lib.root.tree
    first, second = RATES["first"], RATES["second"]
    loss = make_loss(lib, config)

    def step(params: Any, moments: Any, tokens: Any, targets: Any) -> Any:
        own = params if axis is None else lib.lax.pcast(params, axis, to="varying")
        value, grads = lib.root.value_and_grad(loss)(own, tokens, targets)
        if axis is not None:
            value, grads = lib.lax.pmean((value, grads), axis)
        count = moments["count"] + 1
        power = count.astype(np.float32)
        means = tree.map(lambda m, g: first * m + (1 - first) * g, moments["first"], grads)
        squares = tree.map(lambda v, g: second * v + (1 - second) * g * g, moments["second"], grads)

        def update(p: Any, m: Any, v: Any) -> Any:
            unbiased = m / (1 - first**power)
            scale = np.sqrt(v / (1 - second**power)) + RATES["epsilon"]
            return p - learning * (unbiased / scale + RATES["decay"] * p)

        params = tree.map(update, params, means, squares)
        return params, {"first": means, "second": squares, "count": count}, value

    return step

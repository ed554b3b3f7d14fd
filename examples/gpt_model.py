"""A decoder-only transformer and AdamW in plain array code: parameters are nested dicts.

The layout over a mesh with the axes `data` and `model`:

    tokens            batch over data
    qkv, up           columns over model: each device computes its own heads and hidden units
    out, down         rows over model: each device adds a partial sum, XLA inserts the all-reduce
    embed, position   replicated
    AdamW's moments   sharded like the parameters

Nothing here calls a collective: the arguments carry their shardings and the compiler does the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax, nn, random
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

VOCABULARY = 256  # bytes


@dataclass(frozen=True)
class Config:
    """Everything that determines the numbers of a run, which does not include `--mesh`."""

    layers: int = 2
    width: int = 128
    heads: int = 4
    context: int = 96
    batch: int = 16
    steps: int = 500
    rate: float = 3e-3
    seed: int = 0


# ---- parameters ----------------------------------------------------------------------------------


def init_parameters(config: Config) -> dict:
    """Random normal parameters, variance 1 / fan-in, smaller for projections into the residual."""
    width, residual = config.width, 1 / math.sqrt(2 * config.layers)
    shapes = {
        "qkv": ((width, 3 * width), 1.0),
        "out": ((width, width), residual),
        "up": ((width, 4 * width), 1.0),
        "down": ((4 * width, width), residual),
    }
    keys = iter(random.split(random.PRNGKey(config.seed), 3 + 4 * config.layers))

    def matrix(shape: tuple[int, int], gain: float = 1.0):
        return random.normal(next(keys), shape) * (gain / math.sqrt(shape[0]))

    return {
        "embed": random.normal(next(keys), (VOCABULARY, width)) * 0.05,
        "position": random.normal(next(keys), (config.context, width)) * 0.02,
        "blocks": [
            {name: matrix(shape, gain) for name, (shape, gain) in shapes.items()}
            for _ in range(config.layers)
        ],
        "head": matrix((width, VOCABULARY)),
    }


def parameter_specs(config: Config) -> dict:
    """The `PartitionSpec` of every parameter, in the same nested dicts."""
    columns, rows = P(None, "model"), P("model", None)
    block = {"qkv": columns, "out": rows, "up": columns, "down": rows}
    return {"embed": P(), "position": P(), "blocks": [block] * config.layers, "head": P()}


def count_parameters(parameters: dict) -> int:
    return sum(math.prod(leaf.shape) for leaf in sw.tree.leaves(parameters))


# ---- model ---------------------------------------------------------------------------------------


def normalize(x):
    """Root-mean-square norm without a learned scale."""
    return x * lax.rsqrt(snp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attention(weights: dict, x, config: Config):
    """Causal self-attention; the heads are split over `model`."""
    time, heads, size = config.context, config.heads, config.width // config.heads
    qkv = (x @ weights["qkv"]).reshape(-1, time, heads, 3 * size)  # f32[b@data, t, h@model, 3s]
    q, k, v = (
        qkv[..., i * size : (i + 1) * size].transpose(0, 2, 1, 3) for i in range(3)
    )  # f32[b@data, h@model, t, s]
    scores = q @ k.transpose(0, 1, 3, 2) * (size**-0.5)
    causal = snp.arange(time)[:, None] >= snp.arange(time)[None, :]
    mixed = nn.softmax(snp.where(causal, scores, -1e9), axis=-1) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(x.shape) @ weights["out"]


def mlp(weights: dict, x):
    return nn.gelu(x @ weights["up"]) @ weights["down"]


def logits(parameters: dict, tokens, config: Config, mesh: Mesh):
    """`tokens`: int32[batch@data, context]. Returns f32[batch * context @data, 256].

    Activations are two-dimensional, one row per token: XLA's CPU matrix products are then about
    twice as fast in the backward pass.
    """
    rows = NamedSharding(mesh, P("data", None))
    embedded = nn.one_hot(tokens, VOCABULARY) @ parameters["embed"] + parameters["position"]
    x = embedded.reshape(-1, config.width)  # f32[tokens@data, width]
    for weights in parameters["blocks"]:
        x = x + attention(weights, normalize(x), config)
        x = lax.with_sharding_constraint(x, rows)
        x = x + mlp(weights, normalize(x))
        x = lax.with_sharding_constraint(x, rows)
    return normalize(x) @ parameters["head"]


def loss(parameters: dict, windows, config: Config, mesh: Mesh):
    """Mean nats per byte. `windows`: int32[batch@data, context + 1]."""
    predicted = nn.log_softmax(logits(parameters, windows[:, :-1], config, mesh), axis=-1)
    target = nn.one_hot(windows[:, 1:].reshape(-1), VOCABULARY)
    return -snp.mean(snp.sum(predicted * target, axis=-1))


# ---- AdamW ---------------------------------------------------------------------------------------


def init_state(config: Config) -> dict:
    """The saved state of a run: parameters, both moments, and the number of steps taken."""
    parameters = init_parameters(config)
    return {
        "parameters": parameters,
        "mean": sw.tree.map(snp.zeros_like, parameters),
        "square": sw.tree.map(snp.zeros_like, parameters),
        "step": snp.zeros((), snp.int32),
    }


def state_shardings(config: Config, mesh: Mesh) -> dict:
    named = sw.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        parameter_specs(config),
        is_leaf=lambda x: isinstance(x, P),
    )
    return {"parameters": named, "mean": named, "square": named, "step": NamedSharding(mesh, P())}


def learning_rate(step, config: Config):
    """Linear warm-up over the first 5 % of the steps, then a cosine down to a tenth."""
    warm_up = max(1, config.steps // 20)
    progress = snp.clip((step - warm_up) / max(1, config.steps - warm_up), 0.0, 1.0)
    cosine = 0.55 + 0.45 * snp.cos(math.pi * progress)
    return config.rate * snp.minimum((step + 1) / warm_up, cosine)


def adamw(state: dict, gradients: dict, config: Config) -> dict:
    """One step (Loshchilov and Hutter, 2019) with b1 = 0.9, b2 = 0.99 and decay 0.1."""
    b1, b2, decay, epsilon = 0.9, 0.99, 0.1, 1e-8
    count = state["step"] + 1
    rate = learning_rate(state["step"], config)
    mean = sw.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mean"], gradients)
    square = sw.tree.map(lambda s, g: b2 * s + (1 - b2) * g * g, state["square"], gradients)
    mean_scale, square_scale = 1 / (1 - b1**count), 1 / (1 - b2**count)

    def update(p, m, s):
        direction = m * mean_scale / (snp.sqrt(s * square_scale) + epsilon)
        return p - rate * (direction + decay * p)

    parameters = sw.tree.map(update, state["parameters"], mean, square)
    return {"parameters": parameters, "mean": mean, "square": square, "step": count}


def train_step(state: dict, windows, config: Config, mesh: Mesh):
    """Returns the next state and the loss before the step."""
    value, gradients = sw.value_and_grad(loss)(state["parameters"], windows, config, mesh)
    return adamw(state, gradients, config), value


# ---- text ----------------------------------------------------------------------------------------


def next_bytes(parameters: dict, window, key, temperature: float, config: Config, mesh: Mesh):
    """Samples one byte after each window and slides the windows by one.

    `window`: int32[rows@data, context]. Returns the slid windows, the bytes and the next key.
    """
    key, draw = random.split(key)
    everywhere = logits(parameters, window, config, mesh)
    last = everywhere.reshape(*window.shape, VOCABULARY)[:, -1, :]
    chosen = random.categorical(draw, last / temperature, axis=-1).astype(snp.int32)
    return snp.concatenate([window[:, 1:], chosen[:, None]], axis=1), chosen, key

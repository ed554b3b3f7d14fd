"""The transformer of `gpt_model.py` with logical axes, and strategies to shard it.

    python examples/gpt_named.py                    eight devices, all strategies in order
    python examples/gpt_named.py "fully sharded"    this strategy only

No function here refers to a mesh or a spec. Each names its dimensions by logical axes; one line of
`STRATEGIES` maps these to mesh axes. The program runs a few steps with each strategy from the same
state: the losses are the same, the collectives depend on the strategy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import numpy as np
from gpt_model import VOCABULARY, Config, adamw, normalize
from gpt_text import read_corpus, training_windows

import shardwise as sw
import shardwise.numpy as snp
from shardwise import Array, lax, named, nn, random
from shardwise.explain import collectives, summarize
from shardwise.named import einsum, stored
from shardwise.sharding import Mesh

BLOCK = named.parameters(
    {"qkv": "embed heads qkv", "out": "heads head embed", "up": "embed mlp", "down": "mlp embed"}
)
WEIGHTS = named.parameters(
    {
        "embed": "vocab embed",
        "position": "seq embed",
        "blocks": {name: f"layers {words}" for name, words in BLOCK.items()},
        "head": "embed vocab",
    }
)
Block = Annotated[dict, BLOCK]
Weights = Annotated[dict, WEIGHTS]
Tokens = Annotated[Array, "batch seq"]
Stream = Annotated[Array, "batch seq embed"]

WHOLE = dict.fromkeys("batch seq key vocab embed heads head qkv mlp layers".split())
STRATEGIES = {
    "one device": WHOLE,
    "data parallel": WHOLE | {"batch": "all"},
    "tensor parallel": WHOLE | {"heads": "all", "mlp": "all", "vocab": "all"},
    "fully sharded": WHOLE | {"batch": "all", "embed": stored("all")},
}


# ---- parameters ----------------------------------------------------------------------------------


def sizes(config: Config) -> dict[str, int]:
    head = config.width // config.heads
    return {
        "vocab": VOCABULARY, "seq": config.context, "embed": config.width, "layers": config.layers,
        "heads": config.heads, "head": head, "qkv": 3 * head, "mlp": 4 * config.width,
    }  # fmt: skip


def init_parameters(config: Config) -> dict:
    """Random normal parameters, variance 1 / fan-in, smaller for projections into the residual."""
    width, residual = config.width, 1 / math.sqrt(2 * config.layers)
    gains = {"embed": 0.05, "position": 0.02, "head": width**-0.5, "blocks": {
        "qkv": width**-0.5, "out": residual * width**-0.5,
        "up": width**-0.5, "down": residual * (4 * width) ** -0.5,
    }}  # fmt: skip
    shapes, tree = sw.tree.flatten(named.shapes(WEIGHTS, sizes(config)))
    keys = tree.unflatten(random.split(random.PRNGKey(config.seed), len(shapes)))
    shapes = tree.unflatten(shapes)
    return sw.tree.map(lambda k, s, gain: random.normal(k, s.shape) * gain, keys, shapes, gains)


# ---- model ---------------------------------------------------------------------------------------


@named.checked
def attention(weights: Block, x: Stream) -> Stream:
    """Causal self-attention."""
    qkv = einsum("batch seq embed, embed heads qkv -> batch heads seq qkv", x, weights["qkv"])
    q, k, v = snp.split(qkv, 3, axis=-1)
    k, v = (named.rename("batch heads seq head -> batch heads key head", y) for y in (k, v))
    scores = einsum("batch heads seq head, batch heads key head -> batch heads seq key", q, k)
    causal = snp.tri(x.shape[1], dtype=bool)
    attended = nn.softmax(snp.where(causal, scores * q.shape[-1] ** -0.5, -1e9))
    mixed = einsum("batch heads seq key, batch heads key head -> batch seq heads head", attended, v)
    out = weights["out"]
    return einsum("batch seq heads head, heads head embed -> batch seq embed", mixed, out)


@named.checked
def mlp(weights: Block, x: Stream) -> Stream:
    hidden = einsum("batch seq embed, embed mlp -> batch seq mlp", x, weights["up"])
    return einsum("batch seq mlp, mlp embed -> batch seq embed", nn.gelu(hidden), weights["down"])


def block(x, weights):
    x = x + attention(weights, normalize(x))
    return x + mlp(weights, normalize(x)), None


@named.checked
def logits(parameters: Weights, tokens: Tokens) -> Annotated[Array, "batch seq vocab"]:
    chosen = nn.one_hot(tokens, VOCABULARY)
    x = einsum("batch seq vocab, vocab embed -> batch seq embed", chosen, parameters["embed"])
    x = x + named.axes(parameters["position"], "seq embed")
    x, _ = lax.scan(block, x, parameters["blocks"])
    head = parameters["head"]
    return einsum("batch seq embed, embed vocab -> batch seq vocab", normalize(x), head)


def loss(parameters: dict, windows):
    """Mean nats per byte. `windows`: int32[batch, context + 1]."""
    predicted = nn.log_softmax(logits(parameters, windows[:, :-1]), axis=-1)
    target = nn.one_hot(windows[:, 1:], VOCABULARY)
    return -snp.mean(snp.sum(predicted * target, axis=-1))


# ---- training ------------------------------------------------------------------------------------


def init_state(config: Config) -> dict:
    parameters = init_parameters(config)
    zeros = sw.tree.map(snp.zeros_like, parameters)
    return {"parameters": parameters, "mean": zeros, "square": zeros, "step": snp.int32(0)}


def train_step(state: dict, windows, config: Config):
    """Returns the next state and the loss before the step."""
    value, gradients = sw.value_and_grad(loss)(state["parameters"], windows)
    return adamw(state, gradients, config), value


def laid_out(config: Config):
    """The initial state, sharded by the rules, and the compiled step for such states."""
    make = partial(init_state, config)
    kept = named.shardings(named.like(WEIGHTS, sw.eval_shape(make)))
    state = sw.jit(make, out_shardings=kept)()
    windows = sw.ShapeDtypeStruct((config.batch, config.context + 1), np.int32,
                                  sharding=named.shardings("batch seq"))  # fmt: skip
    step = sw.jit(partial(train_step, config=config), donate_argnums=0, out_shardings=(kept, None))
    return state, step.lower(state, windows).compile()


def main(config: Config, ways: Iterable[str]) -> None:
    corpus = read_corpus()
    sw.config.update("num_cpu_devices", 8)
    devices = np.array(sw.devices("cpu")[:8])
    for way in ways:
        losses = []
        mesh = Mesh(devices[:1] if way == "one device" else devices, ("all",))
        with named.rules(STRATEGIES[way], mesh):
            state, step = laid_out(config)
            for i in range(config.steps):
                windows = training_windows(corpus, i, config.batch, config.context, config.seed)
                windows = sw.device_put(windows, named.shardings("batch seq"))
                state, value = step(state, windows)
                losses.append(f"{float(value):.4f}")
        sent = [f"{row.count} {row.kind} of {row.bytes} bytes"
                for row in summarize(collectives(step.as_text()))]  # fmt: skip
        print(f"{way:16}losses {' '.join(losses)}; {', '.join(sent) or 'no collectives'}")


if __name__ == "__main__":
    config = Config(layers=2, width=64, heads=8, context=32, batch=8, steps=3)
    main(config, sys.argv[1:] or STRATEGIES)

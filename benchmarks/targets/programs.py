"""The programs: each returns a function, the options of its `jit`, and arguments of known types.

A name is a group and a form: `gpt.fsdp8`.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import gpt
from benchmarks.rows.steps import fully_sharded, place, replicated, tensor_parallel
from benchmarks.targets.machines import MACHINES, Target

BATCH, WIDTH, EXPERTS, TOKENS = 32, 64, 8, 128


@dataclass(frozen=True)
class Compilation:
    """A function, its arguments (types with shardings), and options of `jit`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


Setup = Callable[[Target], Compilation]


# -- training steps of the GPT --


def place_like(lib: Target, tree: Any, shardings: Any = None) -> Any:
    if isinstance(tree, dict):
        return {k: place_like(lib, v, shardings and shardings[k]) for k, v in tree.items()}
    if isinstance(tree, list):
        pairs = enumerate(tree)
        return [place_like(lib, v, shardings and shardings[i]) for i, v in pairs]
    return lib.like(tree, shardings)


def gpt_on_one(lib: Target) -> Compilation:
    arguments: Any = (*gpt.initial(gpt.STEADY), *gpt.batch(gpt.STEADY))
    types = tuple([place_like(lib, part) for part in arguments])
    return Compilation(gpt.make_step(lib, gpt.STEADY), types, {})


def gpt_over(
    rule: Callable[[tuple[str, ...]], tuple[str | None, ...]],
    config: gpt.Config = gpt.STEADY,
    **axes: int,
) -> Setup:
    def setup(lib: Target) -> Compilation:
        mesh = lib.mesh(**axes)
        state = gpt.initial(config)
        params, moments = (place(part, lambda p: lib.named(mesh, *rule(p))) for part in state)
        rows = lib.named(mesh, "dp", None)
        shardings = (params, moments, rows, rows)
        arguments = (*state, *gpt.batch(config))
        types = [place_like(lib, *pair) for pair in zip(arguments, shardings, strict=True)]
        results = (params, moments, lib.named(mesh))
        options = {"out_shardings": results, "donate_argnums": (0, 1)}
        return Compilation(gpt.make_step(lib, config), tuple(types), options)

    return setup


# -- other networks --


def convolutional(lib: Target) -> Compilation:
    """A step of two convolutions with batch normalization, over a split batch."""
    np_, lax, nn = lib.np, lib.lax, lib.nn

    def block(x: Any, w: Any, scale: Any, bias: Any) -> Any:
        x = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        mean = np_.mean(x, axis=(0, 1, 2))
        variance = np_.mean(np_.square(x - mean), axis=(0, 1, 2))
        x = (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias
        return nn.relu(x)

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, scale, bias in params["blocks"]:
            x = block(x, w, scale, bias)
            x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        scores = np_.mean(x, axis=(1, 2)) @ params["out"]
        return -np_.mean(np_.sum(nn.log_softmax(scores) * nn.one_hot(y, 10), axis=-1))

    def step(params: Any, x: Any, y: Any) -> Any:
        value, grads = lib.root.value_and_grad(loss)(params, x, y)
        return lib.root.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    mesh = lib.mesh(dp=8)
    whole, rows = lib.named(mesh), lib.named(mesh, "dp")
    sizes = ((3, 3, 3, 32), (3, 3, 32, 64))
    blocks = [[lib.like(s, whole), lib.like(s[-1:], whole), lib.like(s[-1:], whole)] for s in sizes]
    params = {"blocks": blocks, "out": lib.like((64, 10), whole)}
    x, y = lib.like((BATCH, 32, 32, 3), rows), lib.like((BATCH,), rows, np.int32)
    return Compilation(step, (params, x, y), {})


def experts(lib: Target) -> Compilation:
    """The gradient of a mixture of experts: tokens go to devices of their experts, and back."""
    np_, lax, nn = lib.np, lib.lax, lib.nn
    capacity = TOKENS // EXPERTS

    def layer(w: Any, x: Any) -> Any:
        # w.up: f32[1, d, 4d], x: f32[tokens, d]
        gates = nn.softmax(x @ w["gate"], axis=-1)
        which = np_.argmax(gates, axis=-1)
        chosen = nn.one_hot(which, EXPERTS)
        number = np_.cumsum(chosen, axis=0) * chosen
        slots = nn.one_hot((number - 1).astype(np.int32), capacity) * chosen[..., None]
        sent = np_.einsum("tec,td->ecd", slots, x)
        got = lax.all_to_all(sent, "ep", 0, 1, tiled=True)  # f32[1, 8 capacity, d]
        made = np_.einsum(
            "ecf,efd->ecd", nn.gelu(np_.einsum("ecd,edf->ecf", got, w["up"])), w["down"]
        )
        back = lax.all_to_all(made, "ep", 1, 0, tiled=True)
        weight = np_.sum(gates * chosen, axis=-1, keepdims=True)
        return np_.einsum("tec,ecd->td", slots, back) * weight

    mesh = lib.mesh(ep=8)
    spec = lib.sharding.PartitionSpec
    specs = {"gate": spec(), "up": spec("ep"), "down": spec("ep")}
    mapped = lib.root.shard_map(
        layer, mesh=mesh, in_specs=(specs, spec("ep")), out_specs=spec("ep")
    )

    def loss(w: Any, x: Any) -> Any:
        return np_.sum(np_.square(mapped(w, x)))

    w = {
        "gate": lib.like((WIDTH, EXPERTS), lib.named(mesh)),
        "up": lib.like((EXPERTS, WIDTH, 4 * WIDTH), lib.named(mesh, "ep")),
        "down": lib.like((EXPERTS, 4 * WIDTH, WIDTH), lib.named(mesh, "ep")),
    }
    x = lib.like((8 * TOKENS, WIDTH), lib.named(mesh, "ep"))
    return Compilation(lib.root.grad(loss), (w, x), {})


def ring(lib: Target) -> Compilation:
    """The gradient of ring attention: keys and values travel around the devices."""
    np_, lax = lib.np, lib.lax
    size = 8
    around = [(i, (i + 1) % size) for i in range(size)]

    def attend(q: Any, k: Any, v: Any) -> Any:
        # f32[tokens, heads, d]
        def turn(carry: Any, _: Any) -> Any:
            top, total, out, k, v = carry
            scores = np_.einsum("thd,shd->hts", q, k) / q.shape[-1] ** 0.5
            new = np_.maximum(top, np_.max(scores, axis=-1))
            weights, kept = np_.exp(scores - new[..., None]), np_.exp(top - new)
            total = total * kept + np_.sum(weights, axis=-1)
            out = out * kept.T[..., None] + np_.einsum("hts,shd->thd", weights, v)
            k, v = (lax.ppermute(x, "sp", around) for x in (k, v))
            return (new, total, out, k, v), None

        first = q[..., 0].T * 0
        start = (first - 1e9, first, q * 0, k, v)
        (_, total, out, _, _), _ = lax.scan(turn, start, None, length=size)
        return out / total.T[..., None]

    mesh = lib.mesh(sp=size)
    spec = lib.sharding.PartitionSpec("sp")
    mapped = lib.root.shard_map(attend, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return np_.sum(np_.square(mapped(q, k, v)))

    x = lib.like((8 * TOKENS, 4, WIDTH), lib.named(mesh, "sp"))
    return Compilation(lib.root.grad(loss, argnums=(0, 1, 2)), (x, x, x), {})


def attention(implementation: str | None, split: bool) -> Setup:
    """`nn.dot_product_attention` and its derivatives, in bfloat16."""

    def setup(lib: Target) -> Compilation:
        def loss(q: Any, k: Any, v: Any) -> Any:
            out = lib.nn.dot_product_attention(
                q, k, v, is_causal=True, implementation=implementation
            )
            return lib.np.sum(lib.np.square(out.astype(np.float32)))

        place_ = lib.named(lib.mesh(dp=8), "dp") if split else None
        x = lib.like((8, 256, 4, 64), place_, lib.np.bfloat16)
        return Compilation(lib.root.value_and_grad(loss, argnums=(0, 1, 2)), (x, x, x), {})

    return setup


# -- functions --


def called(write: Callable[[Target], Callable[..., Any]], *shapes: tuple[int, ...]) -> Setup:
    """A function on one device."""

    def setup(lib: Target) -> Compilation:
        return Compilation(write(lib), tuple([lib.like(s) for s in shapes]), {})

    return setup


def split(
    write: Callable[[Target], Callable[..., Any]],
    *rows: tuple[tuple[int, ...], tuple[str | None, ...]],
) -> Setup:
    """A function of arrays split over 4×2 devices. rows: the shape and the spec of each."""

    def setup(lib: Target) -> Compilation:
        mesh = lib.mesh(x=4, y=2)
        types = tuple([lib.like(s, lib.named(mesh, *spec)) for s, spec in rows])
        return Compilation(write(lib), types, {})

    return setup


def drawn(name: str, implementation: str | None = None) -> Setup:
    """A function of `random` of a key made from a seed."""

    def setup(lib: Target) -> Compilation:
        draw: Any = getattr(lib.random, name)
        parameters = {"gamma": (2.5,), "beta": (2.5, 1.5)}.get(name, ())

        def f(seed: Any) -> Any:
            key = lib.random.key(seed, impl=implementation)
            return draw(key, *parameters, shape=(1024,))

        return Compilation(f, (lib.like((), None, np.uint32),), {})

    return setup


def scipy_special(name: str) -> Callable[[Target], Callable[..., Any]]:
    def write(lib: Target) -> Callable[..., Any]:
        import importlib

        return getattr(importlib.import_module(f"{lib.name}.scipy.special"), name)

    return write


ROW, TABLE = ((1024,), ("x",)), ((64, 64), ("x", "y"))
PROGRAMS: dict[str, Setup] = {
    "gpt.1_device": gpt_on_one,
    "gpt.dp8": gpt_over(replicated, dp=8),
    "gpt.dp4_tp2": gpt_over(tensor_parallel, dp=4, tp=2),
    "gpt.fsdp8": gpt_over(fully_sharded, dp=8),
    "gpt.dp2_tp4": gpt_over(tensor_parallel, dp=2, tp=4),
    "network.convolutional": convolutional,
    "network.experts": experts,
    "network.ring": ring,
    "attention.default": attention(None, split=False),
    "attention.default_dp8": attention(None, split=True),
    "attention.cudnn": attention("cudnn", split=False),
    "attention.cudnn_dp8": attention("cudnn", split=True),
    "draws.uniform": drawn("uniform"),
    "draws.normal": drawn("normal"),
    "draws.gamma": drawn("gamma"),
    "draws.beta": drawn("beta"),
    "draws.uniform_rbg": drawn("uniform", "rbg"),
    "draws.normal_rbg": drawn("normal", "rbg"),
    "draws.permutation": called(
        lambda lib: lambda x: lib.random.permutation(lib.random.key(0), x), (1024,)
    ),
    "function.searchsorted": called(lambda lib: lib.np.searchsorted, (1024,), (64,)),
    "function.ndtri": called(scipy_special("ndtri"), (1024,)),
    "function.associative_scan": called(
        lambda lib: functools.partial(lib.lax.associative_scan, lib.np.multiply), (1024,)
    ),
    "function.cholesky": called(lambda lib: lib.np.linalg.cholesky, (16, 16)),
    "function.median": called(lambda lib: lib.np.median, (1024,)),
    "function.sort": called(lambda lib: lib.np.sort, (1024,)),
    "function.logsumexp": called(lambda lib: lib.nn.logsumexp, (64, 64)),
    "split.max": split(lambda lib: lib.np.max, ROW),
    "split.median": split(lambda lib: lib.np.median, ROW),
    "split.searchsorted": split(lambda lib: lib.np.searchsorted, ROW, ((64,), ("x",))),
    "split.concatenate": split(
        lambda lib: lambda x, y: lib.np.concatenate([x, y]), TABLE, TABLE
    ),
    "split.softmax": split(lambda lib: lib.nn.softmax, TABLE),
    "split.cumsum": split(lambda lib: lib.np.cumsum, ROW),
    "split.roll": split(lambda lib: lambda x: lib.np.roll(x, 1), ROW),
    "split.pad": split(lambda lib: lambda x: lib.np.pad(x, 4), ROW),
    "split.slices": split(lambda lib: lambda x: x[1:] - x[:-1], ROW),
    "split.take": split(lambda lib: lambda x, i: x[i.astype(np.int32)], TABLE, ROW),
    "split.update": split(lambda lib: lambda x, y: x.at[3:5].set(y[:2]), TABLE, TABLE),
    "split.argmax": split(lambda lib: lib.np.argmax, ROW),
    "split.matmul": split(lambda lib: lib.np.matmul, TABLE, TABLE),
    "split.cholesky": split(lambda lib: lib.np.linalg.cholesky, TABLE),
    "split.max_pool": split(
        lambda lib: lambda x: lib.lax.reduce_window(x, -np.inf, lib.lax.max, (2, 2), (2, 2), "VALID"),
        TABLE,
    ),
}  # fmt: skip

# Names, and the machines that they are compiled for. Others are compiled for one machine of a kind.
EVERYWHERE = ("gpt.*", "network.*")
ON_GPUS = ("attention.cudnn*",)
FIRST = ("h100:8", "tpu-v5p:2x2x2")


def applies(name: str, machine: str) -> bool:
    """Whether a program is compiled for a machine."""

    def is_one_of(globs: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs)

    if machine in MACHINES and machine not in FIRST and not is_one_of(EVERYWHERE):
        return False
    return not (is_one_of(ON_GPUS) and machine.startswith("tpu"))

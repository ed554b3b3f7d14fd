"""Random programs of maps, transforms, control flow and collectives, nested in each other.

    program = drawn(17)                    # the steps, as nested tuples; which maps bind axes
    run(program, program.maps)(x)          # with those maps
    run(program, ("vmap",) * 3)(x)         # the reference

All are functions of `f32[2, 2]` for each index of the named axes, which have two indices each. A
node is `(name, choices, children)`; `smaller(program)` returns the programs with one node fewer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.maps import xmap
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import DEVICES

AXES = ("a", "b", "c")
MAPS = (  # that may be nested: pmap has its own devices, xmap a mesh with other names
    ("vmap", "shard_map", "unchecked", "xmap"),
    ("vmap", "shard_map", "unchecked"),
    ("vmap", "xmap", "xmap on mesh"),
    ("vmap", "pmap", "pmap", "xmap"),
)
Node = tuple[str, Any, tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """seed, the steps for each index, the map of each axis, and the steps around the maps."""

    seed: int
    body: Node
    maps: tuple[str, ...]
    whole: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.whole} of {' of '.join(self.maps)} of\n{shown(self.body)}"


def shown(node: Node, indent: str = "  ") -> str:
    name, choices, children = node
    rows = [f"{indent}{name} {'' if choices is None else choices}".rstrip()]
    return "\n".join(rows + [shown(c, indent + "  ") for c in children])


# -- steps: (choices, functions of the children, x, names of all axes) → a value like x --


def index(names: Any) -> Any:
    """The number of the index along all axes, starting at 1."""
    return 1.0 + lax.axis_index(names)


def collective(what: str, x: Any, names: Any) -> Any:
    n = lax.axis_size(names)
    shift = [(i, (i + 1) % n) for i in range(n)]
    found: dict[str, Callable[[], Any]] = {
        "psum": lambda: lax.psum(x, names) / n,
        "pmean": lambda: lax.pmean(x, names),
        "pmax": lambda: lax.pmax(x, names),
        "pmin": lambda: lax.pmin(x, names),
        "all_gather": lambda: lax.all_gather(x, names)[n - 1] + x,
        "invariant": lambda: jnp.mean(lax.all_gather_invariant(x, names), 0),
        "scatter": lambda: (
            lax.all_gather(lax.psum_scatter(jnp.tile(x, (n, 1)), names, tiled=True), names)[0] / n
        ),
        "all_to_all": lambda: lax.all_to_all(jnp.stack([x * k for k in range(n)]), names, 0, 0)[0],
        "ppermute": lambda: lax.ppermute(x, names, shift),
        "part": lambda: lax.ppermute(x, names, shift[1:]),
        "pbroadcast": lambda: lax.pbroadcast(x, names, n - 1),
        "pdot": lambda: lax.pdot(x, x, names, ((0,), (0,))) / n,
    }
    return found[what]()


COLLECTIVES = (
    "psum",
    "pmean",
    "pmax",
    "pmin",
    "all_gather",
    "invariant",
    "scatter",
    "all_to_all",
    "ppermute",
    "part",
    "pbroadcast",
    "pdot",
)


def loop_by_index(f: Callable, x: Any, names: Any) -> Any:
    last = lax.axis_index(names) % 3
    step = lambda s: (s[0] + 1, f(s[1]))  # noqa: E731
    return lax.while_loop(lambda s: s[0] < last, step, (0, x))[1]


def ruled_forward(f: Callable, x: Any) -> Any:
    g = sw.custom_jvp(f)
    g.defjvp(lambda xs, ts: (f(xs[0]), 2 * sw.jvp(f, xs, ts)[1]))
    return g(x)


def ruled_back(f: Callable, x: Any) -> Any:
    g = sw.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (2 * sw.vjp(f, x)[1](ct)[0],))
    return g(x)


STEPS: dict[str, Callable[..., Any]] = {
    "then": lambda f, g, x, names: g(f(x)),
    "jit": lambda f, x, names: sw.jit(f)(x),
    "checkpoint": lambda f, x, names: sw.checkpoint(f)(x),
    "custom_jvp": lambda f, x, names: ruled_forward(f, x),
    "custom_vjp": lambda f, x, names: ruled_back(f, x),
    "grad": lambda f, x, names: sw.grad(lambda x: jnp.sum(jnp.sin(f(x)) * index(names)))(x),
    "jvp": lambda f, x, names: sw.jvp(f, (x,), (jnp.cos(x) * index(names),))[1],
    "scan": lambda f, x, names: lax.scan(lambda c, k: (f(c) * k, c), x, jnp.arange(2.0))[1][1],
    "cond": lambda f, g, x, names: lax.cond(lax.pmax(x[0, 0], names) > 0, f, g, x),
    "cond by index": lambda f, g, x, names: lax.cond(lax.axis_index(names) % 2 == 0, f, g, x),
    "cond by value": lambda f, g, x, names: lax.cond(x[0, 0] > 0, f, g, x),
    "fori": lambda f, x, names: lax.fori_loop(0, 2, lambda _, y: f(y), x),
    "while": loop_by_index,
    "vmap": lambda f, x, names: jnp.sum(sw.vmap(f)(jnp.stack([x, x / 2])), 0),
    "rows": lambda f, x, names: sw.vmap(
        lambda y: lax.psum(f(y), "r") * (1 + lax.axis_index("r")), axis_name="r"
    )(jnp.stack([x, -x]))[1],
}
OVER = ("cond", "cond by index", "while")


def function(node: Node) -> Callable[[Any], Any]:
    name, choices, children = node
    if name == "collective":
        what, names = choices
        return lambda x: jnp.sin(collective(what, x, names)) + x / 4
    if name == "sin":
        return lambda x: jnp.sin(x * index(AXES))
    if name == "square":
        return lambda x: x * x / 2 - 1
    fs = [function(c) for c in children]
    return lambda x: STEPS[name](*fs, x, choices)


# -- maps --


def bound(how: str, name: str, f: Callable) -> Callable:
    """`f` over the first dimension, with one map. The mesh has an axis for each name."""
    if how == "vmap":
        return sw.vmap(f, axis_name=name)
    if how == "pmap":
        return sw.pmap(f, axis_name=name)
    if how == "xmap":
        return xmap(f, [name, ...], [name, ...])
    if how == "xmap on mesh":
        return xmap(f, [name, ...], [name, ...], axis_resources={name: name.upper()})
    return sw.shard_map(
        lambda x: f(x[0])[None],
        mesh=MESH,
        in_specs=P(name),
        out_specs=P(name),
        axis_names={name},
        check_vma=how == "shard_map",
    )


MESH = Mesh(DEVICES.reshape(2, 2, 2), AXES)
RESOURCES = Mesh(DEVICES.reshape(2, 2, 2), ("A", "B", "C"))


def run(program: Program, maps: tuple[str, ...]) -> Callable:
    f = function(program.body)
    for how, name in reversed([*zip(maps, AXES, strict=True)]):
        f = bound(how, name, f)
    weights = np.cos(np.arange(32, dtype=np.float32)).reshape(2, 2, 2, 2, 2)
    whole = {
        "value": f,
        "jit": sw.jit(f),
        "grad": sw.jit(sw.grad(lambda x: jnp.sum(f(x) * weights))),
        "jvp": sw.jit(lambda x: sw.jvp(f, (x,), (weights,))[1]),
        "vmap": sw.jit(lambda x: sw.vmap(f)(jnp.stack([x, x / 2]))),
    }
    if "xmap on mesh" not in maps:
        return whole[program.whole]

    def on_mesh(x: Any) -> Any:
        with RESOURCES:
            return whole[program.whole](x)

    return on_mesh


# -- choices --


def drawn(seed: int) -> Program:
    rng = random.Random(seed)
    whole = rng.choice(["value", "jit", "grad", "grad", "jvp", "vmap"])
    kinds = rng.choice(MAPS)
    around = frozenset([whole, *kinds])
    body = "then", None, (_node(rng, 3, around), _node(rng, 1, around))
    return Program(seed, body, tuple([rng.choice(kinds) for _ in AXES]), whole)


def _node(rng: random.Random, depth: int, around: frozenset[str]) -> Node:
    """around: the derivatives taken of the program; not every step supports each."""
    names = tuple(rng.sample(AXES, rng.randint(1, 3)))
    if not depth:
        if rng.random() < 0.75:
            return "collective", (rng.choice(COLLECTIVES), names), ()
        return rng.choice(["sin", "square"]), None, ()
    back, forward = around & {"grad", "custom_vjp"}, around & {"jvp", "custom_jvp"}
    left = [("while", back), ("custom_vjp", forward)]
    name = rng.choice([s for s in STEPS if (s, True) not in [(n, bool(w)) for n, w in left]])
    count = 2 if name == "then" or name.startswith("cond") else 1
    children = tuple([_node(rng, depth - 1, around | {name}) for _ in range(count)])
    return name, names if name in OVER else AXES, children


def smaller(program: Program) -> Iterator[Program]:
    """Programs with one node fewer, or with a simpler map."""
    yield from (replace(program, body=body) for body in _less(program.body))
    for i, how in enumerate(program.maps):
        if how != "vmap":
            yield replace(program, maps=(*program.maps[:i], "vmap", *program.maps[i + 1 :]))


def _less(node: Node) -> Iterator[Node]:
    name, choices, children = node
    yield from children
    for i, child in enumerate(children):
        for less in _less(child):
            yield name, choices, (*children[:i], less, *children[i + 1 :])

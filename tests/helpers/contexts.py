"""Contexts in which a collective may be called, and the results expected from its meaning.

A *kind* says what its axis is: `bound(kind, f)` maps `f(x, names)` over n values. A *context* is
the code around the call: it returns a function of `xs` and the expected results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.maps import SerialLoop, xmap
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.collectives import FORMS, Form, N
from tests.helpers.meshes import DEVICES

KINDS = {
    "mapped": "an axis of `vmap`",
    "mesh": "an axis of a mesh",
    "two": "two axes of a mesh",
    "mesh, mapped": "an axis of a mesh and one of a `vmap` inside",
    "mapped, mesh": "an axis of a `vmap` and one of a mesh inside",
}
HALF = N // 2
LINE = Mesh(DEVICES[:N], ("i",))
SQUARE = Mesh(DEVICES[:N].reshape(HALF, HALF), ("i", "j"))
PAIR = Mesh(DEVICES[:HALF], ("i",))
Call = Callable[[Any, Any], Any]
RNG = np.random.default_rng(0)
XS = RNG.permutation(N * N * 2).reshape(N, N, 2).astype(np.float32) - 9


def tree_map(f: Callable, *trees: Any) -> Any:
    return sw.tree.map(f, *trees)


def over_mesh(f: Callable, mesh: Any, names: Any, **options: Any) -> Callable:
    """`f` of one value, on that many devices."""

    def part(*args: Any) -> Any:
        return tree_map(lambda y: y[None], f(*[a[0] for a in args]))

    return sw.shard_map(part, mesh=mesh, in_specs=P(names), out_specs=P(names), **options)


def by_two(f: Callable) -> Callable:
    """`f` on values indexed by two numbers, as a function on values indexed by one."""

    def run(*args: Any) -> Any:
        outs = f(*[jnp.reshape(a, (HALF, HALF, *a.shape[1:])) for a in args])
        return tree_map(lambda y: jnp.reshape(y, (N, *y.shape[2:])), outs)

    return run


def bound(kind: str, f: Callable, **options: Any) -> Callable:
    """`f(*values, names)` over all values; options: of `shard_map`."""

    def named(names: Any) -> Callable:
        return lambda *args: f(*args, names)

    if kind == "mapped":
        return sw.vmap(named("i"), axis_name="i")
    if kind == "mesh":
        return over_mesh(named("i"), LINE, "i", **options)
    if kind == "two":
        return over_mesh(named(("i", "j")), SQUARE, ("i", "j"), **options)
    if kind == "mesh, mapped":
        inner = sw.vmap(named(("i", "m")), axis_name="m")
        return by_two(over_mesh(inner, PAIR, "i", **options))
    inner = over_mesh(named(("m", "i")), PAIR, "i", **options)
    return by_two(sw.vmap(inner, axis_name="m"))


def bound_by_pmap(kind: str, f: Callable) -> Callable:
    if kind == "mapped":  # inside a pmap over another axis
        inner = sw.pmap(sw.vmap(lambda x: f(x, "i"), axis_name="i"), axis_name="other")
        return lambda xs: inner(jnp.stack([xs, xs]))[1]
    if kind == "mesh":
        return sw.pmap(lambda x: f(x, "i"), axis_name="i")
    first, second = {
        "two": (sw.pmap, sw.pmap),
        "mesh, mapped": (sw.pmap, sw.vmap),
        "mapped, mesh": (sw.vmap, sw.pmap),
    }[kind]
    inner = second(lambda x: f(x, ("i", "j")), axis_name="j")
    return by_two(first(inner, axis_name="i"))


def bound_by_xmap(kind: str, f: Callable) -> Callable:
    mesh, resources = {
        "mapped": (LINE, {}),
        "mesh": (LINE, {"a": "i"}),
        "two": (SQUARE, {"a": ("i", "j")}),
        "mesh, mapped": (PAIR, {"a": "i"}),
        "mapped, mesh": (PAIR, {"b": "i"}),
    }[kind]
    names = ("a", "b") if "," in kind else ("a",)
    named = names if len(names) > 1 else "a"
    run = xmap(
        lambda x: f(x, named),
        in_axes=[*names, ...],
        out_axes=[*names, ...],
        axis_resources=resources,
    )

    def mapped(xs: Any) -> Any:
        with mesh:
            return run(xs)

    return by_two(mapped) if "," in kind else mapped


# -- contexts: (form, kind) → (function of XS, expected result) --

Context = Callable[[Form, str], tuple[Callable, Any]]
CONTEXTS: dict[str, Context] = {}
SERIAL = (
    "the axis 'a' runs in a serial loop, one index after another, but a collective needs all of "
    "them at once. Remove the loop from axis_resources, or map the axis to an axis of a mesh."
)
ALONE = ("pcast", "pvary", "axis_index", "axis_size")  # these send nothing

# By collective and context: the error message after the function's name.
REFUSED: dict[tuple[str, str], str] = {
    (name, "serial loop"): SERIAL for name in {form.name for form in FORMS} - {*ALONE}
}
WEIGHTS = RNG.integers(-3, 4, (4 * XS.size,)).astype(np.float32)
TANGENTS = RNG.integers(-3, 4, XS.shape).astype(np.float32)


BARE = ("custom_jvp", "custom_vjp", "shard_map")


def context(make: Context) -> Context:
    name = make.__name__.rstrip("_")
    CONTEXTS[name if name in BARE else name.replace("_", " ")] = make
    return make


def weights(form: Form) -> np.ndarray:
    """For the results of every index."""
    return np.resize(WEIGHTS, form.meaning(XS).shape)


@context
def eager(form: Form, kind: str) -> tuple[Callable, Any]:
    """A plain call of the map."""
    return bound(kind, form.call), form.meaning(XS)


@context
def jit(form: Form, kind: str) -> tuple[Callable, Any]:
    """`jit` around the map and inside it; also with `check_vma=False`."""
    inside = bound(kind, lambda x, i: sw.jit(lambda x: form.call(x, i))(x))
    around = sw.jit(bound(kind, form.call, check_vma=False) if kind != "mapped" else inside)
    wanted = form.meaning(XS)
    return sw.jit(lambda xs: (inside(xs), around(xs))), (wanted, wanted)


@context
def grad(form: Form, kind: str) -> tuple[Callable, Any]:
    """Inside the map and through it, with and without `check_vma`; forward and reverse."""
    ws = weights(form)

    def slope(x: Any, w: Any, i: Any) -> Any:
        return sw.grad(lambda x: jnp.sum(form.call(x, i) * w))(x)

    def run(xs: Any) -> list[Any]:
        found = [bound(kind, slope)(xs, ws)]
        for options in ({}, {"check_vma": False}):
            f = bound(kind, form.call, **options)
            found.append(sw.grad(lambda xs, f=f: jnp.sum(f(xs) * ws))(xs))
            found.append(sw.jvp(f, (xs,), (TANGENTS,))[1])
        return found

    back, along = form.cotangent(XS, ws), form.derivative(XS, TANGENTS)
    return sw.jit(run), [back, back, along, back, along]


@context
def vmap(form: Form, kind: str) -> tuple[Callable, Any]:
    """A batch inside the map, and a batch of maps."""
    inside = bound(kind, lambda x, i: sw.vmap(lambda x: form.call(x, i))(jnp.stack([x, x * 2])))
    around = sw.vmap(bound(kind, form.call))
    ones = [form.meaning(XS), form.meaning(2 * XS)]
    return (
        sw.jit(lambda xs: (inside(xs), around(jnp.stack([xs, xs * 2])))),
        (np.stack(ones, 1), np.stack(ones)),
    )


def in_loop(form: Form, kind: str, run: Callable) -> tuple[Callable, Any]:
    """The sum over three steps."""
    return bound(kind, lambda x, i: run(x, lambda x: form.call(x, i))), sum(
        form.meaning(XS * k) for k in (1, 2, 3)
    )


def scanned(x: Any, f: Callable) -> Any:
    return jnp.sum(lax.scan(lambda c, k: (c, f(c * k)), x, jnp.arange(1.0, 4.0))[1], 0)


@context
def scan(form: Form, kind: str) -> tuple[Callable, Any]:
    """A sum over three steps of `scan`, and its derivative."""
    f, wanted = in_loop(form, kind, scanned)
    ws = weights(form)

    def run(xs: Any) -> Any:
        return f(xs), sw.grad(lambda xs: jnp.sum(f(xs) * ws))(xs)

    slopes = sum(k * form.cotangent(XS * k, ws) for k in (1, 2, 3))
    return sw.jit(run), (wanted, slopes)


@context
def while_(form: Form, kind: str) -> tuple[Callable, Any]:
    """A sum over three steps of `while_loop`."""

    def run(x: Any, f: Callable) -> Any:
        def step(state: Any) -> Any:
            k, total = state
            return k + 1, total + f(x * k)

        return lax.while_loop(lambda s: s[0] < 4, step, (jnp.float32(1), 0 * f(x)))[1]

    f, wanted = in_loop(form, kind, run)
    return sw.jit(f), wanted


@context
def while_by_index(form: Form, kind: str) -> tuple[Callable, Any]:
    """Indices stop individually: each takes part with its value until the last one stops."""

    def f(x: Any, i: Any) -> Any:
        last = 1 + lax.axis_index(i) % 3

        def step(state: Any) -> Any:
            k, total = state
            return k + 1, total + form.call(x * k, i)

        first = jnp.float32(1), 0 * form.call(x, i)
        return lax.while_loop(lambda s: s[0] <= last, step, first)[1]

    shape = (N, *[1] * (form.meaning(XS).ndim - 1))
    k, total = np.ones(N), np.zeros(form.meaning(XS).shape)
    for _ in range(3):
        active = k <= 1 + np.arange(N) % 3
        total += np.where(active.reshape(shape), form.meaning(XS * k[:, None, None]), 0)
        k += active
    return sw.jit(bound(kind, f)), total


@context
def cond(form: Form, kind: str) -> tuple[Callable, Any]:
    """A branch that is the same for all indices, and its derivative."""

    def chosen(flag: Any) -> Callable:
        return bound(
            kind,
            lambda x, i: lax.cond(
                flag, lambda x: form.call(x, i), lambda x: form.call(3 * x, i), x
            ),
        )

    ws = weights(form)

    def run(xs: Any, flag: Any) -> Any:
        f = chosen(flag)
        return f(xs), sw.grad(lambda xs: jnp.sum(f(xs) * ws))(xs)

    def both(xs: Any) -> Any:
        return [sw.jit(run)(xs, flag) for flag in (True, False)]

    ones = [(form.meaning(k * XS), k * form.cotangent(k * XS, ws)) for k in (1, 3)]
    return both, ones


@context
def cond_by_index(form: Form, kind: str) -> tuple[Callable, Any]:
    """Indices choose individually: each takes part in both branches."""

    def f(x: Any, i: Any) -> Any:
        return lax.cond(
            lax.axis_index(i) % 2 == 0, lambda x: form.call(x, i), lambda x: form.call(3 * x, i), x
        )

    even, odd = form.meaning(XS), form.meaning(3 * XS)
    wanted = np.where((np.arange(N) % 2 == 0).reshape(N, *[1] * (even.ndim - 1)), even, odd)
    return sw.jit(bound(kind, f)), wanted


@context
def remat(form: Form, kind: str) -> tuple[Callable, Any]:
    """The derivative of a rematerialized function, the square of the result."""
    ws = weights(form)

    def f(x: Any, i: Any) -> Any:
        return sw.checkpoint(lambda x: form.call(x, i) ** 2)(x)

    def run(xs: Any) -> Any:
        return sw.grad(lambda xs: jnp.sum(bound(kind, f)(xs) * ws))(xs)

    return sw.jit(run), form.cotangent(XS, 2 * ws * form.meaning(XS))


def _tripled(form: Form, kind: str, f: Callable) -> tuple[Callable, Any]:
    """The value and the gradient of `f`, whose rule returns three times the derivative."""
    ws = weights(form)

    def run(xs: Any) -> Any:
        g = bound(kind, f)
        return g(xs), sw.grad(lambda xs: jnp.sum(g(xs) * ws))(xs)

    return sw.jit(run), (form.meaning(XS), 3 * form.cotangent(XS, ws))


@context
def custom_jvp(form: Form, kind: str) -> tuple[Callable, Any]:
    """The rule contains the collective: three times the tangent."""

    def f(x: Any, i: Any) -> Any:
        g = sw.custom_jvp(lambda x: form.call(x, i))

        @g.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            inner = lambda x: form.call(x, i)  # noqa: E731
            value, slope = sw.jvp(inner, primals, tangents)
            return value, 3 * slope

        return g(x)

    return _tripled(form, kind, f)


@context
def custom_vjp(form: Form, kind: str) -> tuple[Callable, Any]:
    """Both rules contain the collective: three times the cotangent."""

    def f(x: Any, i: Any) -> Any:
        inner = lambda x: form.call(x, i)  # noqa: E731
        g = sw.custom_vjp(inner)
        g.defvjp(lambda x: (inner(x), x), lambda x, ct: (3 * sw.vjp(inner, x)[1](ct)[0],))
        return g(x)

    return _tripled(form, kind, f)


@context
def shard_map(form: Form, kind: str) -> tuple[Callable, Any]:
    """Inside a map over another axis of the mesh; and without types that track varying axes."""
    mesh = Mesh(DEVICES[:2], ("other",))
    if kind == "mapped":
        f = sw.shard_map(
            bound(kind, form.call), mesh=mesh, in_specs=P(None, None, "other"), out_specs=P("other")
        )
        halves = [form.meaning(XS[..., k : k + 1]) for k in (0, 1)]
        return sw.jit(f), np.concatenate(halves)
    return sw.jit(bound(kind, form.call, check_vma=False)), form.meaning(XS)


@context
def pmap(form: Form, kind: str) -> tuple[Callable, Any]:
    """The map, or one of two, is `pmap`; or a mapped axis is inside another `pmap`."""
    return bound_by_pmap(kind, form.call), form.meaning(XS)


@context
def xmap_(form: Form, kind: str) -> tuple[Callable, Any]:
    """The axis is an `xmap` axis, with a mesh axis as its resource."""
    return bound_by_xmap(kind, form.call), form.meaning(XS)


@context
def serial_loop(form: Form, kind: str) -> tuple[Callable, Any]:
    """The axis is an `xmap` axis that is mapped over a loop."""
    over = ("i", SerialLoop(HALF)) if "mesh" in kind else SerialLoop(HALF)
    run = xmap(
        lambda x: form.call(x, "a"),
        in_axes=["a", ...],
        out_axes=["a", ...],
        axis_resources={"a": over},
    )

    def mapped(xs: Any) -> Any:
        with PAIR:
            return run(xs)

    return mapped, form.meaning(XS)

"""Functions written once for both libraries, under every transform: `same_as_jax(f, *args)`.

`f(lib, *args)` gets the names of one library: `lib.np`, `lib.lax`, `lib.root`.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from tests.helpers.comparing import close
from tests.helpers.everyday import everyday

OURS = SimpleNamespace(root=sw, np=swnp, lax=lax)
JAX = SimpleNamespace(root=jax, np=jnp, lax=jax.lax)


EAGER = ("value", "jvp", "grad", "vmap of grad")  # the others are run under jit only
ALWAYS = ("value", "grad", "vmap of value")  # the others are sampled


def everything(lib, f, args, axes, reverse):
    """Results, first and second derivatives of a function, alone and mapped over `axes`."""
    moving = tuple(i for i, a in enumerate(args) if np.asarray(a).dtype.kind == "f")
    run = lambda *a: f(lib, *a)  # noqa: E731

    def loss(*a):
        found = [x for x in lib.root.tree.leaves(run(*a)) if x.dtype.kind == "f"]
        return sum([lib.np.sum(lib.np.sin(x)) for x in found])

    def along(f):
        def directional(*a):
            inner = lambda *given: f(*merged(a, given))  # noqa: E731
            primals = tuple(a[i] for i in moving)
            return lib.root.jvp(inner, primals, tuple(lib.np.cos(x) for x in primals))

        return directional

    def merged(a, given):
        a = list(a)
        for i, x in zip(moving, given, strict=True):
            a[i] = x
        return a

    def slopes(*a):
        gradients = lib.root.grad(loss, moving)(*a)
        return sum([lib.np.sum(lib.np.sin(g)) for g in gradients])

    found = {"value": run, "jvp": along(loss), "jvp of jvp": along(along(loss))}
    if reverse:
        found |= {
            "grad": lib.root.grad(loss, moving),
            "grad of grad": lib.root.grad(slopes, moving),
            "jvp of grad": along(slopes),
        }
    found["linearize"] = lambda *a: _linearized(lib, loss, a, moving, merged)
    if axes is not None:
        wide = [
            np.stack([a, a * np.asarray(0.5, np.asarray(a).dtype) + 1]) if d == 0 else a
            for a, d in zip(args, axes, strict=True)
        ]
        mapped = {
            f"vmap of {n}": (lib.root.vmap(found[n], axes), wide)
            for n in ("value", "jvp", *(["grad"] if reverse else []))
        }
        if reverse:
            total = lambda *a: lib.np.sum(lib.root.vmap(loss, axes)(*a))  # noqa: E731
            mapped["grad of vmap"] = (lib.root.grad(total, moving), wide)
    else:
        mapped = {}
    every = {n: (g, args) for n, g in found.items()} | mapped
    others = everyday([n for n in every if n not in ALWAYS], 1 / 3, f.__qualname__)
    return {n: each for n, each in every.items() if n in ALWAYS or n in others}


def _linearized(lib, f, a, moving, merged):
    inner = lambda *given: f(*merged(a, given))  # noqa: E731
    value, slope = lib.root.linearize(inner, *[a[i] for i in moving])
    return value, slope(*[lib.np.cos(a[i]) for i in moving])


def same_as_jax(f, *args, axes=None, reverse=True, tol=1e-4):
    """The transforms of `f`, eagerly and under jit, return the same results as in jax."""
    ours = everything(OURS, f, args, axes, reverse)
    theirs = everything(JAX, f, args, axes, reverse)
    inputs = {n: a for n, (_, a) in theirs.items()}
    wanted = jax.jit(lambda given: {n: g(*given[n]) for n, (g, _) in theirs.items()})(
        jax.tree.map(jnp.asarray, inputs)
    )
    given = jax.tree.map(swnp.asarray, inputs)
    for name, (g, _) in ours.items():
        try:
            check_program(sw.jit(g).trace(*given[name]).program)
            if name in EAGER:
                close(g(*given[name]), wanted[name], tol)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    together = sw.jit(lambda given: {n: g(*given[n]) for n, (g, _) in ours.items()})
    close(together(given), wanted, tol)

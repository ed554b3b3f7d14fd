"""Explicit mesh axes: types of results against JAX, for many functions and shardings."""

from __future__ import annotations

import itertools
import random

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.core.checker import check_program
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import array_type
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec,
    reshard,
    set_mesh,
    use_abstract_mesh,
)
from tests.helpers.everyday import everyday
from tests.placement.explicit_cases import CASES, LENIENT, F

SIZES, NAMES = (4, 2), ("x", "y")
MESH = AbstractMesh(SIZES, NAMES, axis_types=AxisType.Explicit)
DEVICES = sw.make_mesh(SIZES, NAMES, axis_types=AxisType.Explicit)
JAX_MESH = jax.make_mesh(SIZES, NAMES, axis_types=(jax.sharding.AxisType.Explicit,) * 2)


class Ours:
    np, lax, nn, P = sw.numpy, sw.lax, sw.nn, PartitionSpec
    vmap, grad = staticmethod(sw.vmap), staticmethod(sw.grad)
    jit, jvp = staticmethod(sw.jit), staticmethod(sw.jvp)
    reshard = staticmethod(reshard)


class Theirs:
    np, lax, nn, P = jax.numpy, jax.lax, jax.nn, jax.sharding.PartitionSpec
    vmap, grad = staticmethod(jax.vmap), staticmethod(jax.grad)
    jit, jvp = staticmethod(jax.jit), staticmethod(jax.jvp)
    reshard = staticmethod(jax.sharding.reshard)


class Unplaced(Ours):
    reshard = staticmethod(lambda x, spec: x)


def specs(ndim: int) -> list[tuple]:
    """All ways to shard dimensions over the two axes."""
    found = itertools.product([None, "x", "y", ("x", "y")], repeat=ndim)
    return [s for s in found if len(axes := [a for e in s for a in e or ()]) == len(set(axes))]


def chosen(name: str, count: int) -> list[tuple]:
    """Some of the ways to shard the arguments of a case."""
    every = list(itertools.product(*[specs(len(s)) for s in CASES[name][1]]))
    picked = random.Random(name).sample(every, min(count, len(every)))
    return list(dict.fromkeys([*every[:1], *picked]))


def their_types(name: str, split: tuple) -> list[str] | None:
    fun, shapes, dtypes = CASES[name]
    with jax.set_mesh(JAX_MESH):
        args = [
            jax.ShapeDtypeStruct(s, d, sharding=jax.sharding.NamedSharding(JAX_MESH, Theirs.P(*p)))
            for s, d, p in zip(shapes, dtypes, split, strict=True)
        ]
        try:
            jaxpr = jax.make_jaxpr(lambda *xs: fun(Theirs, *xs))(*args)
        except Exception:  # errors of several classes, not all of them public
            return None
    return [str(aval.strip_weak_type()) for aval in jaxpr.out_avals]


def our_types(name: str, split: tuple) -> list[str] | None:
    fun, shapes, dtypes = CASES[name]
    types = [
        array_type(s, np.dtype(d), spec=PartitionSpec(*p), mesh=MESH)
        for s, d, p in zip(shapes, dtypes, split, strict=True)
    ]
    with use_abstract_mesh(MESH):
        try:
            program, _ = stage(lambda *xs: flatten(fun(Ours, *xs))[0], types)
        except TypeError:  # a ShardingTypeError, or the carry of a scan
            return None
    check_program(program)
    return [str(t.strong()) for t in program.out_types]


@pytest.mark.parametrize("name", everyday(CASES, 17))
def test_types(name: str):
    for split in chosen(name, 5):
        expected, found = their_types(name, split), our_types(name, split)
        if expected is None and name in LENIENT:
            continue
        assert found == expected, split


UNEVEN = {2: 2, 3: 3, 4: 3, 8: 7, 16: 9}
NAMED_SIZES = (
    "reshape",
    "merge",
    "split",
    "broadcast",
    "pad",
    "zeros to",
    "ravel",
    "jvp",
    "dynamic_slice",
    "add at",
    "lax.reshape",
    "grad of reshape",
    "lax.reshape to",
)


@pytest.mark.parametrize("name", everyday([n for n in CASES if "scan" not in n], 2))
def test_values(name: str):
    """Eager and compiled, including sizes that the mesh does not divide."""
    fun, shapes, dtypes = CASES[name]
    uneven = not name.startswith(NAMED_SIZES)
    if uneven:
        shapes = [tuple(UNEVEN[n] for n in s) for s in shapes]
    rng = np.random.default_rng(len(name))
    values = [
        rng.standard_normal(s).astype(d) if d is F else rng.integers(0, 3, s).astype(d)
        for s, d in zip(shapes, dtypes, strict=True)
    ]
    works = [s for s in chosen(name, 8) if our_types(name, s) is not None]
    split = works[-1]
    with set_mesh(DEVICES):
        expected = flatten(sw.jit(lambda *xs: fun(Unplaced, *xs))(*values))[0]
        args = [sw.device_put(v, PartitionSpec(*s)) for v, s in zip(values, split, strict=True)]
        eager = flatten(fun(Ours, *args))[0]
        compiled = flatten(sw.jit(lambda *xs: fun(Ours, *xs))(*args))[0]
    for e, c, wanted in zip(eager, compiled, expected, strict=True):
        np.testing.assert_allclose(np.asarray(e), np.asarray(wanted), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(np.asarray(c), np.asarray(wanted), rtol=2e-5, atol=2e-5)
        assert sw.typeof(e).strong() is sw.typeof(c).strong()


@pytest.mark.parametrize("name", [n for n in CASES if n.startswith("grad of")])
def test_gradients_are_split_as_the_arguments(name: str):
    _, shapes, dtypes = CASES[name]
    for split in chosen(name, 8):
        found = our_types(name, split)
        wanted = [
            str(array_type(s, np.dtype(d), spec=PartitionSpec(*p), mesh=MESH))
            for s, d, p in zip(shapes, dtypes, split, strict=True)
            if d is F
        ]
        assert found is None or found == wanted


def test_eval_shape_knows_explicit_shardings():
    """Of structs, arrays and tracers, as in jax; rejects shardings that types do not determine."""
    mesh = Mesh(np.array(sw.devices()[:2]), ("x",), AxisType.Explicit)
    split = NamedSharding(mesh, PartitionSpec("x"))
    t = sw.ShapeDtypeStruct((4, 4), np.float32, sharding=split)
    x = sw.device_put(np.ones((4, 4), np.float32), split)
    kept = NamedSharding(mesh.abstract_mesh, PartitionSpec("x", None))
    wanted = sw.ShapeDtypeStruct((4, 4), np.float32, sharding=kept)
    inside = []
    sw.jit(lambda a: inside.append(sw.eval_shape(lambda b: b + 1, a)) or a)(x)
    assert [sw.eval_shape(lambda b: b + 1, a) for a in (t, x)] + inside == [wanted] * 3
    with pytest.raises(sw.errors.ShardingTypeError):
        sw.eval_shape(lambda a: a[np.array([0, 1])], t)

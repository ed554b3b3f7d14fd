"""Loops over sharded data: carries keep their shardings, in each step and in the result."""

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import NamedSharding, P, lax
from shardwise.sharding import AxisType, Mesh
from tests.helpers.everyday import everyday

COLLECTIVES = r"(all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\("


def step(c, a):
    return swnp.sin(c) * a, c + a


LOOPS = {
    "scan": lambda v: lax.scan(step, v[0], v),
    "scan in reverse": lambda v: lax.scan(step, v[0], v, reverse=True),
    "scan, two steps a turn": lambda v: lax.scan(step, v[0], v, unroll=2),
    "fori": lambda v: (lax.fori_loop(0, 5, lambda i, c: swnp.cos(c) + i, v[0]), v),
    "while": lambda v: (
        lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, swnp.cos(s[1])), (0, v[0]))[1],
        v,
    ),
    "map": lambda v: (v[0], lax.map(swnp.sin, v)),
    "associative_scan": lambda v: (v[0], lax.associative_scan(swnp.multiply, v)),
    "cond": lambda v: (lax.cond(True, swnp.sin, swnp.cos, v[0]), v),
}


@pytest.mark.parametrize(
    "kind, n", everyday([(AxisType.Auto, 16), (AxisType.Auto, 13), (AxisType.Explicit, 16)], 1)
)
def test_nothing_is_communicated_and_results_stay_sharded(kind, n):
    mesh = Mesh(np.array(sw.devices()), ("x",), axis_types=(kind,))
    x = np.linspace(0.1, 0.9, 5 * n, dtype=np.float32).reshape(5, n)
    v = sw.device_put(x, NamedSharding(mesh, P(None, "x")))
    row = NamedSharding(mesh, P("x"))
    for name, loop in LOOPS.items():
        made = {"value": loop, "jvp": lambda v, f=loop: sw.jvp(f, (v,), (v,))[1]}
        if name != "while":
            made["grad"] = lambda v, f=loop: sw.vjp(f, v)[1](f(v))[0]
        for what, f in made.items():
            compiled = sw.jit(f).lower(v).compile()
            assert not re.findall(COLLECTIVES, compiled.as_text()), (name, what)
            for found in sw.tree.leaves(sw.jit(f)(v)):
                wanted = row if found.ndim == 1 else v.sharding
                assert found.sharding.is_equivalent_to(wanted, found.ndim), (name, what)
                assert found.shape[-1] == n


def test_a_whole_weight_is_summed_and_the_carry_is_not_gathered():
    mesh = Mesh(np.array(sw.devices()), ("x",))
    x = sw.device_put(np.ones((16, 4), np.float32), NamedSharding(mesh, P("x")))
    w = np.eye(4, dtype=np.float32)

    def loss(x, w):
        return swnp.sum(lax.scan(lambda c, _: (swnp.sin(c @ w), None), x, None, length=5)[0])

    f = sw.jit(sw.grad(loss, (0, 1)))
    assert set(re.findall(COLLECTIVES, f.lower(x, w).compile().as_text())) == {"all-reduce"}
    dx, dw = f(x, w)
    assert dx.sharding == x.sharding and dw.sharding.is_fully_replicated

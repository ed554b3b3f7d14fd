"""Loops inside `shard_map` whose trip count depends on the device; control flow without jit."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday

GRID = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def place(axis):
    return lax.axis_index(axis)


LOOPS = {
    "up to": lambda x: lax.fori_loop(0, place("x"), lambda i, c: c * 2 + i, x),
    "from": lambda x: lax.fori_loop(place("x"), 3, lambda i, c: c * 2 + i, x),
    "from and up to": lambda x: lax.fori_loop(place("y"), place("x"), lambda i, c: c + 1 + i, x),
    "while": lambda x: lax.while_loop(
        lambda c: c[0] < place("x"), lambda c: (c[0] + 1, c[1] * 2), (0, x)
    )[1],
    "of the same on all": lambda x: (
        x + lax.fori_loop(0, place("x"), lambda i, c: c + i, jnp.float32(1))
    ),
    "a while of the same on all": lambda x: (
        x * lax.while_loop(lambda i: i < place("y"), lambda i: i + 1, 0)
    ),
}


@pytest.mark.parametrize("name", everyday(LOOPS, 2))
def test_as_a_map_gives_it(name):
    f = LOOPS[name]
    parts = X.reshape(4, 2, 2, 2).transpose(0, 2, 1, 3)
    over_maps = sw.vmap(sw.vmap(f, axis_name="y"), axis_name="x")
    wanted = np.asarray(sw.jit(over_maps)(parts)).transpose(0, 2, 1, 3).reshape(8, 4)
    for options in ({}, {"check_vma": False}):
        run = sw.shard_map(f, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y"), **options)
        check_program(sw.jit(run).trace(X).program)
        close(run(X), wanted, 1e-6)
        close(sw.jit(lambda x, run=run: sw.jvp(run, (x,), (x,)))(X)[0], wanted, 1e-6)


def test_what_turns_by_device_varies():
    """Also if each iteration does the same on all devices."""

    def loop(_):
        return lax.while_loop(lambda i: i < place("x"), lambda i: i + 1, 0)

    def counted(_):
        return lax.fori_loop(0, place("x"), lambda i, c: c + 1.0, jnp.float32(0))

    for f, t in ((loop, "~i32[]{V:x}"), (counted, "f32[]{V:x}")):
        run = sw.shard_map(f, mesh=GRID, in_specs=P("x"), out_specs=P())
        fails(
            ValueError,
            f"shard_map of {f.__name__}: result, of type {t}, may vary along 'x', "
            "which its spec P() does not name. Return it with a dimension, `x[None]`, and name "
            "it in out_specs to concatenate the "
            "shards; combine them with a collective, such as `shardwise.lax.psum(x, 'x')`, or "
            "`all_gather_invariant` to give all shards to every device; or pass check_vma=False, "
            "if they are known to be equal.",
            run,
            X,
        )


WITHOUT_JIT = LOOPS | {
    "cond": lambda x: lax.cond(x.sum() > 100, lambda x: x * 2, lambda x: -x, x),
    "switch": lambda x: lax.switch(place("x"), [lambda x: x * 2, lambda x: -x], x),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c), jnp.zeros(2), x)[1],
    "while of values": lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2 + 1, x),
    "jit": lambda x: sw.jit(lambda x: jnp.sin(lax.psum(x, "x")))(x),
    "map": lambda x: lax.map(jnp.sin, x),
}


def test_under_disable_jit_values_are_the_same():
    for name, f in WITHOUT_JIT.items():
        run = sw.shard_map(
            f, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False
        )
        wanted = run(X)
        with sw.disable_jit():
            found = run(X)
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, err_msg=name)

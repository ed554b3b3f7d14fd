"""Reports on loops and branches: the context of the equations inside them."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import MESH

FLAG = sw.ShapeDtypeStruct((), bool)


def struct(shape, *spec, dtype=np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def along_steps(xs):
    return lax.scan(lambda c, x: (c + x, c * 2), jnp.zeros(8), xs)


def beside_what_it_holds(xs, w):
    return lax.scan(lambda c, x: (c + x * w, c * 2), jnp.zeros(8), xs)


def resharded(c):
    columns = NamedSharding(MESH, P("y"))
    return lax.scan(
        lambda c, _: (lax.with_sharding_constraint(c * 2, columns), None), c, None, length=3
    )[0]


def branches(flag, a, b):
    return lax.cond(flag, lambda a, b: a, lambda a, b: b, a, b)


STEPS = "scan iterates over dimension 0 of f32[16@x,8], which is sharded over 'x'"
CASES = {
    "steps along a split dimension": (
        along_steps, [struct((16, 8), "x")], [("all-gather", 512, "scan", STEPS)]
    ),
    "steps, and a value that is split as well": (
        beside_what_it_holds, [struct((16, 8), "x"), struct((8,), "x")],
        [("all-to-all", 128, "scan", STEPS)],
    ),
    "what it carries": (
        resharded, [struct((16, 8), "x")],
        [("all-gather", 256, "scan",
          "the partitioner moves inputs, outputs or inner values of scan between devices"),
         ("collective-permute", 128, "scan",
          "the partitioner moves inputs, outputs or inner values of scan between devices")],
    ),
    "a branch that computes nothing": (
        branches, [FLAG, struct((16, 8), "x"), struct((16, 8), None, "x")],
        [("all-to-all", 128, "cond",
          "the partitioner moves inputs, outputs or inner values of cond between devices")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_around_equations_is_of_the_loop(name):
    f, args, wanted = CASES[name]
    report = explain(f)(*args)
    rows = [(c.kind, c.bytes, c.op, c.why) for c in report.communication]
    assert rows == wanted
    first = f.__code__.co_firstlineno
    assert {c.line for c in report.communication} <= {f"{__file__}:{first + i}" for i in range(4)}


def layers(ws, x):
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0].sum()


LINE = f"{__file__}:{layers.__code__.co_firstlineno + 1}"


def test_what_a_loop_keeps_for_gradients_is_of_the_loop():
    """For six layers: the inputs, f32[2,32] per device, and the derivative of tanh."""
    report = explain(sw.grad(layers))(struct((6, 64, 64), None, None, "y"), struct((8, 64), "x"))
    kept = [b for b in report.buffers if b.bytes == 6 * 2 * 32 * 4]
    assert [(b.kind, b.what, b.line) for b in kept] == [("temporary", "scan", LINE)] * 2
    assert not [b for b in report.buffers if b.what == "fusion"]


def test_copies_that_xla_adds_are_of_what_they_copy():
    """The CPU multiplies in f32."""
    ws = struct((6, 64, 64), None, None, "y", dtype="bfloat16")
    report = explain(sw.grad(layers))(ws, struct((8, 64), "x", dtype="bfloat16"))
    copies = {(b.what, b.bytes) for b in report.buffers if " copy of " in b.what}
    assert copies == {("f32 copy of ws", 6 * 64 * 32 * 4), ("f32 copy of scan", 6 * 2 * 32 * 4)}
    assert not [b for b in report.buffers if b.what == "fusion"]

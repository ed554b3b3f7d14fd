"""How programs are told apart if processes do not run the same one."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.distributed.program_differences import program_types
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P


def over(*spec):
    kinds = (AxisType.Auto, AxisType.Auto)
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=kinds)
    return NamedSharding(mesh, P(*spec))


CASES = {
    "f32[8@(x,y),4], f32[] -> f32[]": lambda: (
        lambda x, n: (x * n).sum(),
        jnp.ones((8, 4), device=over(("x", "y"))),
        3.0,
    ),
    "f32[3,6@y] -> bf16[3,6@y], bool[3,6@y]":  # 5 columns, padded to 6
    lambda: (lambda x: (x.astype(jnp.bfloat16), x > 1), jnp.ones((3, 5), device=over(None, "y"))),
    "i32[2@y,4@x] -> i32[4,2]":  # XLA chooses the sharding of the result
    lambda: (jnp.transpose, jnp.ones((2, 4), int, device=over("y", "x"))),
    "() -> bool[3]": lambda: (lambda: jnp.zeros((3,), bool),),
    "u32[2] -> c64[2]": lambda: (lambda k: sw.random.key_data(k) * 1j, sw.random.key(0)),
    "u8[], u8[], u8[], u8[], u8[], u8[], u8[], u8[] and 4 more -> u8[]": lambda: (
        lambda *a: sum(a),
        *[np.uint8(3)] * 12,
    ),
}


@pytest.mark.parametrize("types", CASES)
def test_types_of_a_program(types):
    function, *args = CASES[types]()
    assert program_types(sw.jit(function, keep_unused=True).lower(*args).as_text()) == types


def test_no_program_has_no_types():
    assert program_types("") == ""

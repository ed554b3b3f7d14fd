"""The advice of errors over explicit mesh axes works when copied literally."""

from __future__ import annotations

import inspect
import operator
import re
import warnings
from importlib import import_module

import numpy as np
import pytest

import shardwise
import shardwise as sw
from shardwise.errors import ShardingTypeError
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import failing_calls, message, raised
from tests.helpers.everyday import everyday

MESH = sw.make_mesh((4, 2), ("x", "y"))
SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)


def put(a, *spec):
    return sw.device_put(a, NamedSharding(MESH, P(*spec)))


@pytest.fixture(scope="module")
def given():
    return {
        "A": put(SQUARE, "x"),
        "B": put(SQUARE, None, "x"),
        "C": put(SQUARE, "y"),
        "D": put(SQUARE, "x", "y"),
        "v": put(SQUARE[1], "x"),
        "w": put(SQUARE[2], "y"),
        "i": put(np.arange(8, dtype=np.int32), "x"),
        "m": put(SQUARE % 3 == 0, "x"),
    }


# -- full messages --

MESSAGES = """
A @ B
    ShardingTypeError: matmul: operands f32[8@x,8], f32[8,8@x] would shard dimensions 0 and 1 of
    the result over the same mesh axis, 'x'. Use `shardwise.sharding.reshard(y, P())`, or specify
    how the result is sharded: `shardwise.numpy.matmul(x, y, out_sharding=P(...))`.
D.dot(C)
    ShardingTypeError: dot: operands f32[8@x,8@y], f32[8@y,8] are sharded over ('y',) along a
    contracted dimension, so the result's sharding is ambiguous. Use `shardwise.sharding.reshard(b,
    P())`, or specify how the result is sharded: `shardwise.numpy.dot(x, b, out_sharding=P(...))`.
sw.numpy.einsum("ij,jk->ik", A, B)
    ShardingTypeError: einsum: operands f32[8@x,8], f32[8,8@x] would shard dimensions 0 and 1 of
    the result over the same mesh axis, 'x'. Use `shardwise.sharding.reshard(operands[1], P())`, or
    specify how the result is sharded: `shardwise.numpy.einsum(subscripts, *operands,
    out_sharding=P(...))`.
sw.numpy.matmul(B, C)
    ShardingTypeError: matmul: operands f32[8,8@x], f32[8@y,8] disagree about the sharding of
    dimensions 1 and 0: ('x',) and ('y',). Use `shardwise.sharding.reshard(b, P())`, or specify how
    the result is sharded: `shardwise.numpy.matmul(a, b, out_sharding=P(...))`.
A[np.array([0, 1])]
    ShardingTypeError: [gather] cannot operate along dimension 0 of f32[8@x,8], which is sharded
    over ('x',). Use `shardwise.sharding.reshard(x, P())`, or specify how the result is sharded:
    `x.at[idx].get(out_sharding=P(...))`.
v.at[i].set(w)
    ShardingTypeError: .at[...].set: cannot operate along dimension 0 of i32[8@x,1], which is
    sharded over ('x',). Use `shardwise.sharding.reshard(x, P())` on all arguments, or specify how
    the result is sharded: `x.at[idx].set(values, out_sharding=P(...))`.
B.flatten()
    ShardingTypeError: flatten: cannot carry the sharding of f32[8,8@x] over to shape (64,): the
    shards of a dimension would not be shards of a single new dimension. Use
    `shardwise.sharding.reshard(x, P())`, or specify how the result is sharded:
    `x.flatten(out_sharding=P(...))`.
sw.numpy.sort(D)
    ShardingTypeError: sort: cannot operate along dimension 1 of f32[8@x,8@y], which is sharded
    over ('y',). Use `shardwise.sharding.reshard(a, P('x'))`.
sw.lax.cumsum(D)
    ShardingTypeError: cumsum: cannot operate along dimension 0 of f32[8@x,8@y], which is sharded
    over ('x',). Use `shardwise.sharding.reshard(operand, P(None, 'y'))`.
sw.numpy.median(A, axis=0)
    ShardingTypeError: median: cannot operate along dimension 1 of f32[8,8@x], which is sharded
    over ('x',). Use `shardwise.sharding.reshard(a, P())`. Here a is of type f32[8@x,8].
sw.numpy.setdiff1d(v, w)
    ShardingTypeError: setdiff1d: cannot operate along dimension 0 of f32[8@x], which is sharded
    over ('x',). Use `shardwise.sharding.reshard(x, P())` on all arguments. Here ar2 is of type
    f32[8@y].
sw.numpy.where(m, A, C)
    ShardingTypeError: where: operands bool[8@x,8], f32[8@y,8], f32[8@x,8] disagree about the
    sharding of dimension 0: ('x',) and ('y',). Use `shardwise.sharding.reshard(y, P('x'))`.
sw.grad(lambda a: (a @ B).sum())(A)
    ShardingTypeError: matmul: operands f32[8@x,8], f32[8,8@x] would shard dimensions 0 and 1 of
    the result over the same mesh axis, 'x'. Use `shardwise.sharding.reshard(y, P())`, or specify
    how the result is sharded: `shardwise.numpy.matmul(x, y, out_sharding=P(...))`.
sw.numpy.matmul(A, D, out_sharding=P(unreduced={"y"}))
    ShardingTypeError: matmul: out_sharding P(unreduced={'y'}) leaves 'y' unreduced, but not all
    operands are sharded over it; got f32[8@x,8], f32[8@x,8@y]. Leave `unreduced` out, or shard the
    summed dimensions of each operand over it.
A + sw.device_put(SQUARE, NamedSharding(sw.make_mesh((8,), ("x",)), P("x")))
    ShardingTypeError: add: operands are on different meshes: AbstractMesh('x': 4, 'y': 2,
    axis_types=(Explicit, Explicit)) and AbstractMesh('x': 8, axis_types=(Explicit,)). Use
    `shardwise.sharding.reshard(x, NamedSharding(mesh, P(...)))` on one of them.
"""


@failing_calls(MESSAGES)
def test_whole_messages(given, call, error):
    assert raised(eval, call, globals() | given) == error


def test_sums_that_are_not_taken_yet(given):
    x = shardwise.sharding.reshard(given["A"], P(unreduced={"x"}))
    assert message(RuntimeError, np.asarray, x) == (
        "array of type f32[8,8]{U:x} is unreduced: its devices hold partial sums. "
        "Read `shardwise.sharding.reshard(x, P(None, None))` instead."
    )
    np.testing.assert_array_equal(shardwise.sharding.reshard(x, P(None, None)), SQUARE)
    place = NamedSharding(MESH, P(unreduced={"x"}))
    assert message(ValueError, sw.device_put, SQUARE, place) == (
        "device_put: x: a value of type f32[8,8] cannot be placed with unreduced axes, which "
        f"{place} requires. Place it without unreduced axes, and use "
        "`shardwise.sharding.reshard(x, P(unreduced={'x'}))`."
    )


def test_other_meshes_can_be_brought_together(given):
    here = sw.device_put(SQUARE, NamedSharding(sw.make_mesh((8,), ("x",)), P("x")))
    there = shardwise.sharding.reshard(here, NamedSharding(MESH, P("y")))
    np.testing.assert_array_equal(given["C"] + there, SQUARE * 2)


# -- the advice, taken --

ARGUMENTS = [
    *"AvBDi",
    *[(k, n) for k in "AvBD" for n in (0, 1)],
    ("A", (64,)),
    ("D", (64,)),
    *["AC", "AB", "BA", "BC", "DD", "CD", "vw", "vv", "Ai", "vi", "Av", "mA", "mAC", "Di"],
]
OPERATORS = {
    "x + y": operator.add,
    "x @ y": operator.matmul,
    "x < y": operator.lt,
    "x[idx]": operator.getitem,
}
SPACES = {
    name: import_module(f"shardwise.{name}")
    for name in """numpy lax nn numpy.linalg numpy.fft
    lax.linalg ops scipy.linalg""".split()
}
FUNCTIONS = [
    *[
        f"{space}.{name}"
        for space, module in SPACES.items()
        for name in sorted(dir(module))
        if not name.startswith("_")
        and not name.endswith("_p")
        and callable(getattr(module, name))
        and not inspect.isclass(getattr(module, name))
        and name not in ("save", "savez", "set_printoptions")  # for everything that runs after it
        and name != "histogramdd"  # slow, and as histogram2d
    ]
]
# The number of successive errors with advice, where it is not one: for functions of several steps,
# and where operands disagree and are sharded along dimensions that the function works along.
STEPS = dict.fromkeys(
    """numpy.histogram2d lax.linalg.symmetric_product scipy.linalg.eigh scipy.linalg.expm_frechet
    scipy.linalg.qr_multiply scipy.linalg.solve_sylvester""".split(),
    2,
)
OWN_NAMES = {"x + y": "xy", "x @ y": "xy", "x < y": "xy", "x[idx]": ("x", "idx")}


def replaced(advice, text, names, values):
    """The arguments after `reshard` of one or all of them."""
    name, spec = re.fullmatch(r"shardwise\.sharding\.reshard\((\w+), (.*)\)", advice).groups()
    spec = eval(spec, {"P": P})
    if "` on all arguments" in text:
        assert spec == P()
    else:
        assert name in names, (text, names)
    return [
        shardwise.sharding.reshard(x, spec)
        if isinstance(x, sw.Array) and (n == name or "` on all arguments" in text)
        else x
        for n, x in zip(names, values, strict=False)
    ]


def try_advice(path, fun, names, values):
    said = []  # other calls, which would also work, and their functions
    for step in range(1 + STEPS.get(path, 1)):
        try:
            fun(*values)
            break
        except ShardingTypeError as error:
            text = str(error)
        except Exception as error:
            assert not step or isinstance(error, TypeError | ValueError), error  # wrong, too
            return  # no such call
        assert step < STEPS.get(path, 1), text
        first, *others = re.findall(r"`([^`]*)`", text[text.index(" Use `") :])
        given = {"shardwise": shardwise, "P": P, **dict(zip(names, values, strict=False))}
        said += [(call.replace("P(...)", "P()"), given) for call in others]
        values = replaced(first, text, names, values)
    for call, given in said:
        eval(call, given)


@pytest.mark.parametrize("path", [*OPERATORS, *everyday(FUNCTIONS, 6)])
def test_the_advice_is_good(given, path):
    if path in OPERATORS:
        fun, names = OPERATORS[path], OWN_NAMES[path]
    else:
        space, _, name = path.rpartition(".")
        fun = getattr(import_module(f"shardwise.{space}"), name)
        try:
            parameters = inspect.signature(fun).parameters.values()
        except ValueError:
            return
        if any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return
        names = [p.name for p in parameters]
    for row in ARGUMENTS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try_advice(path, fun, names, [given[k] if isinstance(k, str) else k for k in row])

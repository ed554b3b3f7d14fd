"""What is counted in HLO texts: runs of loops, and elements that meet in convolutions."""

import itertools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise._src.explain.hlo import read
from shardwise._src.explain.machines import machine_of
from shardwise._src.explain.work import _pairs
from tests.helpers.targets import needs_tpu

LOOP = """\
HloModule loop

%condition (arg: (s32[], s32[], f32[4])) -> pred[] {
  %arg = (s32[], s32[], f32[4]) parameter(0)
  %now = s32[] get-tuple-element(%arg), index=0
  %other = s32[] get-tuple-element(%arg), index=1
  %bound = s32[] constant(BOUND)
  ROOT %less = pred[] compare(%now, COMPARED), direction=DIRECTION
}

%body (arg.1: (s32[], s32[], f32[4])) -> (s32[], s32[], f32[4]) {
  %arg.1 = (s32[], s32[], f32[4]) parameter(0)
  %before = s32[] get-tuple-element(%arg.1), index=0
  %kept = s32[] get-tuple-element(%arg.1), index=1
  %x = f32[4] get-tuple-element(%arg.1), index=2
  %one = s32[] constant(STEP)
  %next = s32[] CHANGE
  %y = f32[4] sine(%x)
  ROOT %all = (s32[], s32[], f32[4]) tuple(%next, KEPT, %y)
}

ENTRY %main (in: f32[4], n: s32[]) -> f32[4] {
  %in = f32[4] parameter(0)
  %n = s32[] parameter(1)
  %zero = s32[] constant(BEGIN)
  %copied = s32[] copy(%zero)
  %ten = s32[] constant(10)
  %first = (s32[], s32[], f32[4]) tuple(%copied, SECOND, %in)
  %loop = (s32[], s32[], f32[4]) while(%first), condition=%condition, body=%body
  ROOT %out = f32[4] get-tuple-element(%loop), index=2
}
"""
USUAL = {"BOUND": "24", "COMPARED": "%bound", "DIRECTION": "LT", "STEP": "1", "BEGIN": "0",
         "CHANGE": "add(%before, %one)", "KEPT": "%kept", "SECOND": "%ten"}  # fmt: skip
LOOPS = [
    ({}, 24),
    ({"BEGIN": "3", "STEP": "5"}, 5),
    ({"DIRECTION": "LE"}, 25),
    ({"DIRECTION": "NE"}, 24),
    ({"BOUND": "-1"}, 0),
    ({"BOUND": "0", "BEGIN": "9", "STEP": "-2", "DIRECTION": "GT"}, 5),
    ({"BOUND": "0", "BEGIN": "9", "CHANGE": "subtract(%before, %one)", "DIRECTION": "GE"}, 10),
    ({"CHANGE": "add(%one, %before)"}, 24),
    ({"COMPARED": "%other"}, 10),  # a bound that the loop does not change
    ({"COMPARED": "%other", "SECOND": "%n"}, None),
    ({"COMPARED": "%other", "KEPT": "%before"}, None),
    ({"CHANGE": "multiply(%before, %one)"}, None),
    ({"STEP": "-1"}, None),  # it does not end
    ({"DIRECTION": "EQ"}, None),
]


@pytest.mark.parametrize(("changes", "runs"), LOOPS, ids=[str(c) for c, _ in LOOPS])
def test_loops_count_from_a_constant_to_a_constant(changes, runs):
    text = LOOP
    for name, value in (USUAL | changes).items():
        text = text.replace(name, value)
    found = read(text).runs["body"]
    assert found == ((1, False) if runs is None else (runs, True))


def test_pairs_of_a_convolution():
    sizes = itertools.product((1, 5), (1, 4), (1, 3), (1, 3), (-1, 0, 2), (1, 4), (1, 2))
    for n, results, size, stride, low, base, dilation in sizes:
        positions = [r * stride + k * dilation - low for r in range(results) for k in range(size)]
        met = [p for p in positions if 0 <= p <= (n - 1) * base and p % base == 0]
        assert _pairs(n, results, size, stride, low, base, dilation) == len(met)


def test_nodes_of_gpus_are_what_a_fast_link_joins():
    """72 GB200 are connected by NVLink, though each host has four."""
    nodes = {name: machine_of(name, None).node for name in ("gb200:18x4", "h100:2x8", "h100:2x4")}
    assert nodes == {"gb200:18x4": 72, "h100:2x8": 8, "h100:2x4": 4}


@needs_tpu
def test_loops_and_batched_products_on_tpus():
    """The compiler states no lengths of loops, and makes convolutions of the products."""

    def f(x, w):
        return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]

    x = sw.ShapeDtypeStruct((4, 64, 128), np.float32)
    w = sw.ShapeDtypeStruct((6, 4, 128, 128), np.float32)
    found = explain(f, machine="tpu-v5e:1")(x, w).computation
    assert (found.known, found.flops) == (True, {"f32": 6 * 2 * 4 * 64 * 128 * 128})

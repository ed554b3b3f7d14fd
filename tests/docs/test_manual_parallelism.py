"""The programs in docs/manual_parallelism.md, extracted from it, on one to eight devices.

Each is compared with the same computation on full arrays: by NumPy in 64 bits, derivatives by
differences, and by `jit`, whose partitioner shards it. A program sends what the page states.
"""

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain
from shardwise._src.core.program import Literal
from shardwise._src.core.program_tools import programs_in
from shardwise._src.ops.sharded.collective import ppermute
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.docs.test_docs import ROOT, program_of
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of

DOCUMENT = ROOT / "docs" / "manual_parallelism.md"
ROWS, ALL = P("x"), P()
COUNTS = [1, 2, 4, 8]
TOLERANCES = {"float32": 2e-5, "bfloat16": 4e-2}


def functions_of(path: Path) -> SimpleNamespace:
    """The imports and definitions of a document, without the statements that it runs."""
    tree = ast.parse(program_of(path.read_text())[0])
    kept = (ast.Import, ast.ImportFrom, ast.FunctionDef)
    tree.body = [node for node in tree.body if isinstance(node, kept)]
    found = {}
    exec(compile(tree, str(path), "exec"), found)
    return SimpleNamespace(**found)


DOC = functions_of(DOCUMENT)


# -- the programs on full arrays: `np` is NumPy or shardwise.numpy, n the number of devices --


def softmax(np, x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gelu(np, x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def total(np, n, x):
    return np.broadcast_to(x.sum(0), x.shape)


def heat(np, n, u):
    for _ in range(4):
        wide = np.pad(u, 1)
        u = u + 0.25 * (wide[:-2] - 2 * u + wide[2:])
    return u


def stack(np, n, layers, x):
    for layer in layers:
        x = np.tanh(x @ layer)
    return np.mean(x**2)


def layers_in_turn(np, n, layers, batch):
    for layer in layers:
        batch = np.tanh(batch @ layer)
    return batch


def gathered(np, n, x, w):
    return x @ w


def mlp(np, n, x, up, down):
    return gelu(np, x @ up) @ down


def attention(np, n, q, k, v, causal=False):
    scores = np.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    scores = np.where(np.tri(len(q), dtype=bool) | (not causal), scores, -1e30)
    return np.einsum("hqk,khd->qhd", softmax(np, scores), v)


def causal_attention(np, n, q, k, v):
    return attention(np, n, q, k, v, causal=True)


def mixture(np, n, x, gate, up, down, capacity=64, groups=None):
    """Two experts for each token, with `capacity` slots in each expert for each group of tokens.

    Devices define the groups by default. First choices are served first, on each device.
    """
    scores, experts = softmax(np, x @ gate), np.arange(gate.shape[1])
    order = np.argsort(-scores, axis=-1)[:, :2]
    chosen = order[..., None] == experts  # bool[tokens, 2, experts]
    queues = chosen.reshape(n, -1, *chosen.shape[1:]).swapaxes(1, 2)  # by device, then by choice
    place = np.cumsum(queues.reshape(groups or n, -1, len(experts)), axis=1).reshape(queues.shape)
    served = (queues & (place <= capacity)).swapaxes(1, 2).reshape(chosen.shape)
    weights = np.where(chosen, scores[:, None], 0)
    weights = weights / weights.sum((1, 2), keepdims=True)
    hidden = gelu(np, np.einsum("td,edf->etf", x, up))
    answers = np.einsum("etf,efd->etd", hidden, down)
    return np.einsum("tce,etd->td", np.where(served, weights, 0), answers)


def crowded(np, n, *args):
    return mixture(np, n, *args, capacity=3)


def crowded_in_all(np, n, *args):
    return mixture(np, n, *args, capacity=7, groups=1)


# -- the programs of the document, with specs of arguments and results --


def many(x):
    return DOC.ring_sum(x[0])[None]


def steps_of_heat(u):
    return DOC.heat(u, 4)


def causal_ring(q, k, v):
    return DOC.ring_attention(q, k, v, causal=True)


def roomy(*args):
    return DOC.routed(*args, capacity=64)


def tight(*args):
    return DOC.routed(*args, capacity=3)


def by_need(*args):
    return DOC.routed_by_need(*args, room=64)


def tight_by_need(*args):
    return DOC.routed_by_need(*args, room=7)


def permutes(count):
    """Counts in the backward pass and in the forward pass, by the number of devices."""
    return lambda n: [{"collective-permute": count(n)}, {"collective-permute": 2 * count(n)}]


def exchanges(n):
    """The gate is replicated: its derivative is summed."""
    return {"all-to-all": 2}, {"all-to-all": 4, "all-reduce": 1}


def gathers(n):
    return (
        {"all-gather": 3, "all-reduce": 1},
        {"all-gather": 6, "all-reduce": 1, "reduce-scatter": 3},
    )


def ragged(n):
    """Exchanges of the counts, and of rows, there and back; and of the offsets, twice."""
    value = {"all-gather": 3, "all-to-all": 2}
    return value, {**value, "reduce-scatter": 2, "all-reduce": 1}


SEQUENCE = [(16, 2, 4)] * 3
EXPERTS = [(32, 8), (8, 8), (8, 8, 12), (8, 12, 8)]
BY_EXPERT = (ROWS, ALL, ROWS, ROWS)
HIDDEN = (ROWS, P(None, "x"), ROWS)

# By name: manual program, program on full arrays, shapes (for n devices), specs, collectives.
PROGRAMS = {
    "ring": (many, total, lambda n: [(n, 8, 3)], (ROWS,), ROWS, permutes(lambda n: 2 * (n - 1))),
    "heat": (steps_of_heat, heat, lambda n: [(24,)], (ROWS,), ROWS,
             permutes(lambda n: 8)),
    "sharded parameters": (DOC.sharded_loss, stack, lambda n: [(3, 8, 8), (16, 8)],
                           (P(None, "x"), ROWS), ALL, gathers),
    "pipeline": (DOC.pipeline, layers_in_turn, lambda n: [(n, 4, 4), (6, 5, 4)], (ROWS, ALL), ALL,
                 lambda n: ({"all-reduce": 1, "collective-permute": n + 5},
                            {"all-reduce": 2, "collective-permute": 2 * (n + 5)})),
    "gathered": (DOC.gathered_matmul, gathered, lambda n: [(16, 8), (8, 16)],
                 (ROWS, P(None, "x")), P(None, "x"), permutes(lambda n: n - 1)),
    "mlp": (DOC.mlp, mlp, lambda n: [(16, 8), (8, 32), (32, 8)], HIDDEN, ROWS,
            permutes(lambda n: 2 * (n - 1))),
    "attention": (DOC.ring_attention, attention, lambda n: SEQUENCE, (ROWS,) * 3, ROWS,
                  permutes(lambda n: 2 * (n - 1))),
    "causal": (causal_ring, causal_attention, lambda n: SEQUENCE, (ROWS,) * 3, ROWS,
               permutes(lambda n: 2 * (n - 1))),
    "experts": (roomy, mixture, lambda n: EXPERTS, BY_EXPERT, ROWS, exchanges),
    "crowded experts": (tight, crowded, lambda n: EXPERTS, BY_EXPERT, ROWS, exchanges),
    "experts by need": (by_need, mixture, lambda n: EXPERTS, BY_EXPERT, ROWS, ragged),
    "too many": (tight_by_need, crowded_in_all, lambda n: EXPERTS, BY_EXPERT, ROWS, ragged),
}  # fmt: skip


def setup(name, n, dtype):
    """Manual program; program on full arrays; the arguments on their devices, and in 64 bits."""
    by_hand, whole, shapes, ins, out, _ = PROGRAMS[name]
    mesh = mesh_of(n)
    mapped = sw.shard_map(by_hand, mesh=mesh, in_specs=ins, out_specs=out)
    rng = np.random.default_rng(1)
    host = [rng.normal(size=s) / (s[-2] ** 0.5 if len(s) > 1 else 1) for s in shapes(n)]
    args = [sw.device_put(x.astype(dtype), NamedSharding(mesh, spec))
            for x, spec in zip(host, ins, strict=True)]  # fmt: skip
    return mapped, whole, args, [np.asarray(x).astype(np.float64) for x in args]


def gradient(f, count):
    """The gradients of a sum of sines of the results of `f`."""

    def loss(*args):
        return jnp.sum(jnp.sin(f(*args).astype("float32")))

    return sw.grad(loss, tuple(range(count)))


def with_gradient(f, count):
    return lambda *args: (f(*args), gradient(f, count)(*args))


def runs(f, args):
    found = explain.collectives(sw.jit(f).lower(*args).compile())
    kinds = {c.kind for c in found}
    return {kind: sum(c.runs for c in found if c.kind == kind) for kind in kinds}


def near(got, wanted, dtype):
    np.testing.assert_allclose(
        np.asarray(got).astype(np.float64), np.asarray(wanted).astype(np.float64),
        rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * max(1, np.abs(wanted).max()),
    )  # fmt: skip


CASES = [(name, n, dtype) for name in PROGRAMS for n in COUNTS for dtype in TOLERANCES]


@pytest.mark.parametrize(("name", "n", "dtype"), everyday(CASES, 1))
def test_by_hand_by_the_partitioner_and_by_numpy(name, n, dtype):
    by_hand, whole, args, exact = setup(name, n, dtype)
    wanted = whole(np, n, *exact)

    def divided(*args):  # in 32 bits: results of 16 are rounded once
        return whole(jnp, n, *[x.astype("float32") for x in args]).astype(dtype)

    directions = [np.cos(np.arange(x.size)).reshape(x.shape) for x in exact]
    h = 1e-6
    up, down = (
        np.sum(np.sin(whole(np, n, *[x + s * d for x, d in zip(exact, directions, strict=True)])))
        for s in (h, -h)
    )
    slopes = []
    for f in (by_hand, divided):
        value, found = sw.jit(with_gradient(f, len(args)))(*args)
        assert value.dtype == dtype
        near(value, wanted, dtype)
        slopes.append([np.asarray(g) for g in found])
        products = [np.sum(g.astype(np.float64) * d)
                    for g, d in zip(slopes[-1], directions, strict=True)]  # fmt: skip
        size = sum([np.abs(g.astype(np.float64)).sum() for g in slopes[-1]])
        assert abs(sum(products) - (up - down) / (2 * h)) <= TOLERANCES[dtype] * max(1, size)
    for hand, found in zip(*slopes, strict=True):
        near(hand, found, dtype)


@pytest.mark.parametrize(
    ("name", "n"), everyday([(name, n) for name in PROGRAMS for n in COUNTS[1:]], 1)
)
def test_what_is_written_is_sent(name, n):
    by_hand, _, args, _ = setup(name, n, "float32")
    value, backward = PROGRAMS[name][-1](n)
    assert runs(by_hand, args) == value
    assert runs(gradient(by_hand, len(args)), args) == backward


@pytest.mark.parametrize("name", everyday(PROGRAMS, 2))
def test_one_device_sends_nothing(name):
    by_hand, _, args, _ = setup(name, 1, "float32")
    assert runs(by_hand, args) == {}


@pytest.mark.parametrize("n", [2, 8])
def test_a_ring_sends_twice_what_it_has(n):
    by_hand, _, args, _ = setup("ring", n, "float32")
    found = explain.collectives(sw.jit(by_hand).lower(*args).compile())
    assert sum(c.bytes * c.runs for c in found) == 2 * args[0].nbytes / n * (n - 1) / n
    assert {c.pairs for c in found} == {tuple([(i, (i + 1) % n) for i in range(n)])}


def waits(program):
    """The names of operations in a program that need the result of one of its permutations."""
    brought, found = set(), []
    for eqn in program.eqns:
        needed = {a for a in eqn.invars if not isinstance(a, Literal)}
        if eqn.op is ppermute or needed & brought:
            brought.update(eqn.outvars)
            found.append(eqn.op.name)
    return found


@pytest.mark.parametrize("name", ["gathered", "mlp", "attention"])
def test_products_do_not_wait_for_what_travels(name):
    by_hand, _, args, _ = setup(name, 4, "float32")
    program = sw.jit(by_hand).trace(*args).program
    rounds = [p for p in programs_in(program) if any(e.op is ppermute for e in p.eqns)]
    assert rounds
    for p in rounds:
        assert {*waits(p)} <= {"ppermute", "add"}

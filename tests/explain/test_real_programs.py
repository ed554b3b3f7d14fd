"""Reports of thirty programs: they agree with the HLO of the same programs, compiled as
a call compiles them; and each collective leads to a line of the program."""

from collections import Counter

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax, nn
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH


def a(*shape, by=(), dtype=np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*by)))


def put(value, *by):
    return lax.with_sharding_constraint(value, NamedSharding(MESH, P(*by)))


def softmax_loss(w, x, labels):
    return -(nn.log_softmax(x @ w) * nn.one_hot(labels, 16)).sum(-1).mean()


def attention(q, k, v):
    return nn.softmax(q @ k.swapaxes(-1, -2) / 4.0) @ v


def norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def recurrent(w, xs):
    def step(h, x):
        h = jnp.tanh(x + h @ w)
        return h, h.mean()

    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)


def momentum(w, m, x):
    g = sw.grad(lambda w: ((x @ w) ** 2).mean())(w)
    m = 0.9 * m + g
    return w - 0.1 * m, m


def experts(x, w, gate):
    weights = nn.softmax(x @ gate)
    return jnp.einsum("td,edf,te->tf", x, w, weights)


def convolution(x, k):
    return lax.conv_general_dilated(x, k, (1, 1), "SAME")


def power(w):
    def step(i, v):
        v = w @ v
        return v / jnp.linalg.norm(v)

    return lax.fori_loop(0, 7, step, jnp.ones(w.shape[0]))


def chosen(flag, x):
    return lax.cond(flag, lambda v: v.sum(0), lambda v: v.max(0), x)


def manual(x):
    def each(v):
        return lax.all_gather(v, "x", tiled=True) + lax.ppermute(
            lax.psum(v, "y").sum(), "x", [(i, (i + 1) % 4) for i in range(4)]
        )

    return sw.shard_map(each, mesh=MESH, in_specs=P("x", "y"), out_specs=P(None, "y"),
                        check_vma=False)(x)  # fmt: skip


PROGRAMS = {
    "cross entropy": (sw.grad(softmax_loss),
                      [a(8, 16, by=(None, "y")), a(32, 8, by=("x",)),
                       a(32, by=("x",), dtype=np.int32)]),
    "attention over the sequence": (attention, [a(2, 16, 16, by=(None, "x"))] * 3),
    "attention over heads": (attention, [a(8, 16, 16, by=("x",))] * 3),
    "attention, gradient": (sw.grad(lambda *v: attention(*v).sum(), (0, 1, 2)),
                            [a(2, 16, 16, by=(None, "x", "y"))] * 3),
    "layer norm over features": (norm, [a(16, 32, by=("x", "y")), a(32, by=("y",))]),
    "layer norm, gradient": (sw.grad(lambda x, s: norm(x, s).sum(), (0, 1)),
                             [a(16, 32, by=("x", "y")), a(32)]),
    "recurrent": (recurrent, [a(16, 16, by=("x",)), a(5, 8, 16)]),
    "recurrent, gradient": (sw.grad(lambda w, x: recurrent(w, x)[1].sum()),
                            [a(16, 16, by=("x",)), a(5, 8, 16, by=(None, "y"))]),
    "momentum": (momentum, [a(16, 8, by=("y",)), a(16, 8, by=("y",)), a(32, 16, by=("x",))]),
    "experts": (experts, [a(16, 8, by=("x",)), a(4, 8, 8, by=("y",)), a(8, 4)]),
    "convolution over the batch": (convolution, [a(8, 3, 8, 8, by=("x",)), a(4, 3, 3, 3)]),
    "convolution over rows": (convolution, [a(2, 3, 16, 8, by=(None, None, "x")), a(4, 3, 3, 3)]),
    "convolution, gradient": (sw.grad(lambda x, k: (convolution(x, k) ** 2).sum(), 1),
                              [a(8, 3, 8, 8, by=("x",)), a(4, 3, 3, 3)]),
    "power iteration": (power, [a(16, 16, by=("x",))]),
    "branches": (chosen, [a(dtype=np.bool_), a(16, 8, by=("x",))]),
    "manual": (manual, [a(8, 8, by=("x", "y"))]),
    "sort along": (lambda x: jnp.sort(x, 0), [a(16, 8, by=("x",))]),
    "sort across": (lambda x: jnp.sort(x, 1), [a(16, 8, by=("x",))]),
    "argmax": (lambda x: x.argmax(0), [a(16, 8, by=("x",))]),
    "cumulative sum": (lambda x: jnp.cumsum(x, 0) * 2, [a(16, 8, by=("x",))]),
    "gather of rows": (lambda x, i: x[i], [a(16, 8, by=("x",)), a(5, dtype=np.int32)]),
    "scatter of rows": (lambda x, i: x.at[i].add(1), [a(16, 8, by=("x",)), a(5, dtype=np.int32)]),
    "transposed": (lambda x: put(x.T, "x"), [a(16, 8, by=("x",))]),
    "resharded": (lambda x: put(x * 2, None, ("x", "y")), [a(16, 8, by=("x",))]),
    "reshaped": (lambda x: x.reshape(-1) + 1, [a(16, 8, by=(None, "x"))]),
    "concatenated": (lambda x, y: jnp.concatenate([x, y]), [a(8, 8, by=("x",)), a(4, 8)]),
    "rolled": (lambda x: jnp.roll(x, 3, 0), [a(16, 8, by=("x",))]),
    "uneven": (lambda x: (x[::-1] + x).sum(1), [a(13, 8, by=("x",))]),
    "stencil": (lambda x: x[2:] - 2 * x[1:-1] + x[:-2], [a(18, 8, by=("x",))]),
    "variance": (lambda x: x.var(), [a(16, 8, by=("x", "y"))]),
}  # fmt: skip


def test_there_are_thirty():
    assert len(PROGRAMS) == 30


def in_hlo(f, args):
    """Collectives of one run by kind, axes and bytes, with the program compiled as by a call."""
    compiled = sw.jit(f).lower(*args).compile()
    found = Counter()
    for s in explain.summarize(explain.collectives(compiled), MESH):
        found[s.kind, s.axes] += s.bytes
    return found, compiled.memory_analysis()


@pytest.mark.parametrize("name", everyday(PROGRAMS, 3, "reports of real programs"))
def test_a_report_is_of_what_runs(name):
    f, args = PROGRAMS[name]
    report = explain(f)(*args)
    wanted, memory = in_hlo(f, args)
    found = Counter()
    for c in report.communication:
        found[c.kind, c.axes] += c.bytes
    assert found == wanted
    assert report.memory.arguments == memory.argument_size_in_bytes
    assert report.memory.temporaries == memory.temp_size_in_bytes
    for c in report.communication:
        assert c.op and c.line.startswith(f"{__file__}:"), c
        assert report.lines[c.line]
        assert c.axes is not None, c


@pytest.mark.parametrize("name", everyday(PROGRAMS, 3, "causes in real programs"))
def test_every_cause_names_what_splits(name):
    f, args = PROGRAMS[name]
    for c in explain(f)(*args).communication:
        named = any(f"'{axis}'" in c.why for axis in c.axes)
        requested = c.why.startswith("requested by ") or c.why.endswith("changes the sharding")
        assert named or requested, c

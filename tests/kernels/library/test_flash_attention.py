"""`flash_attention` against attention that stores the scores, in float64."""

import itertools

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax, nn
from shardwise import numpy as jnp
from shardwise._src.core.program_tools import walk
from shardwise.kernels.library import flash_attention
from shardwise.sharding import PartitionSpec as P
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)
SMALL = {"blocks": (16, 16)}


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def inputs(b, t, s, n, k, h, dtype=np.float32):
    return tuple(
        normal(*shape, dtype=dtype) for shape in ((b, t, n, h), (b, s, k, h), (b, s, k, h))
    )


def visible(b, t, s, is_causal=False, window=None, segment_ids=None, lengths=None, **_):
    """Which keys a query attends to: (B, T, S)."""
    row, column = np.arange(t)[:, None], np.arange(s)
    found = np.ones((b, t, s), bool)
    if is_causal:
        found &= column <= row
    if window is not None:
        left, right = window if isinstance(window, tuple) else (window, window)
        found &= (left is None or column >= row - left) & (right is None or column <= row + right)
    if segment_ids is not None:
        of_q, of_k = segment_ids if isinstance(segment_ids, tuple) else (segment_ids,) * 2
        found &= of_q[:, :, None] == of_k[:, None]
    if lengths is not None:
        of_q, of_k = lengths if isinstance(lengths, tuple) else (lengths, lengths)
        found &= True if of_q is None else row < of_q[:, None, None]
        found &= True if of_k is None else column < of_k[:, None, None]
    return found


def attention(xp, mask, scale=None):
    """The same function, with all scores: `xp` is NumPy or jax.numpy."""

    def f(q, k, v):
        k, v = [xp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v)]
        scores = xp.einsum("btnh,bsnh->bnts", q, k) * (scale or q.shape[-1] ** -0.5)
        scores = xp.where(mask[:, None], scores, -1e30)
        weights = xp.where(mask[:, None], xp.exp(scores - scores.max(-1, keepdims=True)), 0)
        total = weights.sum(-1, keepdims=True)
        return xp.einsum("bnts,bsnh->btnh", weights / xp.where(total == 0, 1, total), v)

    return f


def ids(b, n):
    return np.sort(RNG.integers(0, 3, (b, n)), 1)


CASES = {  # sizes B, T, S, N, K, H; options
    "plain": ((2, 40, 24, 2, 2, 16), {}),
    "causal, grouped": ((2, 40, 40, 4, 2, 12), {"is_causal": True}),
    "window": ((1, 70, 33, 2, 1, 8), {"window": (20, 3)}),  # without keys from row 53 on
    "causal, window": ((1, 70, 70, 2, 1, 8), {"is_causal": True, "window": 5, "scale": 0.3}),
    "left window": ((1, 33, 70, 1, 1, 8), {"window": (4, None)}),
    "lengths": ((3, 40, 40, 2, 1, 8), {"lengths": np.array([17, 0, 40]), "is_causal": True}),
    "both lengths": (
        (3, 40, 24, 2, 2, 8),
        {"lengths": (np.array([17, 33, 40]), np.array([8, 24, 0]))},
    ),
    "key lengths": ((2, 20, 40, 2, 2, 8), {"lengths": (None, np.array([3, 33])), "window": 20}),
    "segments": ((2, 40, 40, 2, 1, 8), {"segment_ids": ids(2, 40)}),
    "both segments": (
        (2, 20, 40, 2, 2, 8),
        {"segment_ids": (ids(2, 20), ids(2, 40)), "lengths": (np.array([3, 20]), None)},
    ),
    "one position": ((2, 1, 1, 1, 1, 1), {}),
    "one query": ((2, 1, 40, 2, 1, 8), {}),
}


@pytest.mark.parametrize("name", everyday(CASES, 2))
def test_values_and_gradients(name):
    sizes, options = CASES[name]
    args, mask = inputs(*sizes), visible(*sizes[:3], **options)
    wanted = attention(np, mask, options.get("scale"))(*[x.astype(np.float64) for x in args])
    factors = normal(*args[0].shape)

    def total(f):
        def run(*xs):
            out = f(*xs)
            return (out * factors).sum(), out

        return sw.jit(sw.grad(run, (0, 1, 2), has_aux=True))

    moved, out = total(lambda *xs: flash_attention(*xs, **options, **SMALL))(*args)
    close(out, wanted.astype(np.float32), atol=1e-6)
    others, _ = total(attention(jnp, mask, options.get("scale")))(*args)
    close(moved, others, rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(dtype):
    sizes = 2, 40, 40, 4, 2, 16
    f = lambda *xs: flash_attention(*xs, is_causal=True, **SMALL)  # noqa: E731
    with sw.enable_x64(dtype == "float64"):
        args = [jnp.asarray(x, dtype) for x in inputs(*sizes)]
        out, moved = sw.jit(lambda *xs: (f(*xs), sw.vjp(f, *xs)[1](xs[0])))(*args)
        assert [x.dtype for x in (out, *moved)] == [dtype] * 4
        exact = [np.asarray(x, np.float64) for x in args]
        wanted = attention(np, visible(*sizes[:3], is_causal=True))(*exact)
        tolerance = {"bfloat16": 2e-2, "float16": 2e-3, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(np.asarray(out, np.float64), wanted, tolerance, tolerance)


@pytest.mark.parametrize("name", everyday(CASES, 1, of="checked"))
def test_checks_are_silent(name):
    sizes, options = CASES[name]
    args = inputs(*sizes)
    found = flash_attention(*args, **options, **SMALL, check=True)
    wanted = attention(np, visible(*sizes[:3], **options), options.get("scale"))(*args)
    close(found, wanted, atol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_derivatives_have_no_faults_of_memory(name):
    sizes, options = CASES[name]
    args = inputs(*sizes)
    back = lambda *xs: sw.vjp(lambda *xs: flash_attention(*xs, **options, **SMALL), *xs)[1](xs[0])  # noqa: E731
    close(kernels.checked(back)(*args), sw.jit(back)(*args), atol=1e-5)


def test_defaults_are_those_of_dot_product_attention():
    args = inputs(2, 30, 30, 4, 2, 16)
    close(flash_attention(*args), nn.dot_product_attention(*args), atol=1e-6)


MODES = [("rev",), ("fwd",), ("fwd", "rev")]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "modes"), [*itertools.product(CASES, MODES)])
def test_second_derivatives(name, modes):
    (b, t, s, n, k, _), options = CASES[name]
    with sw.enable_x64(True):
        args = inputs(b, t, s, n, k, 4, dtype=np.float64)
        check_grads(lambda *xs: flash_attention(*xs, **options, **SMALL), args, 2, modes)


@pytest.mark.sweep
@pytest.mark.parametrize("order", ["reverse", "forward"])
def test_derivatives_of_gradients(order):
    args = inputs(1, 20, 20, 2, 1, 8)
    mask = visible(1, 20, 20, is_causal=True)

    def moved(f):
        back = sw.grad(lambda *xs: jnp.sin(f(*xs)).sum(), (0, 1, 2))
        if order == "forward":
            return sw.jvp(back, args, args)[1]
        return sw.grad(lambda *xs: sum((g**2).sum() for g in back(*xs)), (0, 1, 2))(*args)

    found = sw.jit(lambda: moved(lambda *xs: flash_attention(*xs, is_causal=True, **SMALL)))()
    close(found, sw.jit(lambda: moved(attention(jnp, mask)))(), rtol=1e-4, atol=1e-4)


def test_blocks_without_scores_are_not_visited():
    def steps(**options):
        f = lambda *xs: flash_attention(*xs, **options, **SMALL)  # noqa: E731
        program = sw.make_jaxpr(sw.grad(lambda *xs: f(*xs).sum(), (0, 1)))(
            *inputs(1, 64, 64, 2, 1, 4)
        )
        launches = [e.params["launch"] for e in walk(program) if e.op.name == "kernel_call"]
        grids = {each.name.rpartition("_")[2]: each.grid[-2:] for each in launches}
        return [grids[name] for name in ("forward", "dq", "dkv")]

    assert steps() == steps(is_causal=True) == [(1, 4), (1, 4), (2, 4)]
    assert steps(window=(4, 0)) == [(1, 2), (1, 2), (2, 2)]
    assert steps(window=16) == [(1, 3), (1, 3), (2, 3)]


@pytest.mark.sweep
def test_maps():
    q, k, v = [np.stack([x, -x, 2 * x]) for x in inputs(2, 20, 20, 2, 1, 8)]
    lengths = np.array([[20, 3], [7, 8], [0, 19]])
    f = lambda q, k, v, n: flash_attention(q, k, v, lengths=n, is_causal=True, **SMALL)  # noqa: E731
    wanted = [
        attention(np, visible(2, 20, 20, is_causal=True, lengths=n))(*xs)
        for *xs, n in zip(q, k, v, lengths, strict=True)
    ]
    close(sw.jit(sw.vmap(f))(q, k, v, lengths), np.stack(wanted), atol=1e-5)


@pytest.mark.sweep
def test_maps_over_other_axes():
    q, k, v = [np.stack([x, -x, 2 * x]) for x in inputs(2, 20, 20, 2, 1, 8)]
    axes = (q.swapaxes(0, 1), k[0], np.moveaxis(v, 0, 2))
    same = sw.vmap(lambda *xs: flash_attention(*xs, **SMALL), (1, None, 2), 1)(*axes)
    f = attention(np, visible(2, 20, 20))
    close(same, np.stack([f(q[i], k[0], v[i]) for i in range(3)], 1), atol=1e-5)


def test_inside_of_control_flow():
    args, mask = inputs(1, 20, 20, 2, 1, 8), visible(1, 20, 20, is_causal=True)

    def run(f):
        def layer(q, _):
            out = lax.cond(q.sum() > -1e6, f, lambda q, k, v: q, q, *args[1:])
            return q + out, out.sum()

        loop = lambda q: lax.scan(sw.checkpoint(layer), q, None, length=2)[1].sum()  # noqa: E731
        return sw.jit(sw.value_and_grad(loop))(args[0])

    found = run(lambda *xs: flash_attention(*xs, is_causal=True, **SMALL))
    close(found, run(attention(jnp, mask)), rtol=1e-4, atol=1e-5)


def test_sharded_batches_and_heads():
    mesh = sw.make_mesh((4, 2), ("data", "heads"))
    args, spec = inputs(4, 20, 20, 4, 2, 8), P("data", None, "heads")
    f = lambda *xs: flash_attention(*xs, is_causal=True, **SMALL)  # noqa: E731
    mapped = sw.shard_map(f, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec)

    def gradient(f):
        return sw.jit(sw.value_and_grad(lambda *xs: jnp.sin(f(*xs)).sum(), (0, 1, 2)))(*args)

    wanted = gradient(attention(jnp, visible(4, 20, 20, is_causal=True)))
    close(gradient(mapped), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(0, 4, 4, 2, 1, 8), (2, 0, 4, 2, 1, 8), (2, 4, 0, 2, 1, 8)])
def test_nothing_to_attend_to(sizes):
    args = inputs(*sizes)
    out, back = sw.vjp(flash_attention, *args)
    close(out, np.zeros_like(args[0]))
    close(back(out), tuple(map(np.zeros_like, args)))


NAMES = {
    "flash_attention": flash_attention,
    "x": lambda *shape: np.zeros(shape, np.float32),
    "n": lambda *shape: np.zeros(shape, np.int32),
}
test_mistakes = messages(
    """
    flash_attention(x(4, 2, 8), x(4, 2, 8), x(4, 2, 8))
        ValueError: flash_attention: the arguments must be (B, T, N, H), (B, S, K, H) and
        (B, S, K, H); got f32[4,2,8], f32[4,2,8], f32[4,2,8].

    flash_attention(x(1, 4, 2, 8), x(1, 4, 2, 8), n(1, 4, 2, 8))
        ValueError: flash_attention: the arguments must be of one floating-point dtype; got
        f32[1,4,2,8], f32[1,4,2,8], i32[1,4,2,8].

    flash_attention(x(1, 4, 3, 8), x(1, 4, 2, 8), x(1, 4, 2, 8))
        ValueError: flash_attention: the arguments must be of a number of query heads that the key
        heads divide; got f32[1,4,3,8], f32[1,4,2,8], f32[1,4,2,8].

    flash_attention(*[x(1, 4, 2, 8)] * 3, window=-1)
        ValueError: flash_attention: window is a number of positions, or a pair of them, to the left
        and to the right; got -1 of type int.

    flash_attention(*[x(1, 4, 2, 8)] * 3, lengths=n(2))
        ValueError: flash_attention: lengths must be integers of shape (1,); got i32[2].

    flash_attention(*[x(1, 4, 2, 8)] * 3, segment_ids=x(1, 4))
        ValueError: flash_attention: segment_ids must be integers of shape (1, 4); got f32[1,4].

    flash_attention(*[x(1, 4, 2, 8)] * 3, blocks=16)
        ValueError: flash_attention: blocks is 2 positive integers, (queries, keys); got 16 of type
        int. Compilers of GPUs take powers of two; those of TPUs multiples of 8 and 128.
    """,
    NAMES,
)

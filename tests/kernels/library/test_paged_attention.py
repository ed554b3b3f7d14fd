"""`paged_attention` against attention to the pages of each sequence, joined, in float64."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.errors import KernelError
from shardwise.kernels.library import paged_attention
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message

RNG = np.random.default_rng(0)
LENGTHS = np.array([17, 0, 48, 1])
PAGES = np.array([[7, 2, -1], [99, 99, 99], [0, 5, 9], [3, 99, 99]])  # some are not read


def pool(heads=2, n=4, h=8):
    shapes = (4, n, h), (heads, 10, 16, h), (heads, 10, 16, h)
    return [RNG.standard_normal(s).astype(np.float32) for s in shapes]


def reference(xp, lengths=LENGTHS, pages=PAGES, scale=None):
    def f(q, k_pages, v_pages):
        group = q.shape[1] // k_pages.shape[0]
        rows = []
        for i, (query, length) in enumerate(zip(q, lengths, strict=True)):
            used = pages[i, : -(-length // 16)]
            k, v = [
                xp.repeat(xp.concatenate([x[:, :0, 0], *[x[:, p] for p in used]], 1), group, 0)
                for x in (k_pages, v_pages)
            ]
            scores = xp.einsum("nh,nsh->ns", query, k[:, :length]) * (scale or q.shape[-1] ** -0.5)
            weights = xp.exp(scores)
            weights = weights / xp.maximum(weights.sum(1, keepdims=True), 1e-30)
            rows.append(xp.einsum("ns,nsh->nh", weights, v[:, :length]))
        return xp.stack(rows)

    return f


def test_values():
    args = pool()
    wanted = reference(np)(*[x.astype(np.float64) for x in args]).astype(np.float32)
    close(paged_attention(*args, LENGTHS, PAGES, check=True), wanted, atol=1e-6)
    assert not np.asarray(wanted[1]).any()


@pytest.mark.sweep
def test_half_precision_and_one_key_head():
    args = [jnp.asarray(x, jnp.bfloat16) for x in pool(heads=1, n=3)]
    found = sw.jit(lambda *xs: paged_attention(*xs, LENGTHS, PAGES, scale=0.3))(*args)
    assert found.dtype == jnp.bfloat16
    wanted = reference(np, scale=0.3)(*[np.asarray(x, np.float64) for x in args])
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, 2e-2, 2e-2)


@pytest.mark.sweep
def test_derivatives():
    """Automatic ones, of the loop over the grid."""
    args = pool(heads=1, n=2)

    def moved(f):
        total = lambda *xs: jnp.sin(f(*xs)).sum()  # noqa: E731
        return sw.jit(sw.grad(total, (0, 1, 2)))(*args)

    found = moved(lambda *xs: paged_attention(*xs, LENGTHS, PAGES))
    close(found, moved(reference(jnp)), rtol=1e-4, atol=1e-5)


def test_maps_over_arrays_and_devices():
    q, k, v = pool()
    found = sw.jit(sw.vmap(lambda n, p: paged_attention(q, k, v, n, p)))(
        np.stack([LENGTHS, LENGTHS[::-1]]), np.stack([PAGES, PAGES[::-1]])
    )
    wanted = [reference(np)(q, k, v), reference(np, LENGTHS[::-1], PAGES[::-1])(q, k, v)]
    close(found, np.stack(wanted), rtol=1e-4, atol=1e-5)
    mesh = sw.make_mesh((4, 2), ("data", "heads"))
    specs = P("data", "heads"), P("heads"), P("heads"), P("data"), P("data")
    f = sw.shard_map(paged_attention, mesh=mesh, in_specs=specs, out_specs=specs[0])
    close(sw.jit(f)(q, k, v, LENGTHS, PAGES), wanted[0], rtol=1e-4, atol=1e-5)


def test_pages_that_are_not_in_the_pool_are_named_by_checks():
    q, k, v = pool()
    lost = message(KernelError, paged_attention, q, k, v, LENGTHS + 16, PAGES % 64, check=True)
    assert lost == (
        "kernel paged_attention: argument k, f32[2,10,16,8]: program (0, 0, 2) has block "
        "(0, 63, 0, 0), but there are (2, 10, 1, 1) blocks of (1, 1, 16, 8) elements."
    )


@pytest.mark.parametrize(("b", "pages"), [(0, 3), (2, 0)])
def test_nothing_to_attend_to(b, pages):
    q, k, v = pool()
    found = paged_attention(q[:b], k, v, LENGTHS[:b], PAGES[:b, :pages])
    close(found, np.zeros((b, 4, 8), np.float32))

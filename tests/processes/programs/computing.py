"""Computing with arrays that span processes: op by op, compiled, under transforms."""

import io
from contextlib import redirect_stdout

import ml_dtypes
import numpy as np
from checking import (
    COUNT,
    DEVICES,
    HERE,
    P,
    check,
    digest,
    finish,
    numbers,
    over,
    raises,
    same,
    some,
)

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import NamedSharding

ORDER = [2, 0, 3, 1]
ROWS, COLUMNS, WHOLE = over("x", order=ORDER), over(None, "x", order=ORDER), over(order=ORDER)
BOTH = over("x", "y", order=ORDER, shape=(2, 2), names=("x", "y"))
X = numbers(8, 4)
DTYPES = [
    np.int8,
    ml_dtypes.bfloat16,
    np.float64,
    np.uint8,
    np.complex64,
    np.int16,
    np.bool_,
    np.int32,
    np.uint32,
    np.int64,
    np.uint64,
    np.float16,
    np.complex128,
]
ODD = np.array(
    [
        [0.0, -0.0, 1, -1],
        [np.inf, -np.inf, 2, 1e-40],
        [np.nan, 3, -0.0, 0.0],
        [5, np.nan, -2, 7],
        [-3, 2, 0.5, np.nan],
    ],
    np.float32,
)


def placed(value, places=(ROWS, COLUMNS, WHOLE)):
    for place in places:
        yield sw.device_put(value, place)


@check
def eager():
    for x in placed(X, some((COLUMNS, ROWS, WHOLE))):
        same(x + 1, X + 1), same(x * x - x / 2, X * X - X / 2)
        same(-x, -X), same(x > 3, X > 3), same(x.T, X.T), same(x @ x.T, X @ X.T)
        same(x[2], X[2]), same(x[:, 1:3], X[:, 1:3]), same(x[::2], X[::2]), same(x[-1, 0], X[-1, 0])
        same(x[jnp.array([3, 1, 6])], X[[3, 1, 6]]), same(x[x[:, 0] > -1], X)
        same(x.at[1].set(0), np.where(np.arange(8)[:, None] == 1, np.float32(0), X))
        same(x.at[:, 2].add(5), X + np.float32([0, 0, 5, 0]))
        same(x.sum(), X.sum()), same(x.max(0), X.max(0)), same(x.mean(1), X.mean(1), close=True)
        same(x.argmax(), np.int32(X.argmax())), same(x.argmin(0), X.argmin(0).astype(np.int32))
        same(jnp.sort(x, 0), np.sort(X, 0))
        same(jnp.argsort(x, 1), np.argsort(X, 1).astype(np.int32))
        same(jnp.cumsum(x, 0), np.cumsum(X, 0)), same(x.reshape(4, 8), X.reshape(4, 8))
        same(jnp.concatenate([x, x], 1), np.concatenate([X, X], 1)), same(jnp.flip(x, 0), X[::-1])
        same(jnp.where(x > 9, x, 0), np.where(X > 9, X, np.float32(0)))
        same(x.astype(jnp.int8), X.astype(np.int8)), same(jnp.median(x), np.median(X))
        assert float(x.sum()) == X.sum() and bool((x >= 0).all())
        same(jnp.einsum("ij,kj->ik", x, x), X @ X.T)
        same(jnp.nonzero(x > 20)[0], np.nonzero(X > 20)[0].astype(np.int32))
        same(jnp.argwhere(x > 20), np.argwhere(X > 20).astype(np.int32))
        same(jnp.unique(x % 5), np.unique(X % 5)), same(x[x > 20], X[X > 20])
        same(jnp.extract(x > 20, x), X[X > 20]), same(x.at[x > 20].set(0), X * (X <= 20))
        values, _ = lax.top_k(x, 2)
        same(values, -np.sort(-X, 1)[:, :2])


@check
def uneven():
    value = numbers(7, 3)
    for x in placed(value, some((BOTH, ROWS, COLUMNS))):
        same(x + x, value + value), same(x.sum(0), value.sum(0)), same(x.max(), value.max())
        same(jnp.sort(x, 0), np.sort(value, 0)), same(x.T @ x, value.T @ value)
        same(x[1:6], value[1:6])
        same(x.at[6].set(1), np.vstack([value[:6], np.ones((1, 3), np.float32)]))
        same(jnp.cumsum(x, 0), np.cumsum(value, 0)), same(x.mean(), value.mean(), close=True)


@check
def odd_values_folded():
    """NaN, infinities and signed zeros through Gloo sums."""
    for x in placed(ODD, some((BOTH, ROWS, COLUMNS))):
        for axis in some((0, None, 1)):
            for fold in ("max", "min", "sum"):
                with np.errstate(all="ignore"):
                    same(getattr(jnp, fold)(x, axis), getattr(np, fold)(ODD, axis), close=True)
            for fold in ("nanmax", "nanmin"):
                same(getattr(jnp, fold)(x, axis), getattr(np, fold)(ODD, axis))
            same(jnp.isnan(x).any(axis), np.isnan(ODD).any(axis))
    for n in (0.0, -0.0):
        zeros = np.full((8,), n, np.float32)
        for x in placed(zeros, (ROWS,)):
            for fold in (jnp.max, jnp.min):
                assert np.signbit(float(fold(x))) == np.signbit(np.float32(n)), (fold, n)
    mixed = np.array([0.0, -0.0] * 4, np.float32)
    for x in placed(mixed, (ROWS,)):
        assert not np.signbit(float(jnp.max(x))) and np.signbit(float(jnp.min(x)))


@check
def dtypes_folded():
    with sw.enable_x64():
        for dtype in some(DTYPES):
            kind = np.dtype(dtype).kind
            value = (numbers(8, 4) % 5 - (0 if kind in "ub" else 2)).astype(dtype)
            if kind == "c":
                value = value + dtype(1j) * value[::-1]
            for x in placed(value, some((BOTH, ROWS))):
                for fold in ("max", "min"):
                    wanted = np.asarray(getattr(jnp, fold)(jnp.asarray(value), 0))
                    same(getattr(jnp, fold)(x, 0), wanted)
                for fold in ("sum", "prod", "any", "all", "mean"):
                    wanted = np.asarray(getattr(jnp, fold)(jnp.asarray(value), 0))
                    same(getattr(jnp, fold)(x, 0), wanted, close=kind not in "iub")
                if kind in "iub":
                    for fold, first in (
                        (np.bitwise_and, ~np.zeros((), dtype)),
                        (np.bitwise_or, np.zeros((), dtype)),
                        (np.bitwise_xor, np.zeros((), dtype)),
                    ):
                        folded = lax.reduce(x, first, getattr(lax, fold.__name__), (0,))
                        same(folded, fold.reduce(value, axis=0))


@check
def compiled():
    f = sw.jit(lambda a, b: (a @ b, a.sum(), jnp.sort(a, 0)))
    for x in placed(X):
        product, total, ordered = f(x, x.T)
        same(product, X @ X.T), same(total, X.sum()), same(ordered, np.sort(X, 0))
    g = sw.jit(lambda v: v * 2, in_shardings=ROWS, out_shardings=COLUMNS)
    y = g(X)
    same(y, X * 2)
    assert y.sharding == COLUMNS and g(sw.device_put(X, ROWS)).sharding == COLUMNS
    same(g(jnp.asarray(X)), X * 2)
    x = sw.device_put(X, ROWS)
    same(sw.jit(lambda v: v + x)(X), X + X)  # a closure over a global array
    same(sw.jit(lambda: x.sum())(), X.sum())
    same(sw.jit(lambda v: lax.with_sharding_constraint(v * 3, COLUMNS))(x), X * 3)
    text = sw.jit(lambda v: v + x).lower(X).as_text()
    assert 'dense<"' not in text and "dense<[" not in text, text
    print("compiled", digest(sw.jit(lambda v: jnp.sin(v).sum(0))(x)))


@check
def transforms():
    x = sw.device_put(X / 10, ROWS)

    def loss(v):
        return (jnp.sin(v) ** 2).sum()

    wanted = 2 * np.sin(X / 10) * np.cos(X / 10)
    for one in (sw.grad(loss), sw.jit(sw.grad(loss))):
        same(one(x), wanted, close=True)
    value, _slope = sw.value_and_grad(loss)(x)
    same(value, np.float32((np.sin(X / 10) ** 2).sum()), close=True)
    same(sw.jvp(loss, (x,), (jnp.ones_like(x),))[1], np.float32(wanted.sum()), close=True)
    same(sw.vmap(jnp.sum)(x), (X / 10).sum(1), close=True)
    same(sw.vmap(jnp.sum, in_axes=1)(x), (X / 10).sum(0), close=True)
    x = sw.device_put(X, ROWS)
    carry, rows = lax.scan(lambda c, row: (c + row.sum(), c), jnp.float32(0), x)
    same(carry, X.sum())
    same(rows, np.concatenate([[0], np.cumsum(X.sum(1))[:-1]]).astype(np.float32))
    same(lax.while_loop(lambda v: v.sum() < 5000, lambda v: v * 2, x), X * 16)
    same(lax.cond(x.sum() > 3, lambda v: v + 1, lambda v: v, x), X + 1)
    same(lax.fori_loop(0, 3, lambda i, v: v + i, x), X + 3)
    same(sw.jit(sw.checkpoint(loss))(x / 10), np.float32((np.sin(X / 10) ** 2).sum()), close=True)
    hess = sw.hessian(lambda v: (v**3).sum())(sw.device_put(X[0], over("x")))
    same(hess, np.diag(6 * X[0]))


@check
def beside_other_arrays():
    x = sw.device_put(X, ROWS)
    same(x + jnp.ones((8, 4)), X + 1)  # uncommitted: moved to the devices of the other operand
    same(x + np.ones((8, 4), np.float32), X + 1)
    late = np.arange(8)[:, None] > 2
    same(jnp.where(jnp.asarray(late), x, 0), np.where(late, X, np.float32(0)))
    same(x + 2.5, X + np.float32(2.5)), same(x * True, X)
    y = sw.device_put(X, over("x", order=[1, 2, 3, 0]))
    same(x + y, X + X)
    if COUNT > 1:
        mine = sw.device_put(X, sw.local_devices()[0])
        ids = [d.id for d in ROWS.devices]
        with raises(
            ValueError,
            "add got arguments on different devices: argument 0 of type "
            f"f32[8,4] is on devices {ids}, argument 1 of type f32[8,4] on device "
            f"{mine.device.id}. Move one of them with `device_put(x, sharding)`.",
        ):
            x + mine
        same(mine + 1, X + 1)  # local to this process
        if HERE == 0:
            same(sw.jit(lambda v: v @ v.T)(mine), X @ X.T)


@check
def host_local_inputs():
    f = sw.jit(lambda v: v * 2, in_shardings=ROWS)
    if COUNT > 1:
        with raises(
            ValueError,
            "jit of <lambda>: v is a host value of shape (3, 4): dimension 0 "
            f"has 3 elements for 4 shards of {ROWS}, so it seems to be this process's "
            "part only. Inputs are global: pass the full value, or make a global array of "
            "the parts with `shardwise.experimental.multihost_utils."
            "host_local_array_to_global_array(x, mesh, spec)`.",
        ):
            f(np.ones((3, 4), np.float32))
    same(f(sw.device_put(X[:3], ROWS)), X[:3] * 2)


@check
def host_functions():
    calls = []
    x = sw.device_put(X, ROWS)
    sw.debug.callback(lambda v: calls.append(np.asarray(v).copy()), x.sum())
    sw.effects_barrier()
    calling = ROWS.devices[0].process_index  # the process of the first device
    assert len(calls) == (calling == HERE), calls
    like = sw.ShapeDtypeStruct((8, 4), jnp.float32)
    f = sw.jit(lambda v: sw.pure_callback(np.sin, like, v))
    same(f(x), np.sin(X), close=True)
    for how in (lambda v: v, sw.jit):
        with redirect_stdout(io.StringIO()) as out:
            how(lambda v: sw.debug.print("the sum is {}", v.sum()))(x)
            sw.effects_barrier()
        assert out.getvalue() == "the sum is 496.0\n" * (calling == HERE), out.getvalue()


@check
def checks_and_modes():
    x = sw.device_put(X, ROWS)
    with sw.disable_jit():
        same(sw.jit(lambda v: v + 1)(x), X + 1)
    with sw.debug_nans(True):
        same(jnp.log(x + 1), np.log(X + 1), close=True)
        try:
            jnp.log(x - 100).block_until_ready()
        except FloatingPointError as error:
            assert "nan" in str(error), error
        else:
            raise AssertionError("no NaN was found")
    sw.block_until_ready({"a": x + 1, "b": [x]})


@check
def explicit():
    mesh = sw.make_mesh((2, 2), ("x", "y"), devices=[DEVICES[i] for i in ORDER])
    a = sw.device_put(X, NamedSharding(mesh, P("x", "y")))
    b = sw.device_put(X.T.copy(), NamedSharding(mesh, P("y", None)))
    assert str(sw.typeof(a + 1)) == "float32[8@x,4@y]"
    same(a + 1, X + 1)
    same(sw.jit(lambda v: v.sum(1))(a), X.sum(1))
    same(jnp.einsum("ij,jk->ik", a, b, out_sharding=NamedSharding(mesh, P("x", None))), X @ X.T)
    same(sw.grad(lambda v: (v * v).sum())(a), 2 * X)


finish()

"""Programs of the survey by subject: dtypes, control flow, custom rules, collectives and so on.

Each is an expression, or a function, of `at` and of arrays. Those of a mesh shard their arrays over
it, and collectives run over one host and over several.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.targets import survey_devices
from tests.targets.survey_devices import module
from tests.targets.survey_programs import At, Program, total

X = np.linspace(0.1, 0.9, 24, dtype=np.float32).reshape(4, 6)
V = X.ravel()[:8]
ROWS = np.linspace(0.1, 0.9, 64, dtype=np.float32).reshape(8, 8)

# -- dtypes --

NAMES = """bool int2 uint2 int4 uint4 int8 uint8 int16 uint16 int32 uint32 int64 uint64 float4_e2m1fn
float8_e3m4 float8_e4m3 float8_e8m0fnu float8_e4m3fn float8_e4m3b11fnuz float8_e5m2 float8_e5m2fnuz
float8_e4m3fnuz bfloat16 float16 float32 float64 complex64 complex128""".split()

OF_DTYPES = {
    "copied": lambda at, x, y: x.T,
    "reshaped": lambda at, x, y: x.reshape(6, 4),
    "reversed": lambda at, x, y: at.lax.rev(x, (0,)),
    "joined": lambda at, x, y: at.np.concatenate([x, y]),
    "padded": lambda at, x, y: at.np.pad(x, 1),
    "sliced": lambda at, x, y: x[1:3, ::2],
    "chosen": lambda at, x, y: at.np.where(x == y, x, y),
    "broadcast": lambda at, x, y: at.np.broadcast_to(x, (3, 4, 6)),
    "equal": lambda at, x, y: x == y,
    "less": lambda at, x, y: x < y,
    "added": lambda at, x, y: x + y,
    "subtracted": lambda at, x, y: x - y,
    "multiplied": lambda at, x, y: x * y,
    "divided": lambda at, x, y: at.lax.div(x, y),
    "remainder": lambda at, x, y: at.lax.rem(x, y),
    "power": lambda at, x, y: x**3,
    "larger": lambda at, x, y: at.np.maximum(x, y),
    "negative": lambda at, x, y: -x,
    "absolute": lambda at, x, y: abs(x),
    "sign": lambda at, x, y: at.np.sign(x),
    "exp": lambda at, x, y: at.lax.exp(x),
    "tanh": lambda at, x, y: at.lax.tanh(x),
    "log1p": lambda at, x, y: at.lax.log1p(x),
    "atan2": lambda at, x, y: at.lax.atan2(x, y),
    "round": lambda at, x, y: at.np.round(x),
    "anded": lambda at, x, y: x & y,
    "shifted": lambda at, x, y: x << y,
    "counted": lambda at, x, y: at.lax.population_count(x),
    "to f32": lambda at, x, y: x.astype(np.float32),
    "to i32": lambda at, x, y: x.astype(np.int32),
    "to bool": lambda at, x, y: x.astype(bool),
    "to bf16": lambda at, x, y: x.astype(ml_dtypes.bfloat16),
    "sum": lambda at, x, y: at.np.sum(x, 0),
    "full sum": lambda at, x, y: at.np.sum(x),
    "product": lambda at, x, y: at.np.prod(x, 1),
    "max": lambda at, x, y: at.np.max(x, 1),
    "argmax": lambda at, x, y: at.np.argmax(x, 1),
    "any": lambda at, x, y: at.np.any(x),
    "cumsum": lambda at, x, y: at.np.cumsum(x, 0),
    "cummax": lambda at, x, y: at.lax.cummax(x),
    "mean": lambda at, x, y: at.np.mean(x),
    "sorted": lambda at, x, y: at.np.sort(x),
    "argsort": lambda at, x, y: at.np.argsort(x),
    "top_k": lambda at, x, y: at.lax.top_k(x, 2),
    "matmul": lambda at, x, y: x @ y.T,
    "matmul f32": lambda at, x, y: at.np.matmul(x, y.T, preferred_element_type=np.float32),
    "batched matmul": lambda at, x, y: at.np.einsum("ij,ik->ijk", x, y),
    "conv": lambda at, x, y: at.lax.conv(x[None, None], y[None, None, :2, :2], (1, 1), "SAME"),
    "gathered": lambda at, x, y: x[np.array([2, 0, 0])],
    "scattered": lambda at, x, y: x.at[np.array([2, 0, 0])].set(y[:3]),
    "scatter-added": lambda at, x, y: x.at[np.array([2, 0, 0])].add(y[:3]),
    "scatter-max": lambda at, x, y: x.at[np.array([2, 0, 0])].max(y[:3]),
    "dynamic slice": lambda at, x, y: at.lax.dynamic_slice(x, (at.np.argmax(y), 0), (2, 3)),
    "dynamic update": lambda at, x, y: at.lax.dynamic_update_slice(x, y[:2], (at.np.argmax(y), 0)),
    "windows": lambda at, x, y: at.lax.reduce_window(
        x, x.dtype.type(0), at.lax.add, (2, 2), (1, 1), "SAME"
    ),
    "loop": lambda at, x, y: at.lax.fori_loop(0, 3, lambda i, c: at.np.where(c == y, c, y), x),
    "scan": lambda at, x, y: at.lax.scan(lambda c, e: (e, c), x[0], y),
    "cond": lambda at, x, y: at.lax.cond(at.np.any(x == y), lambda: x, lambda: y),
    "bits": lambda at, x, y: at.lax.bitcast_convert_type(x, _bits(x.dtype)),
    "constant": lambda at, x, y: at.np.full((3,), 1, x.dtype),
    "iota": lambda at, x, y: at.lax.iota(x.dtype, 4),
    "reduced": lambda at, x, y: at.lax.reduce(x, x.dtype.type(0), lambda a, b: a + b, (0,)),
    "unique": lambda at, x, y: at.np.unique(x, size=4),
    "searched": lambda at, x, y: at.np.searchsorted(x[0], y),
    "associative scan": lambda at, x, y: at.lax.associative_scan(at.np.add, x),
}
# Over eight devices, with the first dimension sharded.
OF_SHARDED_DTYPES = {
    "sharded sum": lambda at, x, y: at.np.sum(x, 0),
    "sharded max": lambda at, x, y: at.np.max(x, 0),
    "sharded matmul": lambda at, x, y: x.T @ y,
    "sharded reversal": lambda at, x, y: x[::-1],
    "sharded gather": lambda at, x, y: x[np.array([2, 0, 0])],
    "sharded sort": lambda at, x, y: at.np.sort(x, 0),
    "sharded sum of uneven": lambda at, x, y: at.np.sum(x[:7], 0),
    "sharded any": lambda at, x, y: at.np.any(x == y, 0),
    "sharded rotation": lambda at, x, y: at.np.roll(x, 1, 0),
}
# Inside of a `shard_map`; results differ by device.
OF_MAPPED_DTYPES = {
    "psum": lambda at, x: at.lax.psum(x, "x"),
    "pmax": lambda at, x: at.lax.pmax(x, "x"),
    "all_gather": lambda at, x: at.lax.all_gather(x, "x"),
    "ppermute": lambda at, x: at.lax.ppermute(x, "x", [(i, (i + 1) % 8) for i in range(8)]),
    "all_to_all": lambda at, x: at.lax.all_to_all(x, "x", 1, 0),
    "psum_scatter": lambda at, x: at.lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
}


def _bits(dtype: Any) -> Any:
    return np.dtype(f"uint{8 * dtype.itemsize}") if dtype.itemsize > 1 or dtype.kind == "f" else (
        ml_dtypes.int4 if dtype == ml_dtypes.uint4 else np.dtype("int8"))  # fmt: skip


def _typed(run: Callable, dtype: Any, sharded: bool) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        if sharded:
            x = np.zeros((8, 8), dtype)
            return functools.partial(run, at), [at.arg(x, "x", mesh=at.mesh())] * 2
        return functools.partial(run, at), [at.arg(np.zeros((4, 6), dtype))] * 2

    return make


def _collective(run: Callable, dtype: Any) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        mesh = at.mesh()
        mapped = at.root.shard_map(
            lambda x: run(at, x), mesh=mesh, in_specs=at.P("x"), out_specs=at.P("x"),
            check_vma=False,
        )  # fmt: skip
        return mapped, [at.arg(np.zeros((8, 8), dtype), "x", mesh=mesh)]

    return make


def dtypes() -> Iterator[Program]:
    for name in NAMES:
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        x64 = dtype.itemsize >= 8 and name != "complex64"
        for what, run in OF_DTYPES.items():
            yield Program("dtypes", f"{what} {name}", _typed(run, dtype, False), x64=x64)
        for what, run in OF_SHARDED_DTYPES.items():
            yield Program("dtypes", f"{what} {name}", _typed(run, dtype, True), "host", x64=x64)
        for what, run in OF_MAPPED_DTYPES.items():
            yield Program("dtypes", f"{what} {name}", _collective(run, dtype), "host", x64=x64)


# -- one device: control flow, custom rules, random numbers, references --


def _step(at: At) -> Callable:
    return lambda c, x: (at.np.sin(c) + x, c * x)


def _own_jvp(at: At) -> Any:
    f = at.root.custom_jvp(lambda x: at.np.sin(x))
    f.defjvp(lambda p, t: (f(p[0]), at.np.cos(p[0]) * t[0]))
    return f


def _own_vjp(at: At) -> Any:
    f = at.root.custom_vjp(lambda x: at.np.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, t: (at.np.cos(x) * t,))
    return f


def _own_batch(at: At) -> Any:
    f = module(at, "custom_batching").custom_vmap(lambda x: at.np.sin(x))
    f.def_vmap(lambda size, axes, x: (at.np.sin(x) + 1, True))
    return f


def _solved(at: At) -> Callable:
    return lambda x: at.lax.custom_linear_solve(
        lambda v: 2 * v, x, lambda mv, b: b / 2, lambda mv, b: b / 2
    )


CONTROL = {
    "cond": lambda at, x: at.lax.cond(x.sum() > 3, at.np.sin, at.np.cos, x),
    "cond of a number": lambda at, x: at.lax.cond(x.sum() > 3, lambda: 1.0, lambda: 2.0) * x,
    "switch": lambda at, x: at.lax.switch(
        x.sum().astype(int), [at.np.sin, at.np.cos, at.np.tanh], x
    ),
    "scan": lambda at, x: at.lax.scan(_step(at), x[0], x),
    "scan reverse unrolled": lambda at, x: at.lax.scan(_step(at), x[0], x, reverse=True, unroll=2),
    "map": lambda at, x: at.lax.map(at.np.sin, x),
    "map batched": lambda at, x: at.lax.map(at.np.sin, x, batch_size=2),
    "fori of known length": lambda at, x: at.lax.fori_loop(0, 5, lambda i, c: at.np.sin(c) * i, x),
    "associative_scan": lambda at, x: at.lax.associative_scan(at.np.multiply, x, axis=1),
    "reduce of a function": lambda at, x: at.lax.reduce(x, 1.0, lambda a, b: a * b + 1, (0,)),
    "reduce_window of a function": lambda at, x: at.lax.reduce_window(
        x, 0.0, lambda a, b: at.np.maximum(a, b) + a * b, (2, 2), (1, 1), "VALID"
    ),
    "custom_jvp": lambda at, x: _own_jvp(at)(x),
    "custom_vjp": lambda at, x: _own_vjp(at)(x),
    "custom_linear_solve": lambda at, x: _solved(at)(x),
    "checkpoint": lambda at, x: at.root.checkpoint(lambda x: at.np.sin(at.np.sin(x)))(x),
    "jit inside": lambda at, x: at.root.jit(at.np.sin)(x) + at.root.jit(at.np.cos)(x),
    "named_scope": lambda at, x: at.root.named_scope("inner")(at.np.sin)(x),
    "linearize": lambda at, x: at.root.linearize(at.np.sin, x)[1](x),
    "vjp": lambda at, x: at.root.vjp(at.np.sin, x)[1](x),
    "stop_gradient": lambda at, x: at.lax.stop_gradient(x) * x,
    "optimization_barrier": lambda at, x: at.lax.optimization_barrier(x),
    "scan of scan": lambda at, x: at.lax.scan(
        lambda c, r: at.lax.scan(lambda a, b: (a + b, a * b), c, r), 0.0, x
    ),
    "cond in scan": lambda at, x: at.lax.scan(
        lambda c, r: at.lax.cond(c.sum() > 0, lambda: (c + r, r), lambda: (r, c)), x[0], x
    ),
}
# Not differentiable in reverse mode, or with special arguments.
CONTROL_ONLY = {
    "while": lambda at, x: at.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x),
    "fori of unknown length": lambda at, x: at.lax.fori_loop(
        0, x.sum().astype(int), lambda i, c: at.np.sin(c) * i, x
    ),
    "custom_vmap": lambda at, x: at.root.vmap(_own_batch(at))(x),
    "hessian": lambda at, x: at.root.hessian(lambda r: at.np.sum(at.np.sin(r) ** 2))(x[0]),
    "jacfwd": lambda at, x: at.root.jacfwd(at.np.sin)(x[0]),
    "jacrev": lambda at, x: at.root.jacrev(at.np.sin)(x[0]),
    "jet": lambda at, x: module(at, "experimental.jet").jet(at.np.sin, (x,), ((x, x),)),
    "checkify": lambda at, x: module(at, "experimental.checkify").checkify(at.np.log)(x)[1],
    "dynamic shapes of slices": lambda at, x: at.lax.dynamic_index_in_dim(
        x, x.sum().astype(int), 0
    ),
    "platform_dependent": lambda at, x: at.lax.platform_dependent(
        x, cpu=at.np.sin, cuda=at.np.cos, tpu=at.np.tanh
    ),
    "composite": lambda at, x: at.lax.composite(at.np.sin, "my.sine")(x),
    "rng_uniform": lambda at, x: at.lax.rng_uniform(0.0, 1.0, (3, 4)),
    "rng_bit_generator": lambda at, x: at.lax.rng_bit_generator(
        at.np.arange(4, dtype=np.uint32), (3, 4)
    ),
    "jvp of while": lambda at, x: at.root.jvp(
        lambda x: at.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), (x,), (x,)
    ),
    "reduce_precision": lambda at, x: at.lax.reduce_precision(x, 5, 10),
    "approx_max_k": lambda at, x: at.lax.approx_max_k(x, 2),
    "ragged_dot": lambda at, x: at.lax.ragged_dot(
        x, at.np.ones((2, 6, 3)), at.np.array([1, 3], np.int32)
    ),
    "conv 3d": lambda at, x: at.lax.conv(
        x.reshape(1, 1, 2, 3, 4), at.np.ones((1, 1, 2, 2, 2)), (1, 1, 1), "SAME"
    ),
    "conv grouped": lambda at, x: at.lax.conv_general_dilated(
        x.reshape(1, 4, 6), at.np.ones((4, 1, 2)), (1,), "SAME", feature_group_count=4
    ),
    "conv dilated": lambda at, x: at.lax.conv_general_dilated(
        x[None, None], at.np.ones((1, 1, 2, 2)), (1, 1), ((1, 1), (1, 1)), (2, 2), (2, 2)
    ),
    "attention": lambda at, x: at.lib.nn.dot_product_attention(*[x.reshape(1, 4, 2, 3)] * 3),
    "one_hot": lambda at, x: at.lib.nn.one_hot(x[0].astype(int), 5),
    "large constant": lambda at, x: x + np.arange(2400, dtype=np.float32).reshape(100, 4, 6)[7],
    "closed over array": lambda at, x: x * np.ones((4, 6), np.float32),
    "donated": lambda at, x: x + 1,
    "ref": lambda at, x: _through_ref(at, x),
    "run_state": lambda at, x: _state(at)(x),
    "ref in loop": lambda at, x: _ref_in_loop(at, x),
}


def _through_ref(at: At, x: Any) -> Any:
    r = at.root.new_ref(x)
    r[0, 1] = 7.0
    r[1] += at.np.ones(6)
    return r[...] + at.root.freeze(r)


def _ref_in_loop(at: At, x: Any) -> Any:
    r = at.root.new_ref(x)

    def step(i: Any, c: Any) -> Any:
        r[i] = c
        return c + 1

    at.lax.fori_loop(0, 3, step, x[0])
    return r[...]


def _state(at: At) -> Callable:
    run_state = module(at, "experimental.state").run_state
    return run_state(lambda r: r.__setitem__(0, r[1]))


def _loss(at: At, f: Callable) -> Callable:
    return lambda x: total(at, at.root.tree.leaves(f(at, x)))


def control() -> Iterator[Program]:
    for name, run in {**CONTROL, **CONTROL_ONLY}.items():
        yield Program("control", name, lambda at, f=run: (lambda x: f(at, x), [at.arg(X)]))
        yield Program(
            "control sharded",
            name,
            lambda at, f=run: (lambda x: f(at, x), [at.arg(X, "x", "y", mesh=at.mesh(4, 2))]),
            "host",
        )
    for name, run in CONTROL.items():
        yield Program(
            "control grad", name, lambda at, f=run: (at.root.grad(_loss(at, f)), [at.arg(X)])
        )
        yield Program(
            "control vmap",
            name,
            lambda at, f=run: (at.root.vmap(lambda x: f(at, x)), [at.arg(np.stack([X, X]))]),
        )


DRAWS = {
    "bits": lambda at, key: at.lib.random.bits(key, (5,)),
    "bits of bytes": lambda at, key: at.lib.random.bits(key, (5,), np.uint8),
    "uniform": lambda at, key: at.lib.random.uniform(key, (16, 8)),
    "normal": lambda at, key: at.lib.random.normal(key, (16, 8)),
    "bf16": lambda at, key: at.lib.random.normal(key, (16, 8), ml_dtypes.bfloat16),
    "split": lambda at, key: at.lib.random.split(key, 3),
    "fold_in": lambda at, key: at.lib.random.fold_in(key, 3),
    "permutation": lambda at, key: at.lib.random.permutation(key, 8),
    "randint": lambda at, key: at.lib.random.randint(key, (8,), 0, 9),
    "gamma": lambda at, key: at.lib.random.gamma(key, 2.0, (8,)),
    "vmap": lambda at, key: at.root.vmap(lambda k: at.lib.random.normal(k, (8,)))(
        at.lib.random.split(key, 4)
    ),
    "in a loop": lambda at, key: at.lax.fori_loop(
        0, 3, lambda i, c: c + at.lib.random.normal(at.lib.random.fold_in(key, i)), 0.0
    ),
    "key data": lambda at, key: at.lib.random.key_data(key),
    "seeded": lambda at, key: at.lib.random.key_data(at.lib.random.key(3)),
}


def _drawn(run: Callable, impl: str, sharded: bool) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        mesh = at.mesh() if sharded else None
        given = [at.arg(at.lib.random.key(0, impl=impl), mesh=mesh)]
        return functools.partial(run, at), given

    return make


def draws() -> Iterator[Program]:
    for impl in ("threefry2x32", "rbg", "unsafe_rbg"):
        for name, run in DRAWS.items():
            yield Program(f"random {impl}", name, _drawn(run, impl, False))
            yield Program(f"random {impl} sharded", name, _drawn(run, impl, True), "host")


def subjects() -> Iterator[Program]:
    yield from control()
    yield from draws()
    yield from survey_devices.programs()
    yield from dtypes()

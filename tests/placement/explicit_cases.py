"""Functions over arrays with explicit shardings, written once for both libraries.

`CASES` maps a name to (function of a namespace and arrays, shapes, dtypes). The namespace has
`np`, `lax`, `nn`, `P`, `vmap`, `grad`, `jit`, `jvp`, `reshard`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

F, INT = np.float32, np.int32
Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...], tuple[Any, ...]]
CASES: dict[str, Case] = {}


def case(name: str, fun: Callable[..., Any], *shapes: tuple[int, ...], dtypes: Any = None) -> None:
    CASES[name] = fun, shapes, dtypes or (F,) * len(shapes)


M, N = (8, 16), (16, 8)

# -- elementwise, choices, reductions --
case("sin", lambda m, a: m.np.sin(a), M)
case("add", lambda m, a, b: a + b, M, M)
case("add, rows", lambda m, a, b: a + b, M, (16,))
case("where", lambda m, a, b: m.np.where(a > 0, a, b), M, M)
case("clamp", lambda m, a: m.lax.clamp(0.0, a, 1.0), M)
case("astype", lambda m, a: a.astype(np.int32), M)
case("bitcast", lambda m, a: m.lax.bitcast_convert_type(a, np.uint8), M)
case("sum", lambda m, a: a.sum(0), M)
case("mean", lambda m, a: a.mean(), M)
case("max", lambda m, a: a.max(1), M)
case("any", lambda m, a: (a > 0).any(0), M)
case("var", lambda m, a: a.var(1), M)
case("argmax", lambda m, a: m.np.argmax(a, 1), M)
case("softmax", lambda m, a: m.nn.softmax(a), M)
case("one_hot", lambda m, a: m.nn.one_hot(a, 4), (8,), dtypes=(INT,))

# -- products --
case("matmul", lambda m, a, b: a @ b, M, N)
case("batched matmul", lambda m, a, b: a @ b, (8, 4, 16), (8, 16, 8))
case("matvec", lambda m, a, b: a @ b, M, (16,))
case("matmul to", lambda m, a, b: m.np.matmul(a, b, out_sharding=m.P("x", None)), M, N)
case("einsum", lambda m, a, b: m.np.einsum("ij,kj->ik", a, b), M, M)
case("einsum to", lambda m, a, b: m.np.einsum("ij,kj->ik", a, b, out_sharding=m.P("y")), M, M)
case(
    "dot_general to",
    lambda m, a, b: m.lax.dot_general(a, b, (((1,), (0,)), ((), ())), out_sharding=m.P("y", "x")),
    M,
    N,
)
case("tensordot", lambda m, a, b: m.np.tensordot(a, b, 1), M, N)

# -- shapes --
case("transpose", lambda m, a: a.T, M)
case("expand", lambda m, a: a[:, None], M)
case("broadcast", lambda m, a: m.np.broadcast_to(a, (3, 8, 16)), M)
for _shape in ((128,), (2, 4, 16), (4, 2, 16), (8, 1, 16), (8, 4, 4), (8, 2, 8), (16, 8), (4, 32)):
    case(f"reshape {_shape}", lambda m, a, s=_shape: a.reshape(s), M)
case("merge", lambda m, a: a.reshape(32, 16), (8, 4, 16))
case("split up", lambda m, a: a.reshape(4, 8), (32,))
case("reshape to", lambda m, a: m.np.reshape(a, N, out_sharding=m.P("y", None)), M)
case("lax.reshape to", lambda m, a: m.lax.reshape(a, N, out_sharding=m.P("y", None)), M)
case("ravel to", lambda m, a: m.np.ravel(a, out_sharding=m.P("y")), M)
case("concatenate", lambda m, a, b: m.np.concatenate([a, b]), M, M)
case("stack", lambda m, a, b: m.np.stack([a, b]), M, M)
case("slice", lambda m, a: a[:4], M)
case("row", lambda m, a: a[0], M)
case("reverse", lambda m, a: a[::-1], M)
case("split", lambda m, a: m.np.split(a, 2), M)
case("pad", lambda m, a: m.np.pad(a, ((0, 8), (0, 0))), M)
case("roll", lambda m, a: m.np.roll(a, 1, 1), M)
case("dynamic_slice", lambda m, a: m.lax.dynamic_slice(a, (0, 0), (4, 16)), M)
case("update", lambda m, a, b: m.lax.dynamic_update_slice(a, b, (0, 0)), M, (4, 16))

# -- indices, order --
case("gather", lambda m, a, i: a[i], M, (8,), dtypes=(F, INT))
case("get to", lambda m, a, i: a.at[i].get(out_sharding=m.P("y", None)), M, (8,), dtypes=(F, INT))
case("take", lambda m, a: m.np.take(a, m.np.arange(4), axis=1), M)
case("set", lambda m, a: a.at[0].set(1.0), M)
case("add at", lambda m, a, b: a.at[m.np.arange(4)].add(b), M, (4, 16))
case("sort", lambda m, a: m.np.sort(a, 0), M)
case("cumsum", lambda m, a: m.np.cumsum(a, 0), M)
case("top_k", lambda m, a: m.lax.top_k(a, 4), M)

# -- making arrays, resharding --
case("zeros to", lambda m, a: m.np.zeros(M, out_sharding=m.P("x", None)) + a, M)
case("zeros_like", lambda m, a: m.np.zeros_like(a), M)
case("full_like", lambda m, a: m.lax.full_like(a, 2.0), M)
case("arange to", lambda m: m.np.arange(8, out_sharding=m.P("x")))
case("iota to", lambda m: m.lax.broadcasted_iota(INT, (8, 4), 0, out_sharding=m.P("x", None)))
case("reshard", lambda m, a: m.reshard(a, m.P("y", None)), M)

# -- transforms --
case("vmap", lambda m, a: m.vmap(m.np.sin)(a), M)
case("vmap sum", lambda m, a: m.vmap(lambda x: x.sum(), in_axes=1)(a), M)
case("vmap product", lambda m, a, b: m.vmap(lambda x, y: x @ y)(a, b), (8, 4, 16), (8, 16, 8))
case("vmap to 1", lambda m, a: m.vmap(lambda x: x * 2, out_axes=1)(a), M)
case("vmap of jit", lambda m, a: m.vmap(m.jit(lambda x: m.np.sin(x) + 1))(a), M)
case("vmap of constant", lambda m, a: m.vmap(lambda x: m.np.zeros(3))(a), M)
case("vmap captured", lambda m, a, b: m.vmap(lambda x: x @ b)(a), M, N)
case("jvp", lambda m, a: m.jvp(lambda a: m.np.sin(a) @ m.np.ones((16, 3)), (a,), (a,)), M)
case("grad", lambda m, a: m.grad(lambda x: m.np.sin(x).sum())(a), M)
case(
    "grad of product", lambda m, a, b: m.grad(lambda a, b: ((a @ b) ** 2).sum(), (0, 1))(a, b), M, N
)
case(
    "grad of product to",
    lambda m, a, b: m.grad(lambda a, b: (m.np.matmul(a, b, out_sharding=m.P()) ** 2).sum(), (0, 1))(
        a, b
    ),
    M,
    N,
)
case("grad of reshape", lambda m, a: m.grad(lambda a: (a.reshape(8, 4, 4) ** 2).sum())(a), M)
case(
    "grad of get",
    lambda m, a, i: m.grad(lambda a: (a.at[i].get(out_sharding=m.P("y", None)) ** 2).sum())(a),
    M,
    (8,),
    dtypes=(F, INT),
)
case(
    "grad of rows",
    lambda m, a, b: m.grad(lambda a, b: ((a + b) ** 2).sum(), (0, 1))(a, b),
    M,
    (16,),
)
case("grad of max", lambda m, a: m.grad(lambda a: a.max(1).sum())(a), M)
case("grad of softmax", lambda m, a: m.grad(lambda a: (m.nn.softmax(a) ** 2).sum())(a), M)
case(
    "grad of reshard",
    lambda m, a: m.grad(lambda a: (m.reshard(a, m.P("y", None)) ** 2).sum())(a),
    M,
)
case("grad of jit", lambda m, a: m.grad(lambda a: m.jit(lambda x: m.np.sin(x).sum())(a))(a), M)
case("vmap of grad", lambda m, a: m.vmap(m.grad(lambda r: m.np.sin(r).sum()))(a), M)
case("scan", lambda m, a: m.lax.scan(lambda c, x: (c + x, c), m.np.zeros_like(a[0]), a), M)
case(
    "scan from scalar", lambda m, a: m.lax.scan(lambda c, x: (c + x.sum(), c), np.float32(0), a), M
)
case(
    "grad of scan",
    lambda m, a, w: m.grad(
        lambda a, w: m.lax.scan(lambda c, x: (m.np.tanh(c * w + x), c), m.np.zeros_like(w), a)[
            0
        ].sum(),
        (0, 1),
    )(a, w),
    M,
    (16,),
)
case(
    "vmap of scan",
    lambda m, a: m.vmap(lambda r: m.lax.scan(lambda c, x: (c + x, c), np.float32(0), r)[0])(a),
    M,
)

# Cases that JAX rejects and this library accepts: some operands need not have equal shardings
# (replicated with sharded), sizes need not divide, and sharded dimensions may be sliced.
LENIENT = {
    "where",
    "concatenate",
    "stack",
    "slice",
    "row",
    "split",
    "roll",
    "dynamic_slice",
    "update",
    "gather",
    "set",
    "add at",
    "reshape (16, 8)",
    "reshape (4, 32)",
    "scan",
    "vmap of scan",
}

"""Functions whose Program and StableHLO texts are stored: (name, function, arguments).

Arguments are types: `f32(8, 4)`. A sharded function has a sharding for each argument:
`f32(8, 4, on=P("x", None))`, over a mesh of x=4, y=2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from shardwise.testing import simulated_mesh


@dataclass(frozen=True)
class Case:
    """options: of `jit`, as a function of the mesh."""

    name: str
    fun: Callable
    args: tuple
    options: Callable = field(default=lambda mesh: {})


def mesh() -> Any:
    return simulated_mesh((4, 2), ("x", "y"))


def typed(dtype: Any) -> Callable:
    def make(*shape: int, on: Any = None, weak: bool = False) -> Any:
        sharding = None if on is None else NamedSharding(mesh(), on)
        return sw.ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak)

    return make


f32, bf16, i32, c64, boolean, u32 = map(
    typed, (np.float32, "bfloat16", np.int32, np.complex64, bool, np.uint32)
)


def total(x: Any) -> Any:
    return lax.reduce_sum(x, tuple(range(x.ndim)))


def layer(x: Any, w: Any) -> Any:
    return lax.tanh(lax.dot(x, w))


def loss(w: Any, x: Any) -> Any:
    y = layer(x, w)
    return total(lax.mul(y, y))


def softmax(x: Any) -> Any:
    top = lax.broadcast_in_dim(lax.reduce_max(x, (1,)), x.shape, (0,))
    e = lax.exp(lax.sub(x, lax.stop_gradient(top)))
    return lax.div(e, lax.broadcast_in_dim(lax.reduce_sum(e, (1,)), x.shape, (0,)))


def polynomial(x: Any) -> Any:
    return x * x * 2.0 + x + 1.0


def twice(x: Any) -> Any:
    inner = sw.jit(polynomial)
    return inner(inner(x))


def reused_constant(x: Any) -> Any:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    return lax.add(lax.mul(x, table), table)


def read_rows(x: Any, i: Any) -> Any:
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    return lax.gather(x, i, numbers, (1, x.shape[1]), mode="clip")


def add_rows(x: Any, i: Any, rows: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lax.scatter_add(x, i, rows, numbers)


def step(carry: Any, x: Any) -> tuple:
    return lax.tanh(lax.add(lax.mul(carry, 0.5), x)), carry


def scanned(start: Any, xs: Any) -> Any:
    return lax.scan(step, start, xs)


def chosen(pred: Any, x: Any) -> Any:
    return lax.cond(pred, lambda x: lax.sin(x) * x, lambda x: x * 2.0, x)


def switched(i: Any, x: Any) -> Any:
    return lax.switch(i, [lax.sin, lambda x: x, lambda x: -x], x)


def grown(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < total(s[1]), lambda s: (s[0] + 1, s[1] * x), (0.0, x))


def counted(n: Any, x: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, y: y * x + i, x)


def solved(a: Any, b: Any) -> Any:
    def solve(matvec: Any, b: Any) -> Any:
        return lax.div(b, matvec(lax.full_like(b, 1.0)))

    return total(lax.custom_linear_solve(lambda x: a * x, b, solve, solve))


def constrained(x: Any) -> Any:
    y = lax.sin(x)
    y = sw.with_sharding_constraint(y, NamedSharding(mesh(), P("y", "x")))
    return lax.cos(y)


def tree_of_arrays(x: dict) -> dict:
    return {"sum": lax.add(x["a"], x["b"][0]), "same": x["b"]}


ELEMENTWISE = [
    Case("nothing", lambda: (), ()),
    Case("identity", lambda x: x, (f32(2, 3),)),
    Case("literal_result", lambda x: (x, np.float32(2)), (f32(2),)),
    Case("sine", lax.sin, (f32(2, 3),)),
    Case("polynomial", polynomial, (f32(4),)),
    Case("polynomial_weak", polynomial, (f32(weak=True),)),
    Case("polynomial_bf16", polynomial, (bf16(4),)),
    Case("complex_parts", lambda z: (lax.real(z), lax.imag(lax.conj(z))), (c64(3),)),
    Case("integers", lambda x, y: lax.rem(lax.max(x, y), lax.bitwise_xor(x, y)), (i32(4), i32(4))),
    Case(
        "shifts",
        lambda x: lax.shift_right_logical(lax.shift_left(x, np.uint32(3)), np.uint32(1)),
        (u32(4),),
    ),
    Case("choice", lambda p, x, y: lax.select(p, x, y), (boolean(3), f32(3), f32(3))),
    Case("clamp", lambda x: lax.clamp(-1.0, x, 1.0), (f32(3),)),
    Case(
        "casts",
        lambda x: [lax.convert_element_type(x, t) for t in ("bfloat16", np.int32, bool)],
        (f32(3),),
    ),
    Case("erf", lax.erf, (f32(3),)),
    Case("powers", lambda x: (lax.integer_pow(x, 5), lax.sqrt(x), lax.rsqrt(x)), (f32(3),)),
]

ARRAYS = [
    Case("sum", total, (f32(2, 3),)),
    Case(
        "product_and_extremes",
        lambda x: (lax.reduce_prod(x, (0,)), lax.reduce_max(x, (1,)), lax.reduce_min(x, (0, 1))),
        (f32(2, 3),),
    ),
    Case("argmax", lambda x: lax.argmax(x, 1, np.int32), (f32(2, 3),)),
    Case("running_sum", lambda x: lax.cumsum(x, 1), (f32(2, 3),)),
    Case("sort", lax.sort, (f32(4),)),
    Case("top_k", lambda x: lax.top_k(x, 2), (f32(2, 4),)),
    Case("matmul", lax.dot, (f32(2, 3), f32(3, 4))),
    Case("batch_matmul", lax.batch_matmul, (f32(5, 2, 3), f32(5, 3, 4))),
    Case(
        "matmul_bf16_to_f32",
        lambda x, y: lax.dot(x, y, preferred_element_type=np.float32),
        (bf16(2, 3), bf16(3, 4)),
    ),
    Case(
        "reshape_and_transpose",
        lambda x: lax.transpose(lax.reshape(x, (3, 2, 4)), (2, 0, 1)),
        (f32(6, 4),),
    ),
    Case("broadcast", lambda x: lax.broadcast_in_dim(x, (4, 3, 2), (1,)), (f32(3),)),
    Case("concatenate", lambda x, y: lax.concatenate([x, y], 0), (f32(2, 3), f32(1, 3))),
    Case("slices", lambda x: lax.slice(x, (1, 0), (5, 4), (2, 1)), (f32(6, 4),)),
    Case("pad", lambda x: lax.pad(x, np.float32(0), ((1, 2, 0), (0, -1, 1))), (f32(2, 3),)),
    Case("dynamic_slice", lambda x, i: lax.dynamic_slice(x, (i, i), (1, 2)), (f32(4, 4), i32())),
    Case("gather_rows", read_rows, (f32(5, 3), i32(2, 1))),
    Case("scatter_add_rows", add_rows, (f32(5, 3), i32(2, 1), f32(2, 3))),
    Case("softmax", softmax, (f32(2, 3),)),
    Case("layer", layer, (f32(2, 3), f32(3, 4))),
    Case("captured_constant", reused_constant, (f32(2, 3),)),
    Case("tree", tree_of_arrays, ({"a": f32(2), "b": (f32(2), i32())},)),
]

TRANSFORMS = [
    Case("grad_of_sine", sw.grad(lax.sin), (f32(),)),
    Case("grad_of_grad", sw.grad(sw.grad(lambda x: lax.mul(lax.sin(x), x))), (f32(),)),
    Case("grad_of_loss", sw.grad(loss), (f32(3, 4), f32(2, 3))),
    Case("value_and_grad", sw.value_and_grad(loss), (f32(3, 4), f32(2, 3))),
    Case(
        "grad_of_softmax",
        sw.grad(lambda x, y: total(lax.mul(softmax(x), y))),
        (f32(2, 3), f32(2, 3)),
    ),
    Case("jvp", lambda x, t: sw.jvp(layer, (x, x), (t, t)), (f32(2, 2), f32(2, 2))),
    Case("vmap_of_layer", sw.vmap(layer, in_axes=(0, None)), (f32(5, 2, 3), f32(3, 4))),
    Case("vmap_of_both", sw.vmap(layer, in_axes=(0, 2)), (f32(5, 2, 3), f32(3, 4, 5))),
    Case("vmap_of_grad", sw.vmap(sw.grad(loss), in_axes=(None, 0)), (f32(3, 4), f32(5, 2, 3))),
    Case(
        "vmap_of_vmap",
        sw.vmap(sw.vmap(lax.add, in_axes=(None, 0)), in_axes=(0, None)),
        (f32(2), f32(3)),
    ),
    Case("jit_inside", twice, (f32(3),)),
    Case("grad_of_jit_inside", sw.grad(lambda x: total(twice(x))), (f32(3),)),
    Case("vmap_of_jit_inside", sw.vmap(twice), (f32(3),)),
    Case("scan", scanned, (f32(2), f32(5, 2))),
    Case("grad_of_scan", sw.grad(lambda c, xs: total(scanned(c, xs)[0])), (f32(2), f32(5, 2))),
    Case("vmap_of_scan", sw.vmap(scanned), (f32(3, 2), f32(3, 5, 2))),
    Case("cond", chosen, (boolean(), f32(3))),
    Case("grad_of_cond", sw.grad(lambda p, x: total(chosen(p, x)), 1), (boolean(), f32(3))),
    Case("vmap_of_cond", sw.vmap(chosen), (boolean(2), f32(2, 3))),
    Case("switch", switched, (i32(), f32(3))),
    Case("while_loop", grown, (f32(3),)),
    Case("jvp_of_while_loop", lambda x, t: sw.jvp(grown, (x,), (t,)), (f32(3), f32(3))),
    Case("vmap_of_while_loop", sw.vmap(grown), (f32(2, 3),)),
    Case("fori_loop", lambda x: counted(4, x), (f32(3),)),
    Case("fori_loop_traced", counted, (i32(), f32(3))),
    Case("associative_scan", lambda x: lax.associative_scan(lax.mul, x), (f32(5),)),
    Case("grad_of_linear_solve", sw.grad(solved, (0, 1)), (f32(3), f32(3))),
]

PLACED = [
    Case("placed_elementwise", polynomial, (f32(8, 4, on=P("x", "y")),)),
    Case("placed_layer", layer, (f32(8, 6, on=P("x", None)), f32(6, 4, on=P(None, "y")))),
    Case("placed_grad", sw.grad(loss), (f32(6, 4, on=P(None, "y")), f32(8, 6, on=P("x", None)))),
    Case(
        "placed_out_sharding",
        lambda x: lax.sin(x),
        (f32(8, 4, on=P("x", None)),),
        lambda mesh: {"out_shardings": NamedSharding(mesh, P(None, "y"))},
    ),
    Case(
        "placed_in_sharding",
        lambda x: lax.sin(x),
        (f32(8, 4),),
        lambda mesh: {"in_shardings": (NamedSharding(mesh, P(("x", "y"), None)),)},
    ),
    Case("placed_constraint", constrained, (f32(8, 4, on=P("x", None)),)),
    Case("placed_constant", reused_constant, (f32(2, 3, on=P("y", None)),)),
    Case("placed_top_k", lambda x: lax.top_k(x, 2), (f32(8, 4, on=P("x", None)),)),
    Case(
        "donated",
        lambda x, y: lax.add(x, y),
        (f32(8, 4, on=P("x", None)),) * 2,
        lambda mesh: {"donate_argnums": (0,)},
    ),
]

CASES = [*ELEMENTWISE, *ARRAYS, *TRANSFORMS, *PLACED]

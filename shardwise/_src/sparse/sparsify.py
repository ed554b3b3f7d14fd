"""`sparsify`: runs functions of dense arrays on sparse arrays.

    f = sparsify(lambda m, v: 2 * (m.T @ v))
    f(BCOO.fromdense(x), v)

An interpreter whose traced values are sparse arrays; `RULES` define the ops on them. An op without
a rule is rejected, because its result would be dense. Calls of `jit` are inlined; `control` handles
loops and branches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.context import CURRENT, current
from shardwise._src.control.cond import cond
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program, eval_program, held_in
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.numpy.joining import concatenate
from shardwise._src.ops import basis, elementwise, shape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.elementwise import integer_pow
from shardwise._src.ops.indexing import gather_scatter as gather
from shardwise._src.runtime.pytree import flatten
from shardwise._src.sparse.base import JAXSparse, Stored
from shardwise._src.sparse.control import run_cond, run_scan, run_while
from shardwise._src.sparse.entries import bcoo_update_layout
from shardwise._src.sparse.products import at_places, bcoo_dot_general, bcoo_multiply_sparse
from shardwise._src.sparse.sparse_shapes import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_gather,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_transpose,
)
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import is_inexact


class SparseTracer(Tracer):
    """A sparse array where a function expects a dense array."""

    __slots__ = ("matrix",)

    def __init__(self, interpreter: Sparsify, matrix: Any):
        self.interpreter = interpreter
        self.aval = array_type(matrix.shape, matrix.dtype)
        self.matrix = matrix


class Sparsify(Interpreter):
    """Applies rules to sparse arrays, and uses the parent as interpreter."""

    __slots__ = ()

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        mats = [a.matrix if self._owns(a) else a for a in args]
        if not any(isinstance(m, JAXSparse) for m in mats):
            return self.parent.process(op, args, params)
        if op.contains.is_call:
            return eval_program(next(held_in(op, params)), args, self._bind)
        runs = PROGRAMS.get(op)
        if op not in RULES and runs is None:
            raise _dense(
                f"[{op.name}] of a sparse array is not implemented, as its result would be dense."
            )
        token = CURRENT.set(self.parent_context())
        try:
            if runs is not None:
                found = runs(_on_sparse, mats, **params)
            else:
                found = RULES[op](op, *mats, **params)
        finally:
            CURRENT.reset(token)
        return [*map(self.wrap, found)] if op.multiple else self.wrap(found)

    def _owns(self, x: Any) -> bool:
        return x.__class__ is SparseTracer and x.interpreter is self

    def _bind(self, eqn: Equation, values: list[Any]) -> Any:
        found = self.process(eqn.op, tuple(values), eqn.params)
        return found if eqn.op.multiple else (found,)

    def wrap(self, x: Any) -> Any:
        return SparseTracer(self, x) if isinstance(x, JAXSparse) else x


def _dense(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"sparsify: {what} Use `shardwise.experimental.sparse.todense` if that is intended."
    )


def is_sparse(x: Any) -> bool:
    return isinstance(x, JAXSparse)


def sparsify(f: Callable, use_tracer: bool = False) -> Callable:
    """Makes `f`, written for dense arrays, accept BCOO and BCSR arrays in its pytrees of arguments.

    Results are sparse if ops preserve zeros: products, sums of sparse arrays, shapes, slices, and
    functions that are 0 at 0. Sparse arrays may pass through `jit`, loops and branches: the carry
    of a loop, and the results of branches, must keep one layout and number of stored elements.
    The xs of a `scan` have their first dimension as a batch dimension.

    use_tracer: ignored; both of JAX's implementations are the same here.

    Raises:
      NotImplementedError: if an op would make a sparse array dense, as `cos` or `x + 1` do.
      TypeError: if a loop or branches would change a layout.
    """

    @functools.wraps(f)
    def sparse(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs), is_sparse)
        interpreter = Sparsify(current().interpreter, "sparsify", name_of(f))
        with interpreter.entered():
            given, named = tree.unflatten(map(interpreter.wrap, leaves))
            outs, out_tree = flatten(f(*given, **named))
            found = [x.matrix if interpreter._owns(x) else x for x in outs]
        reject_leaks(interpreter)
        return out_tree.unflatten(found)

    return sparse


def _on_sparse(program: Program, values: Sequence[Any]) -> list[Any]:
    """The results of a program for values some of which are sparse."""
    return sparsify(lambda *xs: eval_program(program, xs))(*values)


# -- rules: (op, operands, some of which are sparse, parameters) --


def _stored(x: Any) -> Any:
    again = getattr(x, "to_bcoo", None) if isinstance(x, JAXSparse) else None
    return x if again is None else again()


def _on_stored(fun: Callable) -> Callable:
    """A rule for BCOO; sparse results have the class of the first operand if possible."""

    def rule(op: Op, *args: Any, **params: Any) -> Any:
        out = fun(*map(_stored, args), **params)
        again = getattr(next(filter(is_sparse, args)), "again", None)
        return again(out) if again is not None and isinstance(out, Stored) else out

    return rule


def _unary(linear: bool) -> Callable:
    def rule(op: Op, x: Any, **params: Any) -> Any:
        if not linear and not getattr(x, "unique_indices", False):
            x = x.sum_duplicates(nse=x.nse, remove_zeros=False)
        return x.with_data(op(x.data, **params))

    return rule


def _converted(op: Op, x: Any, **params: Any) -> Any:
    return _unary(is_inexact(params["dtype"]))(op, x, **params)


def _power(op: Op, x: Any, *, y: int) -> Any:
    if y <= 0:
        raise _dense(f"the power {y} of a sparse array would be dense.")
    return _unary(False)(op, x, y=y)


def _dot(x: Any, y: Any, *, precision: Any, **params: Any) -> Any:
    return bcoo_dot_general(x, y, precision=precision, **params)


def _same_places(x: Any, y: Any) -> bool:
    return x.indices is y.indices and x.shape == y.shape


def _mul(x: Any, y: Any) -> Any:
    if not is_sparse(x):
        return _mul(y, x)
    if not is_sparse(y):
        return x.with_data(x.whole()[0] * at_places(x, y, 0))
    if _same_places(x, y) and x.unique_indices:
        return x.with_data(x.data * y.data)
    return bcoo_multiply_sparse(x, y)


def _div(x: Any, y: Any) -> Any:
    if is_sparse(y):
        raise _dense("division by a sparse array, which has zeros, is not supported.")
    return x.with_data(x.whole()[0] / at_places(x, y, 1))


def _add(x: Any, y: Any) -> Any:
    if not (is_sparse(x) and is_sparse(y)) or x.shape != y.shape:
        raise _dense("a sum of a sparse and a dense array is dense.")
    if _same_places(x, y):
        return x.with_data(x.data + y.data)
    if x.n_dense != y.n_dense:
        raise NotImplementedError(
            f"sparsify: arrays with n_dense {x.n_dense} and {y.n_dense} cannot be added. Give them "
            "the same layout with `bcoo_update_layout(n_dense=...)`."
        )
    n = min(x.n_batch, y.n_batch)
    x, y = bcoo_update_layout(x, n_batch=n), bcoo_update_layout(y, n_batch=n)
    data, indices = zip(x.whole(), y.whole(), strict=True)
    return x.made(concatenate(data, n), concatenate(indices, n), x.shape)


def _sub(x: Any, y: Any) -> Any:
    return _add(x, y.with_data(-y.data)) if is_sparse(y) else _add(x, y)


def _sum(x: Any, *, axes: tuple[int, ...]) -> Any:
    """The sum of all elements is a dense scalar."""
    found = bcoo_reduce_sum(x, axes=axes)
    return found if found.ndim else found.todense()


def _split(x: Any, *, sizes: tuple[int, ...], axis: int) -> list[Any]:
    found, start = [], 0
    for n in sizes:
        low, high = [0] * x.ndim, list(x.shape)
        low[axis], high[axis] = start, start + n
        found.append(bcoo_slice(x, start_indices=low, limit_indices=high))
        start += n
    return found


PROGRAMS: dict[Op, Callable] = {while_loop: run_while, scan: run_scan, cond: run_cond}
_LINEAR = [elementwise.neg, elementwise.real, elementwise.imag, elementwise.conj]
_ZERO_AT_ZERO = [
    getattr(elementwise, name)
    for name in """
    abs asin asinh atan atanh cbrt ceil expm1 floor log1p round sign sin sinh sqrt square tan tanh
    """.split()
    if hasattr(elementwise, name)
]
RULES: dict[Op, Callable] = {
    **{op: _unary(True) for op in _LINEAR},
    **{op: _unary(False) for op in _ZERO_AT_ZERO},
    convert_element_type: _converted,
    integer_pow: _power,
    elementwise.todense: lambda op, x: x.todense(),
    **{
        op: _on_stored(fun)
        for op, fun in {
            dot_general: _dot,
            elementwise.mul: _mul,
            elementwise.div: _div,
            elementwise.add: _add,
            elementwise.sub: _sub,
            basis.reduce_sum: _sum,
            basis.broadcast_in_dim: lambda x, *, shape, dims: bcoo_broadcast_in_dim(
                x, shape=shape, broadcast_dimensions=dims
            ),
            basis.reshape: lambda x, *, shape: bcoo_reshape(x, new_sizes=shape),
            basis.transpose: lambda x, *, perm: bcoo_transpose(x, permutation=perm),
            shape.slice_: bcoo_slice,
            shape.split: _split,
            shape.rev: bcoo_rev,
            shape.concatenate: lambda *xs, dimension: bcoo_concatenate(xs, dimension=dimension),
            gather.dynamic_slice: lambda x, *at, slice_sizes: bcoo_dynamic_slice(
                x, at, slice_sizes
            ),
            gather.gather: bcoo_gather,
        }.items()
    },
}

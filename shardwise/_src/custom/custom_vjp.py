"""`custom_vjp`: a function with a custom rule for cotangents.

    @custom_vjp
    def f(x, y): ...

    def f_fwd(x, y):
        return f(x, y), (x, y)          # the result, and residuals for f_bwd

    def f_bwd(residuals, ct):
        x, y = residuals
        return ct * y, ct * x           # a cotangent for each argument; None is zero

    f.defvjp(f_fwd, f_bwd)

A call is one op. Its jvp rule runs `fwd` in the parent and binds a second op, `custom_vjp_linear`,
from tangents to tangents, which only has a transpose: `bwd`. If it had to be evaluated,
forward-mode differentiation was requested, for which there is no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.base.marks import given, picked, spread
from shardwise._src.base.positions import join, split
from shardwise._src.core.infer import is_operand, type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.custom.custom_calls import (
    BatchedRule,
    CallRule,
    CustomFunction,
    Rule,
    SymbolicZero,
    as_array,
    as_arrays,
    check_own_tree,
    checked_tangent,
    filled,
    op_of_calls,
    pair_of,
)
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.call_errors import reject_call
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tree_paths import path_in, paths_in, tree_difference
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.elementwise import mul
from shardwise._src.refs.custom_rule_refs import without_refs
from shardwise._src.refs.refs import is_ref, reject_returned
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import MappedAxis, run_batched, to_dim, with_dim
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.transforms.transpose import REFS, collecting_logs, log
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_float, is_inexact
from shardwise._src.values.convert import cast


class CustomVJPPrimal:
    """An argument of `fwd` with `symbolic_zeros=True`: its value, and whether it has a tangent."""

    __slots__ = ("value", "perturbed")

    def __init__(self, value: Any, perturbed: bool):
        self.value = value
        self.perturbed = perturbed


# -- rules --


class CallVjp(CallRule):
    """The rule for a call.

    fwd: (values, marks of those with tangents) → (results, residuals, `Backward`).
    """

    __slots__ = ()

    def fwd(self, primals: Sequence[Any], moving: Sequence[bool]) -> tuple[list, list, Backward]:
        function, values = self.function, list(map(as_array, primals))
        if function.symbolic_zeros:
            values = [CustomVJPPrimal(x, m) for x, m in zip(values, moving, strict=True)]
        result = function.fwd(*self.arguments(values))
        outs, residuals, self.tree, residual_tree = _checked_fwd(function, result, self.tree)
        trees = self.in_tree, self.tree, residual_tree
        types = tuple([type_of(x) for x in primals]), tuple([type_of(x) for x in outs])
        places = tuple([i for i, x in enumerate(residuals) if x.__class__ in _NUMBERS])
        numbers, rest = split(residuals, places)
        return outs, rest, CallBackward(function, self.fixed, trees, types, places, numbers)


class Backward(Rule):
    """The rule for the linear part of a call."""

    __slots__ = ()

    def run(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        """Cotangents of the inputs, from cotangents of the results; None for zero."""
        raise NotImplementedError


_NUMBERS = (bool, int, float, complex, np.bool_)


class CallBackward(Backward):
    """The user's `bwd`, for one call.

    trees:   of the inputs, the results and the residuals. types: of the inputs and the results.
    numbers: residuals that are Python numbers, on which `bwd` may branch; places: their positions
             among all residuals.
    """

    __slots__ = ("function", "fixed", "trees", "types", "places", "numbers")

    def __init__(
        self,
        function: custom_vjp,
        fixed: tuple,
        trees: tuple,
        types: tuple,
        places: tuple[int, ...],
        numbers: tuple[Any, ...],
    ):
        key = (function, fixed, trees, types, places, repr(numbers))
        super().__init__(function.name, key)
        self.function, self.fixed, self.trees, self.types = function, fixed, trees, types
        self.places, self.numbers = places, numbers

    def run(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        function, (tree, out_tree, residual_tree) = self.function, self.trees
        pairs = zip(cts, self.types[1], strict=True)
        ct = out_tree.unflatten([as_array(filled(x, t, function.symbolic_zeros)) for x, t in pairs])
        arrays = map(as_array, residuals)
        kept = residual_tree.unflatten(join(self.places, self.numbers, arrays))
        try:
            result = function.bwd(*self.fixed, kept, ct)
        except TypeError as error:
            who = f"the {function.rules[1]} rule of {function.kind} function {function.name}"
            reject_call(error, who, ["nondiff_args"] * bool(self.fixed) + ["residuals", "ct"])
            raise
        if function.with_logs:
            result = _logged(function, result)
        return _checked_bwd(function, result, tree, self.types[0])


class BatchedVjp(BatchedRule):
    """`fwd` over values with batch dimensions.

    Residuals keep their batch dimensions in place: those without one are not broadcast.
    """

    __slots__ = ()

    def fwd(self, primals: Sequence[Any], moving: Sequence[bool]) -> tuple[list, list, Backward]:
        inner: list[Any] = []
        mapped = self.mapped

        def flat(*values: Any) -> list[Any]:
            outs, residuals, backward = self.inner.fwd(values, moving)
            inner[:] = [len(outs), backward]
            return [*outs, *residuals]

        values, found = run_batched(mapped.over_current(), flat, primals, self.dims)
        count, backward = inner
        outs = [
            to_dim(o, d, 0, mapped.size, mapped.batch_sharding)
            for o, d in zip(values[:count], found, strict=False)
        ]
        new = BatchedBackward(backward, mapped, tuple(found[count:]), self.dims)
        return outs, values[count:], new


class BatchedBackward(Backward):
    """`run` over a mapped axis; cotangents of inputs without a batch dimension are summed over it.

    residual_dims, dims: the batch dimensions of residuals and inputs.
    """

    __slots__ = ("inner", "mapped", "residual_dims", "dims")

    def __init__(self, inner: Any, mapped: MappedAxis, residual_dims: tuple, dims: tuple):
        super().__init__(inner.name, (inner, mapped, residual_dims, dims))
        self.inner, self.mapped, self.residual_dims, self.dims = inner, mapped, residual_dims, dims

    def run(self, residuals: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
        marks: list[bool] = []
        trees: list[Any] = []  # of logs
        nonzero, count = [ct is not None for ct in cts], len(residuals)

        def flat(*values: Any) -> list[Any]:
            with collecting_logs() as logs:
                found = self.inner.run(values[:count], spread(values[count:], nonzero))
            marks[:] = [ct is not None for ct in found]
            leaves, tree = flatten(logs)
            trees[:] = [tree]
            return [*given(found), *leaves]

        in_dims = [*self.residual_dims, *[0] * sum(nonzero)]
        args, size = [*residuals, *given(cts)], self.mapped.size
        found = run_batched(self.mapped.over_current(), flat, args, in_dims)
        pairs, rows = zip(*found, strict=True), zip(marks, self.dims, strict=True)
        logs = [to_dim(x, d, 0, size) for x, d in [*zip(*found, strict=True)][sum(marks) :]]
        log(trees[0].unflatten(logs))
        return [_placed(*next(pairs), wanted, size) if m else None for m, wanted in rows]


def _placed(ct: Any, dim: int | None, wanted: int | None, size: int) -> Any:
    if wanted is not None:
        return to_dim(ct, dim, wanted, size)
    if dim is not None:
        return reduce_sum(ct, axes=(dim,))
    return mul(ct, cast(size, type_of(ct).dtype))


# -- the call --


def _jvp(rule: Any, primals: Any, tangents: Any, typed: Callable) -> tuple[list, list]:
    moving = tuple([t is not None for t in tangents])
    outs, residuals, backward = rule.fwd(primals, moving)
    outs = typed(outs)
    types = tuple([type_of(x).strong() for x in outs])
    smooth = tuple([is_inexact(t.dtype) for t in types])
    moved = rule.function.linear(
        *residuals,
        *given(tangents),
        backward=backward,
        num_residuals=len(residuals),
        moving=moving,
        out_types=types,
        smooth=smooth,
    )
    return outs, spread(moved, smooth)


custom_vjp_call = op_of_calls("custom_vjp_call", _jvp, BatchedVjp)


# -- the linear part: only its transpose exists --


def _reject(op: Op, *given: Any, backward: Backward, **p: Any) -> NoReturn:
    raise TypeError(
        f"forward-mode differentiation (jvp, jacfwd, linearize) reached {backward.name}, a "
        "custom_vjp function, whose rule is for reverse mode (grad, vjp, jacrev) only. Give it a "
        "rule with custom_jvp instead, which supports both."
    )


def _linear_type(op: Op, *types: ArrayType, out_types: tuple, smooth: tuple, **p: Any) -> tuple:
    return tuple([t for t, s in zip(out_types, smooth, strict=True) if s])


def _linear_transpose(
    op: Op,
    cts: Any,
    *args: Any,
    backward: Backward,
    num_residuals: int,
    moving: tuple,
    smooth: tuple,
    **p: Any,
) -> list[Any]:
    found = backward.run(args[:num_residuals], spread(cts, smooth))
    return [None] * num_residuals + picked(found, moving)


def _linear_batch(
    op: Op,
    mapped: MappedAxis,
    args: Any,
    dims: Any,
    *,
    backward: Backward,
    num_residuals: int,
    out_types: tuple,
    **p: Any,
) -> tuple[list, list]:
    wide = [to_dim(a, d, 0, mapped.size) for a, d in zip(args, dims, strict=True)][num_residuals:]
    in_dims = tuple([0 if m else None for m in p["moving"]])
    new = BatchedBackward(backward, mapped, tuple(dims[:num_residuals]), in_dims)
    types = tuple([with_dim(t, mapped.size, 0, mapped.batch_sharding) for t in out_types])
    outs = op(
        *args[:num_residuals],
        *wide,
        backward=new,
        num_residuals=num_residuals,
        out_types=types,
        **p,
    )
    return outs, [0] * len(outs)


custom_vjp_linear = Op(
    "custom_vjp_linear",
    user_code=True,
    transposes_zero=True,
    elements=Elements.KNOWN,
    type_rule=_linear_type,
    lower=_reject,
    jvp=_reject,
    transpose=_linear_transpose,
    batch=_linear_batch,
    eager=lambda op, args, params: _reject(op, **params),
    multiple=True,
)
custom_vjp_linear_with_refs = replace(
    custom_vjp_linear, name="custom_vjp_linear_with_refs", effects=frozenset({REFS})
)


# -- the decorator, and what its rules may return --


class custom_vjp(CustomFunction[P, T]):
    """A function whose reverse-mode derivative is defined by a pair of functions.

    Args:
      fun: a function of arrays in pytrees.
      nondiff_argnums, nondiff_argnames: arguments that are not arrays (functions, settings).
        `fwd` gets them in their positions, `bwd` gets them first.

    Returns:
      The function; set its rule with `defvjp` before calling it.
    """

    kind = "custom_vjp"
    lacks = "derivative rule: define one with {}.defvjp(fwd, bwd)"
    op = custom_vjp_call
    linear: Op = custom_vjp_linear  # the linear part of a call
    linear_with_refs = custom_vjp_linear_with_refs  # if residuals contain refs
    rules = "fwd", "bwd"  # names of the functions, for messages
    fwd: Any = None  # functions, after `defvjp`
    bwd: Any = None
    symbolic_zeros = False
    with_logs = False

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Sets the rule.

        fwd: `fwd(*args) → (result, residuals)`, with any pytree of arrays as residuals.
        bwd: `bwd(*nondiff_args, residuals, ct) → cotangents`, a tuple with one for each
          differentiable argument; None means zero. One may be of another floating dtype than its
          argument. Operations before the call that negate elements or only move them, and have one
          result (`reshape`, `concatenate`, an index), pass it on in this dtype; all others cast it
          to the dtype of their own result first: products, `split`, which has several results,
          nested `jit`, loops. `astype` returns the dtype of its operand.
        symbolic_zeros: `fwd` gets leaves as `CustomVJPPrimal`, and `bwd` zero cotangents as
          `SymbolicZero`.
        optimize_remat: accepted; unused values are never computed.
        """
        self.fwd, self.bwd = fwd, bwd
        self.ready = fwd is not None and bwd is not None
        self.symbolic_zeros = symbolic_zeros
        self.with_logs = False

    def defvjp_with_logs(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Sets the rule like `defvjp`, but `bwd` returns `(cotangents, logs)`.

        logs: a dict of pytrees of arrays by name, or None. `vjp(f, x)[1].with_logs(ct)` returns
          them; a plain call ignores them.
        """
        self.defvjp(fwd, bwd, symbolic_zeros, optimize_remat)
        self.with_logs = True

    def called(self, fixed: tuple, leaves: Sequence[Any], tree: Any) -> Any:
        self._check_fixed(fixed)
        if any(map(is_ref, leaves)):
            return without_refs(self, fixed, leaves, tree, lambda: paths_in("args", tree))
        return super().called(fixed, leaves, tree)

    def _check_fixed(self, fixed: tuple) -> None:
        for x in flatten(fixed)[0]:
            if isinstance(x, Tracer):
                raise UnexpectedTracerError(
                    f"{self.kind} function {self.name} got a traced value of type "
                    f"{x.aval.str_short(True)} for an argument in {self.fixed}nums, for which "
                    "no rule returns a cotangent. Make it an ordinary argument, and return None "
                    f"for it from {self.rules[1]}."
                )

    def rule(self, fixed: tuple, tree: Any) -> CallVjp:
        return CallVjp(self, fixed, tree)


def _described(function: custom_vjp, number: int) -> str:
    """A rule, for messages: fwd or bwd."""
    rule = (function.fwd, function.bwd)[number]
    which = function.rules[number]
    return f"{name_of(rule)}, the {which} rule of {function.kind} function {function.name}"


def _checked_fwd(function: custom_vjp, result: Any, expected: Any) -> tuple[list, list, Any, Any]:
    """Flat results and residuals of the user's rule, and their trees."""
    rule = f"{_described(function, 0)},"
    out, residual = pair_of(rule, result, "(result, residuals)")
    outs, tree = flatten(out)
    check_own_tree(rule, tree, expected)
    residuals, residual_tree = flatten(residual)
    for i, x in enumerate(residuals):
        if not is_operand(x):
            reject_returned(rule.removesuffix(","), [x])
            raise TypeError(
                f"{rule} must return residuals that are arrays; "
                f"{path_in('residuals', residual_tree, i)} is {x!r} of type "
                f"{type(x).__name__}. Name arguments that are constants in {function.fixed}nums."
            )
    return outs, residuals, tree, residual_tree


def _logged(function: custom_vjp, result: Any) -> Any:
    """The cotangents that a rule with logs returned."""
    rule = f"{_described(function, 1)},"
    cts, logs = pair_of(rule, result, "(cotangents, logs)")
    if logs is not None and type(logs) is not dict:
        raise TypeError(
            f"{rule} must return logs as a dict, or None, after its cotangents; it returned "
            f"{short_repr(logs)}."
        )
    log(as_arrays(logs or {}))
    return cts


def _checked_bwd(
    function: custom_vjp, result: Any, tree: Any, types: Sequence[ArrayType]
) -> list[Any]:
    """Cotangents for the leaves of the arguments, from the result of the user's rule."""
    rule = f"{_described(function, 1)},"
    skeleton = tree.unflatten(range(tree.num_leaves))
    if not isinstance(result, tuple | list) or len(result) != len(skeleton):
        came = f"{len(result)} of them" if isinstance(result, tuple | list) else repr(result)
        raise TypeError(
            f"{rule} must return a tuple with one cotangent for each of the "
            f"{len(skeleton)} differentiable arguments; it returned {came}."
        )
    cts: list[Any] = [None] * tree.num_leaves
    for i, (ct, places) in enumerate(zip(result, skeleton, strict=True)):
        if ct is None:
            continue
        found, ct_tree = flatten(ct, _is_none)
        wanted = flatten(places, _is_none)  # None is a leaf in both, as an argument and as zero
        if ct_tree != wanted[1]:
            where = tree_difference(
                "the argument", wanted[1], "the cotangent", ct_tree, f"args[{i}]"
            )
            raise TypeError(
                f"{rule} must return cotangents with the pytree structures of the arguments; "
                f"{where}."
            )
        for place, x in zip(wanted[0], found, strict=True):
            if place is not None:
                cts[place] = x
    return [
        checked_tangent(ct, _with_dtype_of(ct, t), _wrong(rule, tree, i, t))
        for i, (ct, t) in enumerate(zip(cts, types, strict=True))
    ]


def _wrong(rule: str, tree: Any, i: int, t: ArrayType) -> Callable[[str], Exception]:
    return lambda came: ValueError(
        f"{rule} must return cotangents with the types of the arguments; it returned {came} for "
        f"{path_in('args', tree, i)} of type {t.str_short(True)}."
    )


def _with_dtype_of(ct: Any, t: ArrayType) -> ArrayType:
    """The type that a cotangent must have: it may be of another floating dtype than its value."""
    if not (is_operand(ct) and is_float(t.dtype) and is_float(type_of(ct).dtype)):
        return t
    return t.update(dtype=type_of(ct).dtype)


def _is_none(x: Any) -> bool:
    return x is None or isinstance(x, SymbolicZero)

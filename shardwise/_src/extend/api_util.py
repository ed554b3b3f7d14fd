"""Helpers for writing transforms of functions of pytrees, under JAX's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import DebugInfo
from shardwise._src.extend.linear_util import (
    WrappedFun,
    transformation,
    transformation2,
    transformation_with_aux,
    wrap_init,
)
from shardwise._src.numpy.raveled import ravel_pytree
from shardwise._src.runtime.pytree import PyTreeDef, flatten
from shardwise._src.types.array_type import ArrayType


def debug_info(
    traced_for: str,
    fun: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    **_: Any,
) -> DebugInfo:
    """A description of a function for messages. traced_for: the transform."""
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__name__", "f")
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return DebugInfo(traced_for, f"{name}{where}")


def flatten_fun(
    fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Converts a function of pytrees to a function of leaves: `(fun, in_tree)` → the flat function,
    and a thunk that returns its output tree once it ran. `in_tree` is that of `(args, kwargs)`."""
    return _flat(fun, *gen_static_args, use_eq_store=use_eq_store, unk_names=unk_names)


@transformation_with_aux
def _flat(in_tree: PyTreeDef, *leaves: Any) -> Any:
    args, kwargs = in_tree.unflatten(leaves)
    result = yield args, kwargs
    yield flatten(result)


def flatten_fun_nokwargs(
    fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Like `flatten_fun`, but `in_tree` is the structure of the positional arguments only."""
    return _flat_positional(fun, *gen_static_args, use_eq_store=use_eq_store, unk_names=unk_names)


@transformation_with_aux
def _flat_positional(in_tree: PyTreeDef, *leaves: Any) -> Any:
    result = yield in_tree.unflatten(leaves), {}
    yield flatten(result)


@transformation
def _with_fixed(
    positions: tuple[int, ...], fixed: tuple[Any, ...], *args: Any, **kwargs: Any
) -> Any:
    given, kept = iter(args), dict(zip(positions, fixed, strict=True))
    total = len(args) + len(fixed)
    result = yield [kept[i] if i in kept else next(given) for i in range(total)], kwargs
    yield result


def argnums_partial(
    f: WrappedFun,
    dyn_argnums: int | Sequence[int],
    args: Sequence[Any],
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, list[Any]]:
    """The function with all but some arguments fixed, and a list of the remaining arguments."""
    chosen = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    dynamic = {n % len(args) for n in chosen}
    fixed = [i for i in range(len(args)) if i not in dynamic]
    for i in fixed:
        if require_static_args_hashable:
            try:
                hash(args[i])
            except TypeError:
                raise ValueError(
                    f"argument {i} of {f.__name__} is static, and must be hashable; got "
                    f"{type(args[i]).__name__}."
                ) from None
    left = _with_fixed(f, tuple(fixed), tuple([args[i] for i in fixed]))
    return left, [args[i] for i in sorted(dynamic)]


def donation_vector(
    donate_argnums: Iterable[int],
    donate_argnames: Iterable[str],
    in_tree: PyTreeDef,
    kws: bool = True,
) -> tuple[bool, ...]:
    """For each leaf of `(args, kwargs)`, whether it is donated.

    kws: whether `in_tree` is the structure of `(args, kwargs)` or of `args` alone.
    """
    numbers, names = set(donate_argnums), set(donate_argnames)
    held = in_tree.unflatten(range(in_tree.num_leaves))
    args, kwargs = held if kws else (held, {})
    marks = [False] * in_tree.num_leaves
    chosen = [a for i, a in enumerate(args) if i in numbers]
    for leaf in flatten([*chosen, *[v for k, v in kwargs.items() if k in names]])[0]:
        marks[leaf] = True
    return tuple(marks)


def rebase_donate_argnums(
    donate_argnums: Iterable[int], static_argnums: Iterable[int]
) -> tuple[int, ...]:
    """The indices of the donated arguments among the non-static ones."""
    static = sorted(set(static_argnums))
    return tuple(sorted(d - sum(s < d for s in static) for d in donate_argnums if d not in static))


def flatten_axes(name: str, treedef: PyTreeDef, axis_tree: Any, **_: Any) -> list[Any]:
    """A prefix of a pytree, broadcast to all leaves; None counts as a leaf of the prefix."""
    whole = treedef.unflatten([0] * treedef.num_leaves)
    return broadcast_prefix(axis_tree, whole, name, lambda x: x is None)


def safe_map(f: Callable[..., Any], *sequences: Iterable[Any]) -> list[Any]:
    """The list of `f(x, y, …)` over sequences of equal length."""
    lists = [list(s) for s in sequences]
    if len({len(s) for s in lists}) > 1:
        raise ValueError(
            f"safe_map: the sequences must have the same length; got {[len(s) for s in lists]}."
        )
    return list(map(f, *lists))


def safe_zip(*sequences: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The list of `(x, y, …)` over sequences of equal length."""
    return safe_map(lambda *xs: xs, *sequences)


def ravel_first_arg_(fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """Converts a function whose first argument and result are pytrees to a function of a vector:
    `(fun, unravel)`, where `unravel` builds the pytree from the vector."""
    return _raveled(fun, *gen_static_args)


@transformation2
def _raveled(f: Callable[..., Any], unravel: Callable[[Any], Any], y_flat: Any, *args: Any) -> Any:
    return ravel_pytree(f(unravel(y_flat), *args))[0]


def ravel_first_arg(
    f: Callable[..., Any], unravel: Callable[[Any], Any], debug_info: Any = None
) -> Callable[..., Any]:
    """Like `ravel_first_arg_`, for a function that is not a `WrappedFun`."""
    return ravel_first_arg_(wrap_init(f, debug_info=debug_info), unravel).call_wrapped


def shaped_abstractify(x: Any) -> ArrayType:
    """The type of an array or scalar."""
    return type_of(x)

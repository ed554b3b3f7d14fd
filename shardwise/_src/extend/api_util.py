"""What transforms of functions of trees are written with, under JAX's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shardwise._src.api.prefixes import broadcast_prefix
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
    traced_for: str, fun: Callable[..., Any], args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None, **_: Any,
) -> DebugInfo:
    """What to say of a function in messages. traced_for: the transform."""
    code = getattr(fun, "__code__", None)
    name = getattr(fun, "__name__", "f")
    where = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    return DebugInfo(traced_for, f"{name}{where}")


def flatten_fun(
    fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False
) -> tuple[WrappedFun, Callable[[], Any]]:
    """Makes a function of leaves of one of `(args, kwargs)`: `(fun, in_tree)` → the function, which
    gives leaves, and what gives their tree once it ran."""
    return _flat(fun, *gen_static_args, use_eq_store=use_eq_store, unk_names=unk_names)


@transformation_with_aux
def _flat(in_tree: PyTreeDef, *leaves: Any) -> Any:
    args, kwargs = in_tree.unflatten(leaves)
    result = yield args, kwargs
    yield flatten(result)


def flatten_fun_nokwargs(
    fun: WrappedFun, *gen_static_args: Any, use_eq_store: bool = False, unk_names: bool = False
) -> tuple[WrappedFun, Callable[[], Any]]:
    """The same where `in_tree` is that of the positional arguments only."""
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
    f: WrappedFun, dyn_argnums: int | Sequence[int], args: Sequence[Any],
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, list[Any]]:
    """The function of some of its arguments, with the others fixed, and those arguments."""
    chosen = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    dynamic = {n % len(args) for n in chosen}
    fixed = [i for i in range(len(args)) if i not in dynamic]
    for i in fixed:
        if require_static_args_hashable:
            try:
                hash(args[i])
            except TypeError:
                raise ValueError(
                    f"argument {i} of {f.__name__} is static, and must have a hash; got "
                    f"{type(args[i]).__name__}."
                ) from None
    left = _with_fixed(f, tuple(fixed), tuple([args[i] for i in fixed]))
    return left, [args[i] for i in sorted(dynamic)]


def donation_vector(
    donate_argnums: Iterable[int], donate_argnames: Iterable[str], in_tree: PyTreeDef,
    kws: bool = True,
) -> tuple[bool, ...]:
    """For each leaf of `(args, kwargs)` whether it is donated.

    kws: whether `in_tree` is that of `(args, kwargs)`, or of `args` alone.
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
    """Numbers of donated arguments among those that are not static."""
    static = sorted(set(static_argnums))
    return tuple(sorted(d - sum(s < d for s in static) for d in donate_argnums if d not in static))


def flatten_axes(name: str, treedef: PyTreeDef, axis_tree: Any, **_: Any) -> list[Any]:
    """A prefix of a tree, repeated for each of its leaves; None is a leaf of it."""
    whole = treedef.unflatten([0] * treedef.num_leaves)
    return broadcast_prefix(axis_tree, whole, name, lambda x: x is None)


def safe_map(f: Callable[..., Any], *sequences: Iterable[Any]) -> list[Any]:
    """The list of `f(x, y, …)` over sequences of one length."""
    lists = [list(s) for s in sequences]
    if len({len(s) for s in lists}) > 1:
        raise ValueError(
            f"safe_map: the sequences must be of one length; got {[len(s) for s in lists]}."
        )
    return list(map(f, *lists))


def safe_zip(*sequences: Iterable[Any]) -> list[tuple[Any, ...]]:
    """The list of `(x, y, …)` over sequences of one length."""
    return safe_map(lambda *xs: xs, *sequences)


def ravel_first_arg_(fun: WrappedFun, *gen_static_args: Any) -> WrappedFun:
    """Makes a function of a vector of one whose first argument, and result, is a tree:
    `(fun, unravel)`, where `unravel` makes the tree."""
    return _raveled(fun, *gen_static_args)


@transformation2
def _raveled(
    f: Callable[..., Any], unravel: Callable[[Any], Any], y_flat: Any, *args: Any
) -> Any:
    return ravel_pytree(f(unravel(y_flat), *args))[0]


def ravel_first_arg(
    f: Callable[..., Any], unravel: Callable[[Any], Any], debug_info: Any = None
) -> Callable[..., Any]:
    """`ravel_first_arg_` of a function that is no `WrappedFun`."""
    return ravel_first_arg_(wrap_init(f, debug_info=debug_info), unravel).call_wrapped


def shaped_abstractify(x: Any) -> ArrayType:
    """The type of an array or scalar."""
    return type_of(x)



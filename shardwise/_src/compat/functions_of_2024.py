"""Functions that JAX had until 2024, at their import paths of that time.

with experimental.enable_x64(): ...            # now `shardwise.enable_x64(True)`
xla_computation(f)(x).as_hlo_text()            # now `jit(f).lower(x).as_text("hlo")`
left, right = util.split_list(xs, [2])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from shardwise._src.base import config
from shardwise._src.extend.api_util import safe_map
from shardwise._src.jit.jit import jit
from shardwise._src.messages.formatting import pluralize


def enable_x64(new_val: bool = True) -> AbstractContextManager[Any]:
    """A block with the flag `enable_x64`: 64-bit types are kept."""
    return config.enable_x64(new_val)


def disable_x64() -> AbstractContextManager[Any]:
    """A block without the flag `enable_x64`: 64-bit types are narrowed to 32 bits."""
    return config.enable_x64(False)


def xla_computation(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] = (),
    *,
    backend: str | None = None,
    donate_argnums: int | Sequence[int] = (),
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function of arguments, or of their types, that returns `fun`'s program as XLA's
    computation, without compiling it.

    Args:
      return_shape: whether to return the types of the results, too.
      static_argnums, backend, donate_argnums: as of `jit`.
    """
    run = jit(
        fun,
        static_argnums=static_argnums or None,
        donate_argnums=donate_argnums or None,
        backend=backend,
    )

    def computation(*args: Any, **kwargs: Any) -> Any:
        lowered = run.lower(*args, **kwargs)
        found = lowered.compiler_ir("hlo")
        return (found, lowered.out_info) if return_shape else found

    return computation


# -- jax.util --


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first and the second elements of pairs."""
    rows = list(pairs)
    return tuple([a for a, _ in rows]), tuple([b for _, b in rows])


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Parts of these lengths, and the rest."""
    parts, rest = [], list(args)
    for n in ns:
        parts.append(rest[:n])
        rest = rest[n:]
    return [*parts, rest]


def split_list_checked(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Parts of these lengths, which add up to that of the list."""
    if sum(ns) != len(args):
        raise ValueError(
            f"split_list_checked: parts of lengths {[*ns]} need {pluralize(sum(ns), 'element')}; "
            f"got {len(args)}."
        )
    return split_list(args, ns)[:-1]


def split_dict(dct: Mapping[Any, Any], names: Sequence[Any]) -> list[Any]:
    """The values of a dict by name; the names must be all of its keys."""
    if {*dct} != {*names}:
        raise ValueError(f"split_dict: the keys must be {[*names]}; got {[*dct]}.")
    return [dct[name] for name in names]


def split_merge(
    predicate: Callable[[Any], bool], xs: Sequence[Any]
) -> tuple[list[Any], list[Any], Callable[[Sequence[Any], Sequence[Any]], list[Any]]]:
    """The elements that fulfill a condition, the others, and a function that merges two such
    lists in the original order."""
    sides = [bool(predicate(x)) for x in xs]

    def merge(new_lhs: Sequence[Any], new_rhs: Sequence[Any]) -> list[Any]:
        left, right = iter(new_lhs), iter(new_rhs)
        return [next(left if side else right) for side in sides]

    pairs = list(zip(xs, sides, strict=True))
    return [x for x, side in pairs if side], [x for x, side in pairs if not side], merge


def subvals(lst: Sequence[Any], replace: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """The elements with some replaced: pairs of a position and the new value."""
    found = list(lst)
    safe_map(lambda row: found.__setitem__(*row), replace)
    return tuple(found)


def wrap_name(name: str, transform_name: str) -> str:
    """The name of a transformed function: `vmap(f)`."""
    return f"{transform_name}({name})"

"""Classes whose objects `vmap` maps by rules of the class, not as arrays or pytrees of them.

`to_elt` makes the object of one example, inside the mapped function, from one of the batch;
`from_elt` makes the object of the batch from a result. A spec, in place of an axis in `in_axes` and
`out_axes`, tells the rules how the object is mapped:

    register_vmappable(Named, Spec, int, to_elt, from_elt, None)
    vmap(f, in_axes=Spec("batch"), out_axes=Spec("batch"), axis_size=3)(named)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwise._src.arguments.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.arguments.signatures import called
from shardwise._src.arguments.values import as_input
from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.messages.argument_names import parameters_of
from shardwise._src.messages.source import transforming
from shardwise._src.numpy.ranges import arange
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import Axis, Batch, run_batched, to_dim


class Rules(NamedTuple):
    """The rules of a class; see `register_vmappable`."""

    spec_type: type
    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]


RULES: dict[type, Rules] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[..., Any] | None,
) -> None:
    """Registers the rules by which `vmap` maps objects of a class.

    Args:
      data_type: the class.
      spec_type: of its entries in `in_axes` and `out_axes`.
      axis_size_type, make_iota: int, and None.
      to_elt: `to_elt(cont, index, x, spec)` returns the object inside the mapped function.
        `cont(array, axis)` maps a part of it; `index()` is the number of the example.
      from_elt: `from_elt(cont, size, x, spec)` returns the object outside, from a result;
        `cont(size, part, axis)` does so for its parts.

    Raises:
      NotImplementedError: for sizes that are not ints.
    """
    if axis_size_type is not int or make_iota is not None:
        raise NotImplementedError(
            f"register_vmappable: the mapped axis of a {data_type.__qualname__} must have an int "
            "as its size: pass axis_size_type=int and make_iota=None."
        )
    RULES[data_type] = Rules(spec_type, to_elt, from_elt)


def unregister_vmappable(data_type: type) -> None:
    """Removes the rules of a class."""
    RULES.pop(data_type, None)


def has_rules(x: Any) -> bool:
    return type(x) in RULES


def is_spec(x: Any) -> bool:
    return bool(RULES) and any(isinstance(x, rules.spec_type) for rules in RULES.values())


def mapped_by_rules(
    fun: Callable[..., Any],
    what: str,
    axes: tuple[Any, Any],
    axis: tuple[Any, int | None, Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """A call of a mapped function with objects that have rules.

    axes: `in_axes` and `out_axes`. axis: its name, its size if given, and its mesh axes.
    """
    leaves, tree = flatten((tuple(args), kwargs), has_rules)
    skeleton = tree.unflatten(range(len(leaves)))
    dims = broadcast_to_arguments(axes[0], skeleton[0], f"{what}: in_axes", parameters_of(fun))
    dims += [0] * (len(leaves) - len(dims))
    size = axis[1]
    if size is None:
        sizes = [
            type_of(x).shape[d]
            for x, d in zip(leaves, dims, strict=True)
            if isinstance(d, int) and not has_rules(x)
        ]
        if not sizes:
            raise ValueError(f"{what}: no array determines the size of the axis; pass axis_size.")
        size = sizes[0]
    interpreter = Batch(current().interpreter, Axis(size, axis[0], axis[2]), "vmap", what)

    def index() -> Any:
        return interpreter.wrap(arange(size), 0)

    def enter(x: Any, spec: Any) -> Any:
        if rules := RULES.get(type(x)):
            return rules.to_elt(enter, index, x, spec)
        return x if spec is None else interpreter.wrap(as_input(x, what, lambda: "a part"), spec)

    def leave(n: int, x: Any, spec: Any) -> Any:
        if rules := RULES.get(type(x)):
            return rules.from_elt(leave, n, x, spec)
        return to_dim(*interpreter.unwrap(x), spec, n)

    results: list[Any] = []

    def flat() -> list[Any]:
        given = tree.unflatten([enter(x, d) for x, d in zip(leaves, dims, strict=True)])
        outs, out_tree = flatten(called(what, fun, *given), has_rules)
        skeleton = out_tree.unflatten(range(len(outs)))
        wanted = broadcast_prefix(axes[1], skeleton, f"{what}: out_axes", root="result")
        outs = [leave(size, x, d) for x, d in zip(outs, wanted, strict=True)]
        results.append(out_tree.unflatten(outs))
        return []

    with transforming("vmap"):
        run_batched(interpreter, flat, [], [])
    return results[0]

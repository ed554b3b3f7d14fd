"""Checks and places values where a function declares their logical axes.

    @checked
    def mlp(x: Stream, up: Annotated[Array, "embed mlp"]) -> Stream: ...

Logical axes are local to a function: within a call of a `checked` function, a logical axis has one
size, in all declarations and patterns. Other functions have separate axes. Values remain plain
arrays, without any axis names.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.signatures import check_function
from shardwise._src.arguments.values import as_value
from shardwise._src.base.flags import UserContext, make_user_context
from shardwise._src.core.infer import type_of
from shardwise._src.maps.vmap import vmap as plain_vmap
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import join, pluralize
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.named.axes_op import axes_op
from shardwise._src.named.logical_axes import ANY, NONE, Parameter, Part, parse
from shardwise._src.named.logical_axis_rules import current_rules, sharding_of
from shardwise._src.placement.device_put import with_sharding_constraint
from shardwise._src.placement.explicit_axes import reshard
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import P, T
from shardwise._src.types.array_type import explicit_spec
from shardwise._src.types.sharding import NamedSharding


class Scope:
    """The logical axes of one function call: the size of each, and where it was declared.

    mapped: axes of the enclosing `vmap`s, which values inside do not have.
    call:   the number of the call, while `check` is active.
    """

    def __init__(self, mapped: tuple[str, ...] = ()):
        self.sizes: dict[str, tuple[int, str]] = {}
        self.mapped = mapped
        self.call = next(checking.value) if checking.value else None

    def bind(self, words: Sequence[str], shape: Sequence[int], who: str, what: str) -> None:
        """Records the sizes of a value's logical axes. Raises if an axis has another size."""
        for word, size in zip(words, shape, strict=True):
            if word in self.mapped:
                raise ValueError(
                    f"{who}: {what} has {word!r}, which `shardwise.named.vmap` maps here: a value "
                    "inside has no such axis. Leave it out."
                )
            held, where = self.sizes.setdefault(word, (size, what)) if word != ANY else (size, "")
            if held != size:
                raise ValueError(
                    f"{who}: {word!r} is {held} in {where}, but {size} in {what}. Within a "
                    "function, an axis has one size; use another name for another axis."
                )


# Numbers for calls while `check` stages a program. Part of all cache keys, to retrace everything.
checking: UserContext[Iterator[int] | None] = make_user_context()
_scope: ContextVar[Scope | None] = ContextVar("shardwise_words", default=None)


def scope() -> Scope:
    """The logical axes of the enclosing function; an empty scope outside of any."""
    return _scope.get() or Scope()


@contextmanager
def _function(*mapped: str) -> Generator[Scope]:
    """The body of a function with separate logical axes."""
    outer = _scope.get()
    token = _scope.set(Scope((*(outer.mapped if outer else ()), *mapped)))
    try:
        yield scope()
    finally:
        _scope.reset(token)


def with_logical_axes(fun: Callable[P, T]) -> Callable[P, T]:
    """A function of this package: it uses the enclosing function's axes, or else its own."""

    @functools.wraps(fun)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        if _scope.get() is not None:
            return fun(*args, **kwargs)
        with _function():
            return fun(*args, **kwargs)

    return wrapped


# ----------------------------------------------------------------------- a value's logical axes


@with_logical_axes
def axes(x: T, words: Any) -> T:
    """Checks the logical axes of values, and shards the values by the rules.

    Args:
      x: an array, traced or not, or a pytree of arrays.
      words: a string such as "batch seq embed", with a name for each dimension and `_` for an
        anonymous one; or a pytree of strings, a prefix of `x`.

    Raises:
      ValueError: for another number of dimensions, a logical axis with two sizes or missing in the
        rules, or two logical axes on one mesh axis.
    """
    return declare_axes(x, words, "axes", "x")


def declare_axes(x: Any, words: Any, who: str, what: str) -> Any:
    """`axes` for a pytree. what: its name in messages."""
    leaves, tree = flatten(x)
    texts = broadcast_prefix(words, x, f"{who}: the axes of {what}", root=what)
    rows = zip(leaves, texts, leaf_paths(x), strict=True)
    return tree.unflatten(
        [
            leaf if text is None else _said(leaf, text, who, f"{what}{path}")
            for leaf, text, path in rows
        ]
    )


def _said(x: Any, text: Any, who: str, what: str) -> Any:
    words = parse(text, f"{who}: {what}")
    x = as_value(x)
    bound(x, words, who, what)
    x = record_axes(x, words, words, f"{who}: {what}")
    return placed(x, words, who, isinstance(text, Parameter))


def record_axes(x: Any, parts: Sequence[Part], to: Sequence[Part], who: str) -> Any:
    """A value whose dimensions change to `to`; records this in a program that is being checked.

    An axis merged from several is none of them, and is not followed.
    """
    call = scope().call
    if call is None:
        return x
    words = tuple([p if isinstance(p, str) else ANY for p in parts])
    others = tuple([p if isinstance(p, str) else NONE for p in to])
    return axes_op(x, words=words, to=others, call=call, who=who)


def bound(x: Any, words: Sequence[str], who: str, what: str) -> None:
    """Checks a value's logical axes, and records their sizes in the enclosing function."""
    t = type_of(x)
    text = " ".join(words)
    if t.ndim != len(words):
        raise ValueError(
            f"{who}: {what} is {text!r}, which names {pluralize(len(words), 'axis', 'axes')}; got "
            f"{t.str_short(True)}, which has {t.ndim}."
        )
    scope().bind(words, t.shape, who, f"{what}, {t.str_short(True)} as {text!r}")


def placed(x: Any, parts: Sequence[Part], who: str, kept: bool = False) -> Any:
    """The value with the sharding by the rules; unchanged without rules."""
    sharding = sharding_for(parts, who, kept)
    if sharding is None:
        return x
    explicit = explicit_part(sharding)
    if explicit is not None:
        x = reshard(x, explicit)
        if sharding.mesh.are_all_axes_explicit:
            return x
    return with_sharding_constraint(x, sharding)


def sharding_for(parts: Sequence[Part], who: str, kept: bool = False) -> NamedSharding | None:
    """The sharding of a value by the current rules. kept: as a parameter, not in use."""
    found = current_rules()
    if found is None:
        return None
    return sharding_of(found.spec(parts, who, kept, scope().mapped), found.mesh)


def explicit_part(sharding: NamedSharding) -> NamedSharding | None:
    """A sharding restricted to Explicit axes; None if its mesh has none."""
    spec = explicit_spec(sharding.mesh, sharding.spec, len(sharding.spec))
    return None if spec is None else sharding.with_spec(spec)


# -------------------------------------------------------------------- a function's logical axes


def checked(fun: Callable[P, T]) -> Callable[P, T]:
    """A function whose annotations declare the logical axes of its arguments and results.

        Stream = Annotated[Array, "batch seq embed"]

        @checked
        def mlp(x: Stream, weights: Annotated[dict, {"up": "embed mlp", ...}]) -> Stream: ...

    The metadata in `Annotated` is a string for an array, or a pytree of strings that is a prefix of
    the argument. Each call checks and shards all annotated values, as `axes` does. The axes are
    local to the call: a logical axis has one size in all its declarations and patterns.

    Raises:
      TypeError: if annotations cannot be resolved, or none declares logical axes.
    """
    check_function("checked", fun)
    name = name_of(fun)
    words = _annotated(fun, name)
    signature = inspect.signature(fun)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}: {error}.") from None
        with _function():
            for argument, text in words.items():
                if argument in given.arguments:
                    x = given.arguments[argument]
                    given.arguments[argument] = declare_axes(x, text, name, argument)
            result = fun(*given.args, **given.kwargs)
            if "return" not in words:
                return result
            return declare_axes(result, words["return"], name, "result")

    return wrapped


def _annotated(fun: Any, name: str) -> dict[str, Any]:
    """The logical axes in the annotations of arguments and of the result."""
    try:
        hints = typing.get_type_hints(fun, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"checked: an annotation of {name} cannot be read: {error}. Define what annotations "
            "name at the top of the module."
        ) from None
    found = {
        key: hint.__metadata__[0]
        for key, hint in hints.items()
        if typing.get_origin(hint) is typing.Annotated
    }
    if not found:
        raise TypeError(
            f"checked: no annotation of {name} has logical axes. Write them as in "
            "`x: Annotated[Array, 'batch embed']`."
        )
    return found


# ---------------------------------------------------------------------------------------- vmap


def vmap(
    fun: Callable[..., Any], over: str, takes: Sequence[Any], gives: Any
) -> Callable[..., Any]:
    """Maps a function over this logical axis, wherever it is in arguments and results.

        scores = vmap(score, over="batch", takes=("embed", "batch embed"), gives="batch")

    Inside, values do not have this axis; it is sharded over the mesh axes of its rule, even if the
    function itself shards values by their logical axes, and it is an axis name for collectives.

    Args:
      takes: the logical axes of each positional argument, as for `axes`, including the mapped
        axis for mapped arguments.
      gives: the logical axes of the result.

    Raises:
      ValueError: if no argument has the axis, and as for `axes`.
    """
    check_function("named.vmap", fun)
    who = f"named.vmap of {name_of(fun)}"
    (over,) = parse(over, who)
    takes = tuple(takes)
    if not any(over in parse(text, who) for text in flatten(takes)[0]):
        raise ValueError(
            f"{who}: no argument has the axis {over!r}; got {join(flatten(takes)[0])}."
        )

    @functools.wraps(fun)
    def inner(*args: Any) -> Any:
        with _function(over):
            return fun(*args)

    @functools.wraps(fun)
    def wrapped(*args: Any) -> Any:
        if len(args) != len(takes):
            raise TypeError(
                f"{who} has axes for {pluralize(len(takes), 'argument')}; got {len(args)}."
            )
        found = current_rules()
        split = dict(found.used).get(over) if found else None
        values = tuple(
            [
                declare_axes(x, w, who, f"args[{i}]")
                for i, (x, w) in enumerate(zip(args, takes, strict=True))
            ]
        )
        dims = tuple([_places(w, over, who) for w in takes])
        mapped = plain_vmap(inner, dims, _places(gives, over, who), over, None, split or None)
        return declare_axes(mapped(*values), gives, who, "result")

    return wrapped


def _places(words: Any, over: str, who: str) -> Any:
    """The position of a logical axis in each string of a pytree; None if absent."""
    leaves, tree = flatten(words)
    rows = [parse(text, who) for text in leaves]
    return tree.unflatten([row.index(over) if over in row else None for row in rows])

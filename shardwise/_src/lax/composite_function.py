"""`composite`: functions that a program stores as named operations."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.control.bodies import Body, body_cache_of, check_function, leaf, staged
from shardwise._src.control.composite import composite_op
from shardwise._src.core.infer import type_of
from shardwise._src.lowering.text import attribute_text, quoted
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.runtime.pytree import flatten
from shardwise._src.values.value import Value

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*([.][a-zA-Z0-9_$]+)+")  # names that StableHLO accepts
F = TypeVar("F", bound=Callable[..., Any])


def composite(decomposition: F, name: str, version: int = 0) -> F:
    """A function as one named operation, a `stablehlo.composite`.

        @partial(lax.composite, name="my.softmax")
        def softmax(x, /, *, axis):
            return nn.softmax(x, axis)

    A compiler that knows the operation by its name, version and attributes may use its own
    implementation; XLA on CPU and GPU compiles the decomposition. If the dimensions of operands and
    results cannot be sharded evenly over the devices, the decomposition is inlined immediately.

    `vmap` maps the decomposition and drops the name: an attribute such as `axis` would mean
    something else for operands with one more dimension. (JAX raises an error.)

    Args:
      decomposition: takes pytrees of arrays by position; its keyword arguments are attributes of
        the operation: None, which is omitted, booleans, numbers, strings, NumPy arrays, and
        tuples, lists and dictionaries of these. It may close over arrays, but not over tracers.
      name: such as "my.softmax".
      version: a number that changes when the semantics change.

    Returns:
      The function with these arguments.

    Raises:
      UnexpectedTracerError: for a traced value among the attributes or closed over.
      TypeError: for an attribute of another type.
      ValueError: for a name without a dot; or when differentiated: define a rule with
        `custom_jvp`.
    """
    check_function("composite", "the decomposition", decomposition)
    if not isinstance(name, str) or not isinstance(version, int):
        raise TypeError(
            "composite: name must be a string and version an integer; got "
            f"{name!r} and {version!r}."
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            "composite: name must consist of ASCII letters, digits and _, in parts separated by "
            f"dots, such as 'my.softmax'; got {name!r}."
        )

    @functools.wraps(decomposition)
    @hides_frames
    def _called(*args: Any, **kwargs: Any) -> Any:
        return _call(decomposition, name, version, args, kwargs)

    return _called  # pyright: ignore[reportReturnType] (has the decomposition's type)


def _call(
    fun: Callable[..., Any], name: str, version: int, args: tuple, kwargs: dict[str, Any]
) -> Any:
    attributes = _attributes(name, kwargs)
    leaves, tree = flatten(args)
    who = f"composite {name!r}"
    leaves = [leaf(x, who, "the arguments", tree, i) for i, x in enumerate(leaves)]
    body = _staged(fun, who, tree, leaves, kwargs)
    if body.captures:
        raise UnexpectedTracerError(
            f"{who}: {name_of(fun)} closes over a traced value. Pass it as an argument."
        )
    outs = composite_op(
        *body.outside,
        *leaves,
        program=body.program,
        name=name,
        version=version,
        attributes=attributes,
    )
    return body.tree.unflatten(outs)


def _staged(
    fun: Callable[..., Any], who: str, tree: Any, leaves: list[Any], kwargs: dict[str, Any]
) -> Body:
    """The decomposition as a program; cached if the attributes are hashable."""
    types = [type_of(x) for x in leaves]

    def flat(*values: Any) -> Any:
        return fun(*tree.unflatten(values), **kwargs)

    given = tuple(kwargs.items())
    key = "composite", current().key, tree, given, exact(given), *types
    try:
        hash(key)
        cache, key = body_cache_of((fun,), key)
    except TypeError:  # an array or a list among the attributes
        return staged(flat, types, who, name_of(fun))
    if key not in cache.bodies:
        body = staged(flat, types, who, name_of(fun))
        if body.captures:
            return body
        cache.keep(key, body)
    return cache.bodies[key]


def _attributes(name: str, kwargs: dict[str, Any]) -> str:
    """The attributes as a string, `{axis = 0 : i64}`."""
    rows = []
    for key, value in kwargs.items():
        if value is None:
            continue
        for x in flatten(value)[0]:
            if isinstance(x, Value) and not hasattr(x, "sharding"):
                raise UnexpectedTracerError(
                    f"composite {name!r}: the keyword argument {key}, which becomes an attribute, "
                    "is a traced value. Pass it by position."
                )
        try:
            rows.append(f"{key if key.isascii() else quoted(key)} = {attribute_text(value)}")
        except TypeError as error:
            raise TypeError(
                f"composite {name!r}: the keyword argument {key}, which becomes an attribute, "
                f"{error} Pass arrays by position, or as NumPy arrays."
            ) from None
    return f"{{{', '.join(rows)}}}"

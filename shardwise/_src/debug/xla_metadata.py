"""Attributes of instructions, `frontend_attributes`, that XLA and its tools read.

    with set_xla_metadata(group="a"):
        y = x @ w                        # dot(…), frontend_attributes={group="a"}
    y = set_xla_metadata(y, group="b")   # of the instruction that computes y

A call of a jitted function inside such a block uses a separate program, with the attributes.
Attributes are parts of the sites of equations (`messages.source`), like names.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.control.bodies import check_function, leaf, staged
from shardwise._src.control.call import compute_on_op
from shardwise._src.control.call import xla_metadata_call as call_op
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program_tools import walk
from shardwise._src.messages import source
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.source import replay
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops.memory_kinds import Space, to_memory
from shardwise._src.ops.metadata import xla_metadata_value
from shardwise._src.refs.refs import values_of, write_back
from shardwise._src.runtime.pytree import flatten


class XlaMetadata:
    """Attributes for all instructions of a `with` block, or of calls of a function."""

    def __init__(self, attributes: dict[str, str | None]):
        self._attributes = attributes
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(_in_scope(self._attributes))
        self._entered[-1].__enter__()

    def __exit__(self, *_: object) -> None:
        self._entered.pop().__exit__(None, None, None)

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        check_function("set_xla_metadata", "the decorated object", fun)
        return _Decorated(fun, self._attributes)


class _Decorated:
    """A function whose calls, and those of its methods, run with attributes in scope."""

    def __init__(self, fun: Callable[..., Any], attributes: dict[str, str | None]):
        functools.update_wrapper(self, fun)
        self._fun, self._attributes = fun, attributes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _in_scope(self._attributes):
            return self._fun(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._fun, name)
        return _Decorated(found, self._attributes) if callable(found) else found


@contextmanager
def _in_scope(attributes: dict[str, str | None]) -> Generator[None]:
    if not attributes:
        yield
        return
    source.use_names()
    held = source.attributes_of(source.marks.value) | attributes
    outer = replay.scope
    with source.marks(source.marked({k: v for k, v in held.items() if v is not None})):
        replay.scope = source.joined(outer, source.marked(attributes))
        try:
            yield
        finally:
            replay.scope = outer


def _texts(metadata: dict[str, Any]) -> dict[str, str | None]:
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in metadata.items()}
    return {key: None if metadata[key] is None else text for key, text in texts.items()}


def _pairs(what: str, metadata: Any) -> tuple[tuple[str, str], ...]:
    """The attributes of a call."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"{what} must be a dict of attributes; got {metadata!r}.")
    for key, value in metadata.items():
        if not isinstance(value, str | bool | int | float):
            raise TypeError(
                f"{what}: {key} must be a string, a bool or a number; got {value!r} of type "
                f"{type(value).__name__}."
            )
    return tuple(sorted(_texts(dict(metadata)).items()))  # pyright: ignore[reportReturnType]


def set_xla_metadata(x: Any = None, **metadata: Any) -> Any:
    """Attributes for XLA instructions.

    Args:
      x: a pytree of arrays: the instruction that computes each gets the attributes; an argument of
        the program has no instruction. None: the attributes are for all instructions in a `with`
        block, or of calls of a decorated function, including its methods, such as `lower`.
      metadata: name → value, converted to a string (`true` and `false` for booleans). A value of
        None removes the attribute of an outer block.

    Returns:
      The pytree; without one a context manager, which is also a decorator.
    """
    texts = _texts(metadata)
    if x is None:
        return XlaMetadata(texts)
    pairs = tuple(sorted((k, v) for k, v in texts.items() if v is not None))
    leaves, tree = flatten(x)
    return tree.unflatten(
        [
            xla_metadata_value(leaf(v, "set_xla_metadata", "x", tree, i), xla_metadata_kvs=pairs)
            for i, v in enumerate(leaves)
        ]
    )


def _called(
    op: Op,
    who: str,
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    **params: Any,
) -> Any:
    """The result of a function, called by an op with attributes. who: the caller, for messages."""
    leaves, tree = flatten((args, kwargs))
    values = [leaf(x, who, "the arguments", tree, i) for i, x in enumerate(leaves)]

    def flat(*xs: Any) -> Any:
        given, named = tree.unflatten(xs)
        return fun(*given, **named)

    body = staged(flat, [type_of(x) for x in values], who, name_of(fun), with_refs=True)
    if op is compute_on_op:
        _check_nesting(body.program, dict(params["attributes"]))
    values = [*body.outside, *values, *values_of(body.refs)]
    outs = op(*values, program=body.program, **params)
    count = len(outs) - len(body.refs)
    write_back(body.refs, outs[count:])
    return body.tree.unflatten(outs[:count])


def xla_metadata_call(f: Callable[..., Any] | None = None, /, **meta: Any) -> Any:
    """A function whose calls are instructions with attributes, in XLA programs.

    XLA transfers the attributes of a call to the generated code: if it inlines the function, to the
    instruction of the result. Derivatives and maps of the function have them, too.

    Args:
      f: a function of pytrees of arrays; None returns a decorator.
      meta: the attributes: strings, bools and numbers by name.
    """
    return xla_metadata_call2(f, meta)


def xla_metadata_call2(f: Any = None, metadata: Any = None, *, ad_metadata: Any = "same") -> Any:
    """`xla_metadata_call` with attributes as a dict, and those of the function's derivatives.

    Args:
      f: a function of pytrees of arrays; None, or the attributes in its place, returns a decorator.
      metadata: the attributes: strings, bools and numbers by name.
      ad_metadata: the attributes of its linear part, and of the backward pass: "same", "drop" for
        none, or a dict. `jvp` computes results and tangents in one call, with `metadata`.

    Raises:
      TypeError: for other attributes.
    """
    if isinstance(f, Mapping) and metadata is None:
        return xla_metadata_call2(None, f, ad_metadata=ad_metadata)
    return _with_attributes(f, metadata, ad_metadata)


def _with_attributes(f: Any, metadata: Any, ad_metadata: Any) -> Any:
    pairs = _pairs("xla_metadata_call: metadata", metadata or {})
    own = None
    if isinstance(ad_metadata, str) and ad_metadata not in ("same", "drop"):
        raise TypeError(
            f"xla_metadata_call: ad_metadata must be 'same', 'drop' or a dict; got {ad_metadata!r}."
        )
    if ad_metadata != "same":
        given = {} if ad_metadata == "drop" else ad_metadata
        own = _pairs("xla_metadata_call: ad_metadata", given)
    if f is None:
        return functools.partial(_with_attributes, metadata=metadata, ad_metadata=ad_metadata)
    check_function("xla_metadata_call", "f", f)

    @functools.wraps(f)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        params = {"attributes": pairs, "ad_attributes": own}
        return _called(call_op, "xla_metadata_call", f, args, kwargs, **params)

    return wrapped


def fuse_limit() -> AbstractContextManager[None]:
    """A block across whose border XLA fuses no instructions: they have the attribute FUSE_LIMIT."""
    return _in_scope({"FUSE_LIMIT": "true"})


def must_fuse_call(identifier: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: XLA fuses all instructions in a call of the function.

    identifier: a number of the group, as a string; the value of the attribute MUST_FUSE.
    """
    return xla_metadata_call(MUST_FUSE=identifier)


def scheduling_group(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: computations in calls of the function are scheduled together, as group `name`.

    The attribute `scheduling_group` tells XLA so; schedulers that do not support it ignore it.
    """
    return xla_metadata_call(scheduling_group=name)


_COMPUTE_KEYS = ("_xla_compute_type", "_xla_stream_annotation")
_KINDS = {"device_host": "host", "device": "dense", "tpu_sparsecore": "sparseoffload"}


def compute_on(
    f: Any = None,
    *,
    compute_type: Any = None,
    out_memory_spaces: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Selects the unit of a device that runs a computation.

        @compute_on(compute_type="device_host", out_memory_spaces=memory.Space.Device)
        def f(x): ...

        with compute_on("device_host"):
            y = x + 1

    This is passed to XLA by attributes of the instructions. On CPU they have no effect.

    Args:
      f: a function of pytrees of arrays; None returns a decorator. A string is a `compute_type`:
        the result is then a context manager, and instructions inside its block run on that unit.
      compute_type: "device_host", the host of the device; "device"; "tpu_sparsecore"; or
        "gpu_stream:N".
      out_memory_spaces: a `memory.Space` for each result, or for subtrees of them.
      compiler_options: for this part, as XLA takes them.

    Raises:
      TypeError: if `compute_type` is not a string, or `out_memory_spaces` is missing.
      ValueError: for another `compute_type`, and for a function that is called on one unit inside
        a function that is called on another.
    """
    if isinstance(f, str) and compute_type is None:
        f, compute_type = None, f
    elif f is None and out_memory_spaces is not None:
        return functools.partial(
            compute_on,
            compute_type=compute_type,
            out_memory_spaces=out_memory_spaces,
            compiler_options=compiler_options,
        )
    attributes = _compute_attributes(compute_type)
    if f is None or isinstance(f, str):
        return _computing(attributes)
    return _computed(f, compute_type, attributes, out_memory_spaces, compiler_options)


def compute_on2(
    f: Any = None,
    *,
    compute_type: str,
    out_memory_spaces: Any,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """`compute_on` for a function, under its name in jax 0.10."""
    return compute_on(
        f,
        compute_type=compute_type,
        out_memory_spaces=out_memory_spaces,
        compiler_options=compiler_options,
    )


def _compute_attributes(compute_type: Any) -> dict[str, str]:
    if not isinstance(compute_type, str):
        raise TypeError(f"compute_on: compute_type must be a string; got {compute_type!r}.")
    if compute_type.startswith("gpu_stream:"):
        return {"_xla_stream_annotation": compute_type.partition(":")[2], "inlineable": "false"}
    if compute_type not in _KINDS:
        raise ValueError(
            "compute_on: compute_type must be 'device_host', 'device', 'tpu_sparsecore' or "
            f"'gpu_stream:N' with a number; got {compute_type!r}."
        )
    return {"_xla_compute_type": _KINDS[compute_type]}


def _computing(attributes: dict[str, str]) -> AbstractContextManager[None]:
    """Instructions inside the block have these attributes, and no other compute type."""
    return _in_scope({**dict.fromkeys((*_COMPUTE_KEYS, "inlineable")), **attributes})


def _computed(
    f: Callable[..., Any],
    compute_type: str,
    attributes: dict[str, str],
    spaces: Any,
    options: dict[str, Any] | None,
) -> Callable[..., Any]:
    check_function("compute_on", "f", f)
    if spaces is None:
        raise TypeError(
            "compute_on: out_memory_spaces is missing: a `shardwise.memory.Space` for each result."
        )
    own = dict(attributes)
    if options is not None:
        own["backend_config"] = json.dumps(options)
    elif compute_type == "device":
        own["inlineable"] = "false"

    def inside(*args: Any, **kwargs: Any) -> Any:
        with _computing(attributes):
            return f(*args, **kwargs)

    functools.update_wrapper(inside, f)

    @functools.wraps(f)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        pairs = tuple(sorted(own.items()))
        result = _called(compute_on_op, "compute_on", inside, args, kwargs, attributes=pairs)
        outs, tree = flatten(result)
        where = broadcast_prefix(spaces, result, "compute_on out_memory_spaces", root="result")
        for space in where:
            if not isinstance(space, Space):
                raise TypeError(
                    "compute_on: out_memory_spaces must have a `shardwise.memory.Space` for each "
                    f"result, or for pytrees of them; got {space!r}."
                )
        return tree.unflatten([to_memory(x, space=s) for x, s in zip(outs, where, strict=True)])

    return wrapped


def _check_nesting(program: Any, attributes: dict[str, str]) -> None:
    for eqn in walk(program):
        if eqn.op is compute_on_op:
            inner = dict(eqn.params["attributes"])
            if any(inner.get(key) != attributes.get(key) for key in _COMPUTE_KEYS):
                raise ValueError(
                    "compute_on: a function computed in one place is called inside a function "
                    "computed in another. Call them one after the other."
                )

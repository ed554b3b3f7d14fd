"""Foreign calls in a program, described as data.

    mlir.register_lowering(scale_p, ffi_lowering("scale"))

As a primitive's rule it writes text, and needs no MLIR bindings. A rule that builds with the
bindings (extend/mlir_lowering.py) may call it with the rule's context and operands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwise._src.lowering.text import attribute_text, quoted
from shardwise._src.messages.formatting import pluralize
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.layout import Layout

LayoutOption = Sequence[int] | Layout | None
Order = tuple[int, ...] | None


class LoweringContext(NamedTuple):
    """The context of a lowering: types, and the emitter that writes text (lowering/emitter.py).

    Contexts of rules that build have the same fields, and more.
    """

    avals_in: Sequence[ArrayType]
    avals_out: Sequence[ArrayType]
    emitter: Any


class ForeignResults(NamedTuple):
    """The results of a foreign function: names in the text, or MLIR values."""

    results: list[Any]

    @property
    def result(self) -> Any:
        """The only result."""
        (found,) = self.results
        return found


@dataclass(frozen=True)
class ForeignCall:
    """A call of a foreign function, for primitives of any types.

    Its fields are the arguments of `build_ffi_lowering_function`.
    """

    target: str
    operand_layouts: Sequence[LayoutOption] | None
    result_layouts: Sequence[LayoutOption] | None
    config: Mapping[str, Any] | str | None
    has_side_effect: bool = False
    operand_output_aliases: Mapping[int, int] | None = None
    api_version: int = 4
    extra_attributes: Mapping[str, Any] | None = None

    def __call__(self, ctx: Any, *operands: Any, **params: Any) -> ForeignResults:
        where = f"ffi_lowering of {self.target!r}"
        sides = (ctx.avals_in, self.operand_layouts), (ctx.avals_out, self.result_layouts)
        orders = [orders_of(where, "value", *side, fastest_first=True) for side in sides]
        extra = dict(attributes_of(where, self.extra_attributes or {}))
        batch = _NUM_BATCH_DIMS.search(extra.get("mhlo.frontend_attributes", ""))
        return ForeignResults(
            ctx.emitter.custom_call(
                self.target,
                operands,
                ctx.avals_in,
                ctx.avals_out,
                orders=orders,
                config=self._config(where, params),
                version=self.api_version,
                aliases=dict(self.operand_output_aliases or {}),
                effect=self.has_side_effect,
                batch=int(batch[1]) if batch and ctx.emitter.devices > 1 else 0,
                extra=extra,
            )
        )

    def _config(self, where: str, params: dict[str, Any]) -> str:
        config = self.config
        if self.api_version >= 4:
            if isinstance(config, str):
                raise ValueError(
                    f"{where}: backend_config must be a dictionary with api_version 4 or higher; "
                    f"got {config!r}."
                )
            return config_text(where, attributes_of(where, {**(config or {}), **params}))
        if params:
            raise ValueError(
                f"{where}: attributes need api_version=4; got api_version={self.api_version} with "
                f"{', '.join(params)}."
            )
        if config is not None and not isinstance(config, str):
            raise ValueError(f"{where}: backend_config must be a string with api_version below 4.")
        return quoted(config or "")


class ForeignRule(NamedTuple):
    """A lowering rule that only calls a foreign function."""

    call: ForeignCall

    def __call__(self, ctx: Any, *operands: Any, **params: Any) -> list[Any]:
        return self.call(ctx, *operands, **params).results


_NUM_BATCH_DIMS = re.compile(r'"?num_batch_dims"? = "(\d+)"')


def build_ffi_lowering_function(
    call_target_name: str,
    *,
    operand_layouts: Sequence[LayoutOption] | None = None,
    result_layouts: Sequence[LayoutOption] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> ForeignCall:
    """A function that adds a foreign call to a program, for lowering rules of primitives.

    Args:
      call_target_name: the name under which it was registered.
      operand_layouts, result_layouts: for each operand and result None (the last dimension varies
        fastest in memory), a `Layout`, or its dimensions from the one that varies fastest.
      backend_config: attributes by name, in addition to the primitive's parameters; a string if
        `api_version` is below 4.
      skip_ffi_layout_processing: has no effect if layouts are None, and must be False otherwise.
      lowering_args: `has_side_effect`, `operand_output_aliases` ({operand: result}), `api_version`
        and `extra_attributes` (of the call in StableHLO).

    Returns:
      `f(ctx, *operands, **params)`, with the arguments of a lowering rule; `.results` of its return
      value are the results.
    """
    if skip_ffi_layout_processing and (operand_layouts or result_layouts):
        raise NotImplementedError(
            f"ffi_lowering of {call_target_name!r}: skip_ffi_layout_processing is for layouts as "
            "MLIR attributes, which are not supported. Pass sequences of dimensions, or `Layout`s."
        )
    known = ("has_side_effect", "operand_output_aliases", "api_version", "extra_attributes")
    for name in lowering_args.keys() - {*known}:
        raise TypeError(
            f"ffi_lowering of {call_target_name!r}: unknown argument {name!r}; in addition to "
            f"layouts and backend_config it accepts {', '.join(known)}."
        )
    return ForeignCall(
        call_target_name, operand_layouts, result_layouts, backend_config, **lowering_args
    )


def ffi_lowering(
    call_target_name: str,
    *,
    operand_layouts: Sequence[LayoutOption] | None = None,
    result_layouts: Sequence[LayoutOption] | None = None,
    backend_config: Mapping[str, Any] | str | None = None,
    skip_ffi_layout_processing: bool = False,
    **lowering_args: Any,
) -> ForeignRule:
    """A lowering rule for `shardwise.interpreters.mlir.register_lowering` that calls a foreign
    function.

    The primitive's parameters are its attributes. Args: as for `build_ffi_lowering_function`.
    """
    return ForeignRule(
        build_ffi_lowering_function(
            call_target_name,
            operand_layouts=operand_layouts,
            result_layouts=result_layouts,
            backend_config=backend_config,
            skip_ffi_layout_processing=skip_ffi_layout_processing,
            **lowering_args,
        )
    )


# -- attributes and layouts --


def attributes_of(where: str, values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Attributes as text, which is equal if and only if they are bitwise equal."""
    found = []
    for name, value in sorted(values.items()):
        try:
            built = type(value).__module__.startswith("jaxlib.mlir")  # with MLIR's bindings
            found.append((name, str(value) if built else attribute_text(value)))
        except TypeError as error:
            raise TypeError(
                f"{where}: the attribute {name!r} {error} Pass arrays of a program as operands."
            ) from None
    return tuple(found)


def config_text(where: str, attributes: Sequence[tuple[str, str]]) -> str:
    return f"{{{', '.join(f'{quoted(name)} = {text}' for name, text in attributes)}}}"


def _order(where: str, t: ArrayType, dims: Any) -> Order:
    """The validated dimensions, from slowest to fastest varying; None if they are in order."""
    if isinstance(dims, Layout):
        if dims.tiling is not None:
            raise ValueError(f"{where}: the layout of an FFI call has no tiling; got {dims}.")
        dims = dims.major_to_minor
    found = [*range(t.ndim)] if dims is None else [int(d) for d in dims]
    if sorted(found) != [*range(t.ndim)]:
        raise ValueError(
            f"{where}: the layout {tuple(found)} is for {t.str_short(True)}; it must name each of "
            f"its {t.ndim} dimensions once."
        )
    return None if found == sorted(found) else tuple(found)


def orders_of(
    title: str, what: str, types: Sequence[ArrayType], layouts: Any, fastest_first: bool = False
) -> tuple[Order, ...]:
    """The validated layouts of operands or results.

    fastest_first: whether sequences of dimensions begin with the one that varies fastest.
    """
    if layouts is None:
        return (None,) * len(types)
    if len(layouts) != len(types):
        raise ValueError(
            f"{title}: got {pluralize(len(layouts), 'layout')} for {pluralize(len(types), what)}."
        )
    found = []
    for i, (t, x) in enumerate(zip(types, layouts, strict=True)):
        if fastest_first:
            x = x if x is None or isinstance(x, Layout) else [*x][::-1]
        found.append(_order(title if fastest_first else f"{title}: {what} {i}", t, x))
    return tuple(found)

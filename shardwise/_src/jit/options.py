"""The options of `jit`: validation, and their application to the arguments of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypedDict

from shardwise._src.arguments.float0_partition import places
from shardwise._src.arguments.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.arguments.signatures import both
from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.base.lazy import public
from shardwise._src.core.program import Program
from shardwise._src.messages.argument_names import Parameters, name_of
from shardwise._src.messages.formatting import join
from shardwise._src.runtime.backend import devices
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers.targets import as_boundary, is_sharding_leaf
from shardwise._src.transforms.batch import Batch
from shardwise._src.transforms.jvp import JVP


class JitOptions(TypedDict, total=False):
    """The keyword arguments of `jit`, for type checkers."""

    in_shardings: Any
    out_shardings: Any
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    device: Any
    backend: str | None
    inline: bool | Inline
    compiler_options: dict[str, Any] | None


@public("shardwise")
class Inline(Enum):
    """When the equations of a jitted function replace its calls in other functions.

    JAX_EARLY: while these are staged.
    JAX_LATE: when their programs are lowered.
    XLA_EARLY, XLA_LATE, AUTO: XLA chooses, since its releases do not let programs say when.
    """

    JAX_EARLY = "jax_early"
    JAX_LATE = "jax_late"
    XLA_EARLY = "xla_early"
    XLA_LATE = "xla_late"
    AUTO = "auto"


class FromProgram:
    """Represents `out_shardings` that follow from the program.

    of(program) returns the sharding of each result.
    """

    __slots__ = ("of",)

    def __init__(self, of: Callable[[Program], list[Any]]):
        self.of = of


class Options(NamedTuple):
    """The arguments of `jit`, in canonical form.

    Pytrees of calls are those of the non-static arguments, as (positional, named).
    """

    in_shardings: Any = None
    out_shardings: Any = None
    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    keep_unused: bool = False
    device: Any = None
    inline: Inline = Inline.AUTO
    compiler_options: tuple[tuple[str, Any], ...] = ()

    @property
    def has_static(self) -> bool:
        return bool(self.static_argnums or self.static_argnames)

    def key(self) -> tuple[Any, ...] | None:
        """Represents the options in keys; None for the default. It may be unhashable."""
        if self[2:] == NO_OPTIONS[2:] and self.in_shardings is self.out_shardings is None:
            return None
        shardings = [None if s is None else _flat(s) for s in self[:2]]
        return *shardings, *self[2:], exact(self.compiler_options)

    def shardings_in(self, what: str, tree: Any, parameters: Parameters) -> list[Any] | None:
        """The requested sharding or format of each argument, if there is one.

        what: the transform and the function, for messages; parameters: of the function.
        """
        if self.in_shardings is None:
            return None
        args, named = places(tree)
        if named:
            raise ValueError(
                f"{what}: in_shardings apply to positional arguments only; got {join(named)} by "
                "keyword. Pass it by position, or leave in_shardings out and place it with "
                "`device_put`."
            )
        asked, what = self.in_shardings, f"{what}: in_shardings"
        wanted = tuple(asked) if isinstance(asked, list) else asked
        own = parameters.without(self.static_argnums)
        found = broadcast_to_arguments(wanted, args, what, own, is_sharding_leaf)
        return [as_boundary(s, what) for s in found]

    def shardings_out(
        self, what: str, tree: Any, program: Program | None = None
    ) -> list[Any] | None:
        """The same for each result. program: determines them, unless traced."""
        wanted = self.device if self.out_shardings is None else self.out_shardings
        if isinstance(wanted, FromProgram):
            return None if program is None else wanted.of(program)
        if wanted is None:
            return None
        outs = places(tree)
        what = f"{what}: out_shardings"
        found = broadcast_prefix(wanted, outs, what, is_sharding_leaf, "result")
        return [as_boundary(s, what) for s in found]

    def donated(self, tree: Any) -> tuple[int, ...]:
        """The positions of the leaves whose memory the program may reuse."""
        if not self.donate_argnums and not self.donate_argnames:
            return ()
        args, kwargs = places(tree)
        static = self.static_argnums
        shifted = [n - sum(s < n for s in static) for n in self.donate_argnums if n not in static]
        picked = [args[i] for i in shifted if i < len(args)]
        picked += [kwargs[k] for k in self.donate_argnames if k in kwargs]
        return tuple(sorted(flatten(picked)[0]))


NO_OPTIONS = Options()


def options_for(
    fun: Callable,
    *,
    in_shardings: Any,
    out_shardings: Any,
    static_argnums: Any,
    static_argnames: Any,
    donate_argnums: Any,
    donate_argnames: Any,
    keep_unused: bool,
    device: Any,
    backend: str | None,
    inline: bool | Inline,
    compiler_options: dict[str, Any] | None,
) -> Options:
    """The options of a function. Raises if they do not fit it, or each other."""
    static_argnums, static_argnames = both(fun, static_argnums, static_argnames, "static")
    donate_argnums, donate_argnames = both(fun, donate_argnums, donate_argnames, "donate")
    numbers = [n for n in static_argnums if n in donate_argnums]
    names = [n for n in static_argnames if n in donate_argnames]
    what = f"jit of {name_of(fun)}"
    if numbers or names:
        shown = join(sorted(names) or sorted(numbers))
        raise ValueError(
            f"{what}: {shown} cannot be both static and donated; a static argument has no memory "
            "on a device."
        )
    if device is not None or backend is not None:
        _check_place(what, device, backend, in_shardings is not None or out_shardings is not None)
    return Options(
        _own(in_shardings),
        _own(out_shardings),
        static_argnums,
        static_argnames,
        donate_argnums,
        donate_argnames,
        bool(keep_unused),
        device if backend is None else devices(backend)[0],
        _inlining(what, inline),
        compiler_overrides(name_of(fun), compiler_options),
    )


def _inlining(what: str, inline: Any) -> Inline:
    if isinstance(inline, Inline):
        return inline
    if not isinstance(inline, bool):
        raise ValueError(f"{what}: inline must be a bool or a `shardwise.Inline`; got {inline!r}.")
    return Inline.JAX_EARLY if inline else Inline.AUTO


def _own(shardings: Any) -> Any:
    """A copy of the pytree in new containers, which the user cannot mutate later."""
    if shardings is None:
        return None
    leaves, tree = flatten(shardings)
    return tree.unflatten(leaves)


def _flat(shardings: Any) -> tuple[Any, Any]:
    leaves, tree = flatten(shardings)
    return tuple(leaves), tree


def _check_place(what: str, device: Any, backend: str | None, is_sharded: bool) -> None:
    """Raises if the device is specified twice."""
    if device is not None and backend is not None:
        raise ValueError(
            f"{what}: got device={device} and backend={backend!r}; pass only one of them."
        )
    if is_sharded:
        raise ValueError(
            f"{what}: got {'device' if backend is None else 'backend'} together with in_shardings "
            "or out_shardings, which also determine where to run. Leave it out."
        )


def compiler_overrides(name: str, options: Any) -> tuple[tuple[str, Any], ...]:
    """XLA options in a fixed order; XLA validates their values when it compiles.

    name: of the function, for messages.
    """
    what = f"jit of {name}: compiler_options"
    if not isinstance(options, dict | None):
        raise TypeError(f"{what} must be a dict of XLA options by name; got {options!r}.")
    for option, value in (options or {}).items():
        if not isinstance(option, str):
            raise TypeError(f"{what} has the name {option!r}; option names must be strings.")
        if not isinstance(value, bool | int | float | str):
            raise TypeError(
                f"{what}[{option!r}] must be a bool, an int, a float or a string; got {value!r} "
                f"of type {type(value).__name__}."
            )
    return tuple(sorted((options or {}).items()))


def check_outermost(what: str) -> None:
    """Raises if the program of a call would be a part of another one, with options of its own."""
    outer = current().interpreter
    while isinstance(outer, Batch | JVP):
        outer = outer.parent
    if not outer.eager:
        raise ValueError(
            f"{what} has compiler_options, and is called in {outer.describe()}. They apply to "
            "entire programs: pass them to the outermost `shardwise.jit`."
        )

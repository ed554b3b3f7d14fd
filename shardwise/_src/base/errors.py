"""Error classes; `shardwise.errors` is their public home. Names and bases follow JAX's.

Each message says what came, what was expected, why, and what to do. A class that derives from
`Documented` has a page with examples, and its traceback ends with the command that shows it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Documented(Exception):
    """Base of errors with a page in docs/errors, which the command line shows."""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("shardwise._src."):
            cls.__module__ = "shardwise.errors"

    def __init__(self, *args: object):
        super().__init__(*args)
        own = next(c for c in type(self).__mro__ if c.__module__.startswith("shardwise."))
        self.add_note(f"Examples and fixes: `shardwise explain-error {own.__name__}`")


class JAXTypeError(TypeError):
    """What errors of traced values are, as far as they are of type."""

    __module__ = "shardwise.errors"


class JAXIndexError(IndexError):
    """What errors of traced values are, as far as they are of indices."""

    __module__ = "shardwise.errors"


class JaxprTypeError(TypeError):
    """A program that is not well formed, found by a check."""

    __module__ = "shardwise.errors"


class ShardingTypeError(Documented, TypeError):
    """Operands whose shardings do not go together, over explicit mesh axes."""

    def __init__(self, *args: object):
        super().__init__(*args)
        self.add_note(
            "Axes of `shardwise.make_mesh` are Explicit by default, so that shardings are a part "
            "of types. With axis_types=(shardwise.sharding.AxisType.Auto,) * n the compiler "
            "chooses them."
        )


class TypePromotionError(Documented, TypeError, ValueError):
    """Values of these dtypes do not meet; one of them has to be cast."""


class ShapeError(Documented, TypeError, ValueError):
    """A shape, or sizes and axes, that do not go with an array or are none."""


class BroadcastError(Documented, TypeError, ValueError):
    """Shapes that do not broadcast together."""


class ConcretizationTypeError(Documented, JAXTypeError):
    """A traced value was needed as a concrete one."""


class TracerBoolConversionError(ConcretizationTypeError):
    """`bool(x)`, `if x:` on a traced value."""


class TracerArrayConversionError(Documented, JAXTypeError):
    """`numpy.asarray(x)` on a traced value."""


class TracerIntegerConversionError(Documented, JAXTypeError):
    """A traced value used as a Python integer, e.g. as a list index or a shape."""


class NonConcreteBooleanIndexError(Documented, JAXIndexError):
    """A traced boolean mask used as an index: the result's shape would depend on its values."""


class UnexpectedTracerError(Documented, JAXTypeError):
    """A traced value was used where the function that it belongs to does not reach."""


class LeakedTracerError(UnexpectedTracerError):
    """A traced value outlives its function, found by `checking_leaks`."""


class KeyReuseError(Documented, JAXTypeError):
    """A key of random numbers is used twice, while the flag `debug_key_reuse` is on."""


class ProcessFailureError(Documented, RuntimeError):
    """Another process of the program is lost, or does not do what this one does.

    processes: the indices of the processes that it is about. failed_devices: what `live_devices`
    had given of theirs.
    """

    def __init__(
        self, text: str, processes: Iterable[int] = (), failed_devices: Iterable[object] = ()
    ):
        super().__init__(text)
        self.processes = tuple(processes)
        self.failed_devices = frozenset(failed_devices)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.processes, tuple(self.failed_devices))


class InconclusiveDimensionOperation(Documented):
    """A symbolic dimension is used where the answer depends on its size."""


class CheckpointError(Documented, ValueError):
    """Something is no checkpoint, is damaged, does not fit, or is written by two at a time."""


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """` Did you mean 'name'?`, the end of a message about an unknown name; '' if none is near."""
    import difflib  # only errors need it

    near = difflib.get_close_matches(name, known, n=1, cutoff=likeness)
    return f" Did you mean {near[0]!r}?" if near else ""

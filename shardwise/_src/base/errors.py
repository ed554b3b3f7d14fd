"""Error classes; `shardwise.errors` is their public module. Names and bases follow JAX's.

Each message states the actual value, the expected one, the reason, and a remedy. A class that
derives from `Documented` has a page with examples, and its traceback ends with the command that
shows it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Documented(Exception):
    """Base class of errors with a page in docs/errors, which the command line shows."""

    def __init_subclass__(cls) -> None:
        if cls.__module__.startswith("shardwise._src."):
            cls.__module__ = "shardwise.errors"

    def __init__(self, *args: object):
        super().__init__(*args)
        own = next(c for c in type(self).__mro__ if c.__module__.startswith("shardwise."))
        self.add_note(f"Examples and fixes: `shardwise explain-error {own.__name__}`")


class JAXTypeError(TypeError):
    """Base class of type errors about traced values."""

    __module__ = "shardwise.errors"


class JAXIndexError(IndexError):
    """Base class of index errors about traced values."""

    __module__ = "shardwise.errors"


class JaxprTypeError(TypeError):
    """A check found that a program is malformed."""

    __module__ = "shardwise.errors"


class ShardingTypeError(Documented, TypeError, ValueError):
    """Operands have incompatible shardings over explicit mesh axes."""

    def __init__(self, *args: object):
        super().__init__(*args)
        self.add_note(
            "Axes of `shardwise.make_mesh` are Explicit by default, so shardings are part of "
            "types. With axis_types=(shardwise.sharding.AxisType.Auto,) * n the compiler chooses "
            "them."
        )


class TypePromotionError(Documented, TypeError, ValueError):
    """These dtypes have no common dtype; a value must be cast."""


class ShapeError(Documented, TypeError, ValueError):
    """A shape, sizes or axes are invalid, or do not match an array."""


class DtypeError(Documented, TypeError, ValueError):
    """A function does not accept arrays of this dtype."""


class BroadcastError(Documented, TypeError, ValueError):
    """Shapes cannot be broadcast together."""


class ConcretizationTypeError(Documented, JAXTypeError):
    """A traced value was needed as a concrete one."""


class TracerBoolConversionError(ConcretizationTypeError):
    """`bool(x)` or `if x:` on a traced value."""


class TracerArrayConversionError(Documented, JAXTypeError):
    """`numpy.asarray(x)` on a traced value."""


class TracerIntegerConversionError(Documented, JAXTypeError):
    """A traced value used as a Python integer, e.g. as a list index or a shape."""


class NonConcreteBooleanIndexError(Documented, JAXIndexError):
    """A traced boolean mask used as an index: the result's shape would depend on its values."""


class UnexpectedTracerError(Documented, JAXTypeError):
    """A traced value was used outside of the function that it belongs to."""


class LeakedTracerError(UnexpectedTracerError):
    """A traced value outlives its function, found by `checking_leaks`."""


class KeyReuseError(Documented, JAXTypeError):
    """A random key is used twice while the flag `debug_key_reuse` is on."""


class ProcessFailureError(Documented, RuntimeError):
    """Another process of the program is lost, or has diverged from this one.

    processes: the indices of the processes concerned. failed_devices: their devices among those
    that `live_devices` had yielded.
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
    """The result of an operation on a symbolic dimension depends on its unknown size."""


class CheckpointError(Documented, ValueError):
    """A checkpoint is invalid, damaged, does not match, or is being written concurrently."""


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """` Did you mean 'name'?`, the end of a message about an unknown name; '' if none is close."""
    import difflib  # needed only for errors

    near = difflib.get_close_matches(name, known, n=1, cutoff=likeness)
    return f" Did you mean {near[0]!r}?" if near else ""


class KernelError(Documented, ValueError):
    """A kernel, run with `check=True`, is wrong: what it does differs between runs or machines."""

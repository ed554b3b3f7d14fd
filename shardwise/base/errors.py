"""Error classes. Names follow JAX's; each message says what came, what was expected, what to do."""

from __future__ import annotations


class ShardingTypeError(TypeError):
    """Operands whose shardings do not go together, over explicit mesh axes."""


class ConcretizationTypeError(TypeError):
    """A traced value was needed as a concrete one."""


class TracerBoolConversionError(ConcretizationTypeError):
    """`bool(x)`, `if x:` on a traced value."""


class TracerArrayConversionError(TypeError):
    """`numpy.asarray(x)` on a traced value."""


class TracerIntegerConversionError(TypeError):
    """A traced value used as a Python integer, e.g. as a list index or a shape."""


class NonConcreteBooleanIndexError(IndexError):
    """A traced boolean mask used as an index: the result's shape would depend on its values."""


class UnexpectedTracerError(RuntimeError):
    """A traced value was used after the function that it belongs to had ended."""

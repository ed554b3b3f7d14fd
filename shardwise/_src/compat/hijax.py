"""Stands for `jax.experimental.hijax`: types and operations of users that are lowered in steps.

It is an experiment of JAX's that flax.nnx has an option for, off by default. The classes are there
to be inherited from; to use an operation of this kind raises.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise._src.extend.rules import Zero, instantiate_zeros, is_undefined_primal
from shardwise._src.types.array_type import ArrayType as AbstractValue

__all__ = ["AbstractValue", "Zero", "instantiate_zeros", "is_undefined_primal"]


class HiPrimitive:
    """An operation on such types, which cannot be used."""

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        raise NotImplementedError(
            f"{self.name}: operations of jax.experimental.hijax are not here. "
            "`shardwise.extend.core.Primitive` is an operation on arrays."
        )


class HiPrim:
    """The same as a class to inherit from, an instance for each call."""

    def __init__(self) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}: operations of jax.experimental.hijax are not here. "
            "`shardwise.extend.core.Primitive` is an operation on arrays."
        )


VJPHiPrimitive = HiPrim  # its name in JAX up to 0.11


class HiType:
    """A type of such values."""


class MutableHiType(HiType):
    """A type of values that change."""


class AvalQDD:
    """A type, and what is known of a value at a moment."""

    def __init__(self, aval: Any, qdd: Any):
        self.aval, self.qdd = aval, qdd


class AvalMutableQDD(AvalQDD):
    """The same, for what changes."""


class aval_property:
    """An attribute of values of a type."""

    def __init__(self, fget: Any):
        self.fget = fget


class aval_method:
    """A method of values of a type."""

    def __init__(self, fun: Any):
        self.fun = fun


class _Effects:
    def add_type(self, kind: type) -> None:
        """Says that loops and branches may have effects of a kind."""


control_flow_allowed_effects = _Effects()


def register_hitype(kind: type, to_type: Any) -> None:
    """Says how the type of a value is found. No function asks for it."""

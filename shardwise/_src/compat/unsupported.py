"""Stand-ins for modules of JAX whose functions raise here.

`jax.experimental.hijax`: user-defined types and primitives, lowered in steps. This is an experiment
in JAX for which flax.nnx has an option, off by default. The classes exist so that code can subclass
them; using such a primitive raises.

`jax.experimental.colocated_python`, `jax.extend.ifrt_programs`: Python that runs on the hosts of
devices, and programs for plugins. Only Pathways has these. Some libraries import them anyway.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise._src.extend.rule_tables import Zero, instantiate_zeros, is_undefined_primal
from shardwise._src.types.array_type import ArrayType as AbstractValue

__all__ = ["AbstractValue", "Zero", "instantiate_zeros", "is_undefined_primal"]


def _reject_primitive(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: operations of jax.experimental.hijax are not supported. "
        "For operations on arrays, use `shardwise.extend.core.Primitive`."
    )


class HiPrimitive:
    """A primitive on such types, which cannot be used."""

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        _reject_primitive(self.name)


class HiPrim:
    """The same as a base class, with an instance for each call."""

    def __init__(self) -> NoReturn:
        _reject_primitive(type(self).__name__)


VJPHiPrimitive = HiPrim  # its name in JAX up to 0.11


class HiType:
    """A type of such values."""


class MutableHiType(HiType):
    """A type of mutable values."""


class AvalQDD:
    """A type, and the quasi-dynamic data of a value at a point in time."""

    def __init__(self, aval: Any, qdd: Any):
        self.aval, self.qdd = aval, qdd


class AvalMutableQDD(AvalQDD):
    """The same, for mutable values."""


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
        """Declares that loops and branches may have effects of a kind."""


control_flow_allowed_effects = _Effects()


def register_hitype(kind: type, to_type: Any) -> None:
    """Declares how to determine the type of a value. No function uses it."""


DeviceList = tuple  # the type of a list of devices, for annotations


def _reject(name: str) -> NoReturn:
    raise NotImplementedError(
        f"jax.experimental.colocated_python.{name}: Python functions already run in the "
        "processes of their devices here. Only Pathways has colocated Python."
    )


def colocated_cpu_devices(devices: Any) -> NoReturn:
    """Raises: there are no such devices."""
    _reject("colocated_cpu_devices")


def colocated_python(fun: Any) -> Any:
    """A function that raises when called."""
    return lambda *args, **kwargs: _reject("colocated_python")


def colocated_python_class(cls: type) -> Any:
    """A class that raises when instantiated."""
    return lambda *args, **kwargs: _reject("colocated_python_class")


class _Programs:
    def __getattr__(self, name: str) -> Any:
        if not name.startswith("make_"):
            raise AttributeError(name)

        def reject(*args: Any, **kwargs: Any) -> NoReturn:
            raise NotImplementedError(
                f"jax.extend.ifrt_programs.ifrt_programs.{name}: plugin programs are not "
                "supported. Only Pathways has them."
            )

        return reject


ifrt_programs = _Programs()

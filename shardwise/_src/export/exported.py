"""`Exported`: a function as a module in StableHLO, with all that a call needs to know of it.

Its module is called as JAX's are: `main` takes the number of the platform, if it is for several,
then the arguments that are used; and gives the results. See docs/export.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardwise._src.export.calling import called
from shardwise._src.export.common import DisabledSafetyCheck
from shardwise._src.export.files import serialized
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding

Shardings = tuple[NamedSharding | None, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Exported:
    """A function as a module in StableHLO. `call` runs it, `serialize` gives it as bytes.

    fun_name:  of the function.
    in_tree, in_avals:   the arguments, as (positional, named): their tree, and their types, flat.
    out_tree, out_avals: the same of the results.
    nr_devices:          how many devices it runs on; platforms: which ("cpu", "cuda", "tpu").
    mlir_module_serialized: the module, as a portable artifact of StableHLO.
    calling_convention_version: how the module is called.
    module_kept_var_idx: the arguments that the module takes: the others are not used.
    uses_global_constants: whether it is for several platforms, or for symbolic dimensions.
    disabled_safety_checks: see `DisabledSafetyCheck`.
    """

    fun_name: str
    in_tree: Any
    in_avals: tuple[ArrayType, ...]
    out_tree: Any
    out_avals: tuple[ArrayType, ...]
    _in_named_shardings: Shardings
    _out_named_shardings: Shardings
    nr_devices: int
    platforms: tuple[str, ...]
    disabled_safety_checks: tuple[DisabledSafetyCheck, ...]
    mlir_module_serialized: bytes
    calling_convention_version: int
    module_kept_var_idx: tuple[int, ...]
    uses_global_constants: bool
    _text: str
    _get_vjp: Callable[[Exported], Exported] | None = None
    _made: dict[Any, Any] = field(default_factory=dict, init=False)

    ordered_effects: tuple[Any, ...] = field(default=(), init=False)
    unordered_effects: tuple[Any, ...] = field(default=(), init=False)
    _has_named_shardings = True
    in_shardings_hlo = property(lambda self: (None,) * len(self.in_avals))
    out_shardings_hlo = property(lambda self: (None,) * len(self.out_avals))

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    def mlir_module(self) -> str:
        """The module as text."""
        return self._text

    def in_shardings_jax(
        self, mesh: Mesh | AbstractMesh | None = None
    ) -> tuple[NamedSharding | None, ...]:
        """The sharding of each argument over a mesh of the shape that it was exported for.

        None where nothing was said. Without a mesh: over an abstract one.
        """
        return tuple([_over(s, mesh) for s in self._in_named_shardings])

    def out_shardings_jax(
        self, mesh: Mesh | AbstractMesh | None = None
    ) -> tuple[NamedSharding | None, ...]:
        """The same of each result."""
        return tuple([_over(s, mesh) for s in self._out_named_shardings])

    def has_vjp(self) -> bool:
        """Whether it can be differentiated."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """The function that pulls cotangents back: it takes the arguments and then a cotangent of
        each result, flat, and gives a tuple with one of each argument.

        Raises:
          ValueError: if it was not serialized with it.
        """
        if self._get_vjp is None:
            raise ValueError(
                f"{self.fun_name} was exported without its vjp of this order. Pass a larger "
                "`vjp_order` to `serialize` where it is exported."
            )
        if "vjp" not in self._made:
            self._made["vjp"] = self._get_vjp(self)
        return self._made["vjp"]

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """It as bytes, in JAX's format, for `deserialize` here or in JAX.

        Args:
          vjp_order: how many times the function that is read can be differentiated.
        """
        return bytearray(serialized(self, vjp_order))

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results for arguments in the tree, and of the types, that it was exported for.

        It may be called in functions that are jitted or differentiated in reverse; `vmap` of it
        raises. Sharded arguments are brought to the shardings that it was exported with; they are
        on as many devices.

        Raises:
          ValueError: for arguments of another tree or type, or on other platforms or devices.
        """
        return called(self, args, kwargs)


def _over(sharding: NamedSharding | None, mesh: Mesh | AbstractMesh | None) -> Any:
    if sharding is None or mesh is None:
        return sharding
    if mesh.abstract_mesh != sharding.mesh:
        raise ValueError(
            f"the function was exported for {sharding.mesh}; got {mesh}. Pass a mesh with the "
            "same axes, of the same sizes and types."
        )
    return sharding.update(mesh=mesh)

"""The data of an exported function: a StableHLO module, with all the metadata that a call needs.

The module has JAX's calling convention: `main` takes the platform index, if there are several
platforms, then the used arguments; and returns the results. See docs/export.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.export.versions import DisabledSafetyCheck
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import float0
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding

Shardings = tuple[NamedSharding | None, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ExportedData:
    """A function as a StableHLO module.

    fun_name:  of the function.
    in_tree, in_avals:   the pytree of (args, kwargs), and the flat types of the arguments.
    out_tree, out_avals: the same for the results.
    nr_devices:          number of devices it runs on; platforms: which ("cpu", "cuda", "tpu").
    mlir_module_serialized: the module, as a portable artifact of StableHLO.
    calling_convention_version: of the module.
    module_kept_var_idx: indices of the arguments that the module takes: the others are unused.
    uses_global_constants: whether there are several platforms or symbolic dimensions.
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
    _get_vjp: Callable[[Any], Any] | None = None
    _made: dict[Any, Any] = field(default_factory=dict, init=False)

    ordered_effects: tuple[Any, ...] = field(default=(), init=False)
    unordered_effects: tuple[Any, ...] = field(default=(), init=False)
    _has_named_shardings = True
    in_shardings_hlo = property(lambda self: (None,) * len(self.in_avals))
    out_shardings_hlo = property(lambda self: (None,) * len(self.out_avals))

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name}, ...)"

    def mlir_module(self) -> str:
        """The module as a string."""
        return self._text

    def in_shardings_jax(
        self, mesh: Mesh | AbstractMesh | None = None
    ) -> tuple[NamedSharding | None, ...]:
        """The sharding of each argument over a mesh of the shape that it was exported for.

        None for arguments without a sharding. Without `mesh`: over an abstract mesh.
        """
        return _over(self._in_named_shardings, mesh)

    def out_shardings_jax(
        self, mesh: Mesh | AbstractMesh | None = None
    ) -> tuple[NamedSharding | None, ...]:
        """The same for each result."""
        return _over(self._out_named_shardings, mesh)

    def has_vjp(self) -> bool:
        """Whether it can be differentiated."""
        return self._get_vjp is not None

    def vjp(self) -> Any:
        """The pullback: takes the arguments and then a cotangent for each result, flat, and returns
        a tuple with a cotangent for each argument.

        Raises:
          ValueError: if it was serialized without its vjp.
        """
        if self._get_vjp is None:
            raise ValueError(
                f"{self.fun_name} was exported without a vjp of this order. Pass a larger "
                "`vjp_order` to `serialize` where it is exported."
            )
        return self._cached("vjp", self._get_vjp, self)

    def _cached(self, key: Any, make: Callable[..., Any], *args: Any) -> Any:
        """`make(*args)`, computed once for each key."""
        if key not in self._made:
            self._made[key] = make(*args)
        return self._made[key]


def type_in_module(t: ArrayType) -> ArrayType:
    """The type of an argument or result in the module: float0 becomes bool."""
    return array_type(t.shape, np.dtype(bool)) if t.dtype == float0 else stored_type(t)


def _over(shardings: Shardings, mesh: Mesh | AbstractMesh | None) -> Shardings:
    if mesh is None:
        return shardings
    for sharding in shardings:
        if sharding is not None and mesh.abstract_mesh != sharding.mesh:
            raise ValueError(
                f"the function was exported for {sharding.mesh}; got {mesh}. Pass a mesh with the "
                "same axes, of the same sizes and types."
            )
    return tuple(
        [
            None if s is None else NamedSharding(mesh, s.spec, s._memory_kind or "device")
            for s in shardings
        ]
    )

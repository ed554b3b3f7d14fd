"""`Exported`: an exported function that can be called and serialized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise._src.export.calling import called
from shardwise._src.export.export_files import serialized
from shardwise._src.export.exported_data import ExportedData


@dataclass(frozen=True, eq=False, repr=False)
class Exported(ExportedData):
    """A function as a StableHLO module. `call` runs it, `serialize` converts it to bytes.

    The fields are those of `ExportedData`.
    """

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Serializes to JAX's format, for `deserialize` here or in JAX.

        Args:
          vjp_order: how many times the deserialized function can be differentiated.
        """
        return bytearray(serialized(self, vjp_order))

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """The results for arguments with the pytree and types that it was exported for.

        It may be called in functions that are jitted or differentiated in reverse mode; `vmap`
        raises. Sharded arguments are resharded to the exported shardings; they must be on the same
        number of devices.

        Raises:
          ValueError: for arguments with another pytree or type, or on other platforms or devices.
        """
        return called(self, args, kwargs)

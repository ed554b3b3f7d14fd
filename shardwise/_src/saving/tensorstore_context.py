"""TensorStore's context for reads and writes here, as a lazy module attribute."""

from typing import TYPE_CHECKING, Any

from shardwise._src.saving.arrays import shared_context

if TYPE_CHECKING:
    TS_CONTEXT: Any


def __getattr__(name: str) -> Any:
    if name == "TS_CONTEXT":
        return shared_context()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.", name=name)

"""What a program does and where its arrays live, for people to read.

Pictures for terminals need `rich`, which is slow to import: their names are found here, but loaded
on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shardwise.explain.communication import collectives as collectives
from shardwise.explain.communication import summarize as summarize
from shardwise.explain.communication import table as table
from shardwise.types.pictures.html import array_html as array_html
from shardwise.types.pictures.html import mesh_html as mesh_html
from shardwise.types.pictures.html import sharding_html as sharding_html

if TYPE_CHECKING:
    from shardwise.explain.pictures import visualize_array_sharding as visualize_array_sharding
    from shardwise.explain.pictures import visualize_mesh as visualize_mesh
    from shardwise.explain.pictures import visualize_sharding as visualize_sharding

_PICTURES = ("visualize_array_sharding", "visualize_mesh", "visualize_sharding")


def __getattr__(name: str) -> Any:
    if name in _PICTURES:
        return getattr(import_module("shardwise.explain.pictures"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    drawings = ["array_html", "mesh_html", "sharding_html"]
    return sorted(["collectives", "summarize", "table", *drawings, *_PICTURES])

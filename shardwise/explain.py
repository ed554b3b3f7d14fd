"""What a program does and where its arrays live, for people to read.

Pictures for terminals need `rich`, which is slow to import: their names are found here, but loaded
on first use.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.explain.communication import collectives as collectives
    from shardwise._src.explain.communication import summarize as summarize
    from shardwise._src.explain.communication import table as table
    from shardwise._src.explain.terminal import visualize_array_sharding as visualize_array_sharding
    from shardwise._src.explain.terminal import visualize_mesh as visualize_mesh
    from shardwise._src.explain.terminal import visualize_sharding as visualize_sharding
    from shardwise._src.types.pictures.html import array_html as array_html
    from shardwise._src.types.pictures.html import mesh_html as mesh_html
    from shardwise._src.types.pictures.html import sharding_html as sharding_html

lazy_names(__name__)

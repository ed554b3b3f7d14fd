"""Visualizations of shardings: who holds which block. Plain data; HTML is built on first use.

    panels   the content of every visualization: grids of blocks or devices, with labels and sizes
    svg      one grid as an SVG drawing
    html     arrays, shardings and meshes, each as an HTML fragment

Visualizations for terminals are in `shardwise.explain`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.types.pictures.html import array_html as array_html
    from shardwise._src.types.pictures.html import mesh_html as mesh_html
    from shardwise._src.types.pictures.html import sharding_html as sharding_html
    from shardwise._src.types.pictures.panels import index_text as index_text

lazy_names(__name__)

"""Visualizations of shardings: which device has which block. Plain data; HTML on first use.

    panels   the content of every visualization: grids of blocks or devices, with labels and sizes
    svg      one grid as an SVG drawing
    html     arrays, shardings and meshes, each as an HTML fragment

`debug.visualize_sharding` draws them in terminals.
"""

import sys
from typing import TYPE_CHECKING, Any

from shardwise._src.base.lazy import lazy_names
from shardwise._src.types.html_repr import HTML

if TYPE_CHECKING:
    from shardwise._src.visualize.html import array_html as array_html
    from shardwise._src.visualize.html import mesh_html as mesh_html
    from shardwise._src.visualize.html import sharding_html as sharding_html
    from shardwise._src.visualize.panels import index_text as index_text

lazy_names(__name__)

_self: Any = sys.modules[__name__]
HTML["mesh"] = lambda mesh: _self.mesh_html(mesh)
HTML["sharding"] = lambda sharding: _self.sharding_html(sharding)

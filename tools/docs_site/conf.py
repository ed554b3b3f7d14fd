"""Sphinx's settings for the site, which loads nothing from other servers."""

import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

ROOT = Path(__file__).resolve().parents[2]

project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
highlight_language = "none"
myst_heading_anchors = 4
nitpicky = False
add_module_names = False
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "shardwise"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False  # it is in LICENSE
html_use_index = True
html_theme_options = {"navigation_with_keys": True}


# Names of types in signatures that become links. Others remain text: Sphinx would search for each
# among all names with the same ending, which takes minutes and finds several.
LINKED = {
    "Array": "shardwise.Array",
    "Device": "shardwise.Device",
    "Mesh": "shardwise.sharding.Mesh",
    "PartitionSpec": "shardwise.P",
    "Sharding": "shardwise.sharding.Sharding",
    "ShapeDtypeStruct": "shardwise.ShapeDtypeStruct",
}


def link_types(app: Any, doctree: Any) -> None:
    """Turns types in signatures into links to their entries, if they are in LINKED."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        inside = node.parent
        while inside is not None and not isinstance(inside, addnodes.desc_signature):
            inside = inside.parent
        if inside is None:
            continue
        if home := LINKED.get(node["reftarget"]):
            node["reftarget"], node["refspecific"] = home, False
        else:
            node.replace_self(node.children)


MESSAGE = re.compile(r"[\w.]*(Error|Warning|Failure): \S")


def mark_messages(app: Any, doctree: Any) -> None:
    """Allows line breaks in error messages, which are prose."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") == "text" and MESSAGE.match(block.astext()):
            block["classes"].append("message")


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", link_types)
    app.connect("doctree-read", mark_messages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

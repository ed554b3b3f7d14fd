"""HTML of meshes and shardings in notebooks: `visualize`, a package above, registers it here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HTML: dict[str, Callable[[Any], str | None]] = {}  # "mesh" and "sharding" → the function

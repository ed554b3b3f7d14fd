"""jaxlib's tracebacks of launches and arrays, which are off unless something reads them.

Recording one costs 1 µs or more for each launch. Those of launches also stay in memory until jaxlib
frees unused objects, which it does when Python collects garbage or a host value is put on a device:
a loop of launches alone would grow. Memory profiles show tracebacks, and jax needs them to trace.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from typing import Any

from jaxlib import _jax

from shardwise._src.base.config import array_tracebacks


class _JaxWatcher(MetaPathFinder):
    """Turns tracebacks on when jax is imported. It finds no modules."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> None:
        if name == "jax":
            _jax.set_tracebacks_enabled(True)
            sys.meta_path.remove(self)


def choose() -> None:
    """Turns tracebacks off if possible. Called before the first devices start."""
    if array_tracebacks.value or "jax" in sys.modules or not _jax.tracebacks_enabled():
        return
    _jax.set_tracebacks_enabled(False)
    sys.meta_path.insert(0, _JaxWatcher())

"""`clear_caches`: everything that was traced or compiled, forgotten."""

from __future__ import annotations

from shardwise.api.jit import forget_calls
from shardwise.control import bodies
from shardwise.engine import compiled
from shardwise.engine.eager import EAGER


def clear_caches() -> None:
    """Forgets all traces and compiled programs of this process.

    Functions are traced and compiled again when they are next called; what `lower(...).compile()`
    gave stays valid. Programs on disk stay, see `compilation_cache_dir`.
    """
    forget_calls()
    bodies.forget()
    EAGER.cache.clear()
    compiled.forget()

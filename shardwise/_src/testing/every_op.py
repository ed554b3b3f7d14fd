"""All ops that there are: modules make theirs when they are imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import shardwise._src
from shardwise._src.core.op import OPS, Op


def every_op() -> dict[str, Op]:
    """The ops of the library by name, once every module that makes some is imported."""
    for module in pkgutil.walk_packages(shardwise._src.__path__, "shardwise._src."):
        if not module.name.startswith("shardwise._src.testing."):
            import_module(module.name)
    return OPS

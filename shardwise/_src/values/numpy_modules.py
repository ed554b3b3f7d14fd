"""The NumPy functions that methods and operators call; `running.eager` registers them here.

For example:

    modules.reductions.sum(x)     # imports `numpy.statistics.reductions` when it is first used
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


class Modules:
    """The modules of `shardwise._src.numpy` by name."""

    package: ModuleType

    def __getattr__(self, name: str) -> Any:
        module = getattr(self.__dict__["package"], name)
        self.__dict__[name] = module
        return module


modules = Modules()

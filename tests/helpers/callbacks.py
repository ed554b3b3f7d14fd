"""Host callbacks for programs to call, and how their error messages begin."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import shardwise as sw

SCALAR = sw.ShapeDtypeStruct((), np.float32)
SECONDS = 60  # that a test may take


class Calls(list[Any]):
    """A host callback that records its arguments."""

    def __call__(self, *args: Any) -> None:
        self.append(args[0].item() if np.shape(args[0]) == () else np.asarray(args[0]).tolist())


def noted(x: Any, calls: Any, **options: Any) -> Any:
    sw.debug.callback(calls, x, **options)
    return x


def scale(x: Any) -> Any:
    return np.asarray(x) * 2


def message(file: str, kind: str, fun: str, where: str) -> str:
    """A regular expression. where: the function in `file` that contains the call."""
    return rf"{kind} of {fun}, called at {re.escape(file)}:\d+ \({where}\): "

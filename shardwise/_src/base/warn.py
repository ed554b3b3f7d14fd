"""Warnings that point at the user's line, regardless of the number of library frames.

For example:

    warn("... is narrowed to float32.")
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings

PACKAGE = os.path.join(os.path.abspath(__file__).rpartition("_src")[0], "")
# frames between a loading module and the line of the user that loads it
_LOADING = ("<frozen importlib", str(importlib.__file__))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """`warnings.warn` at the innermost line outside of the library."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage] (the caller's frame)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, *_LOADING)):
        frame = frame.f_back
    seen = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "")
    warnings.warn_explicit(
        message, category, frame.f_code.co_filename, frame.f_lineno, module, seen
    )

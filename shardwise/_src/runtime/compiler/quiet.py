"""Suppresses XLA's warnings."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from jaxlib import utils as _utils


@contextmanager
def quiet() -> Generator[None]:
    """Suppresses XLA's warnings in a `with` block."""
    _utils.absl_set_min_log_level(2)
    try:
        yield
    finally:
        level = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "1")
        _utils.absl_set_min_log_level(int(level) if level.isdigit() else 1)

"""Hypothesis examples in groups, some of which are everyday cases (`tests.helpers.everyday`)."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, seed, settings


def searched(group: int, examples: int, check: Callable[..., Any], *strategies: Any) -> None:
    """Runs `check` on some examples, always the same ones for an equal `group`."""
    options = settings(max_examples=examples, suppress_health_check=list(HealthCheck))
    seed(group)(options(given(*strategies)(check)))()

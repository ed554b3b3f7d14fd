"""Options that are read when this process joins others, and have no effect if set later."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from shardwise._src.base import config
from shardwise._src.base.warn import warn

OF_ALL = (config.wait_report_secs, config.wait_timeout_secs)  # read by the coordinator
OF_EACH = (
    config.compare_programs,
    config.cpu_collectives_implementation,
    config.flight_recorder_size,
)


def _guard(flag: Any, is_late: Callable[[], bool]) -> Any:
    def guard(value: Any) -> None:
        if value == flag.value:
            return
        if is_late():
            raise RuntimeError(
                f"{flag.name} cannot be set to {value!r} any more: this process has already joined "
                "others. Set it before `initialize` and the first use of a device, or with the "
                f"environment variable SHARDWISE_{flag.name.upper()}."
            )
        if flag in OF_ALL and os.environ.get("SHARDWISE_COORDINATOR_STARTED") == "1":
            warn(
                f"{flag.name}={value!r} has no effect: `shardwise launch` has started the "
                f"coordinator with its own value. Pass --{flag.name.replace('_', '-')} there."
            )

    return guard


def guard_all(is_late: Callable[[], bool]) -> None:
    """Rejects changes without effect. is_late: whether this process has joined others."""
    for flag in (*OF_ALL, *OF_EACH):
        flag.guard = _guard(flag, is_late)

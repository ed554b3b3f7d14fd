"""Preemption notices, and the step at which all processes should save.

With several processes, XLA's service does it: its client waits for SIGTERM, and all agree on a
step.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from jaxlib import _jax


class _State:
    manager: _jax.PreemptionSyncManager | None = None
    hooked = False
    noticed = False


def reached(client: _jax.DistributedRuntimeClient | None, step: int) -> bool:
    """Whether all should save at this step. client: of XLA's service; None in a single process."""
    if client is not None:
        if _State.manager is None:
            manager = _jax.create_preemption_sync_manager()
            manager.initialize(client)
            _State.manager = manager
        return _State.manager.reached_sync_point(step)
    if not _State.hooked and threading.current_thread() is threading.main_thread():
        _State.hooked = True
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _note)
    noticed, _State.noticed = _State.noticed, False
    return noticed


def _note(number: int, frame: Any) -> None:
    _State.noticed = True


def end() -> None:
    """Ends the sync manager before the client of XLA's service is shut down."""
    manager, _State.manager = _State.manager, None
    if manager is not None:
        manager.shutdown()

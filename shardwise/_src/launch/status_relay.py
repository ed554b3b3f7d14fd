"""`StatusRelay` exchanges process status between launchers of machines while there is a viewer.

`shardwise top` touches a file of the launcher on its machine (`status_files`). That launcher sends
"look" to the launcher of node 0, which sends it to all. They have their own processes publish their
status, and send rows of numbers and strings to node 0, which forwards them to the nodes with
viewers. Each launcher stores them in its own folder, where `top` finds them. Without a viewer,
nothing is sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardwise._src.distributed.status_files import LOOKED, LOOKING, LaunchStatus
from shardwise._src.launch.status_view import Process, shown

PERIOD = 0.25  # seconds between checks for a viewer
OPS = ("look", "shown")  # of its messages


class StatusRelay:
    """The part of a launcher that serves viewers of the launch on any machine.

    notice: that of this launcher; node: its node rank.
    tell: sends a message to the connected launchers of some nodes, or to all if None.
    """

    def __init__(
        self,
        notice: LaunchStatus,
        node: int,
        tell: Callable[[dict[str, Any], set[int] | None], object],
    ):
        self._notice, self._node, self._tell = notice, node, tell
        self._looks: dict[int, float] = {}  # when each other launcher sent "look"
        self._since = 0.0  # when the first of them did
        self._others: dict[int, dict[str, Any]] = {}  # records to forward, by node
        self._touched = 0  # when this launcher touched its own file
        self._lock = threading.Lock()
        self._ended = threading.Event()
        if notice.folder is not None:
            threading.Thread(
                target=self._run, args=(notice.folder,), name="shardwise-mirror", daemon=True
            ).start()

    def end(self) -> None:
        self._ended.set()

    def hear(self, node: int, message: dict[str, Any]) -> None:
        """Handles a message of another launcher.

        Raises:
          ValueError, TypeError, LookupError, OverflowError: it is malformed.
        """
        if message["op"] == "look":
            with self._lock:
                self._looks[node] = time.monotonic()
            return
        of = node or int(message["node"])
        workers = [Process.of_another(row)._asdict() for row in message["workers"]]
        record = {"complete": bool(message["complete"]), "workers": workers}
        if not self._ended.is_set():
            self._notice.show_node(of, {"at": time.time(), **record})
        with self._lock:
            self._others[of] = record

    def _run(self, folder: Path) -> None:
        while not self._ended.wait(PERIOD):
            looked = self._is_looked_at(folder / LOOKED)
            now = time.monotonic()
            with self._lock:
                lookers = {node for node, at in self._looks.items() if now - at < LOOKING}
                others, self._others = self._others, {}
            if looked or (lookers and self._node == 0):
                self._tell({"op": "look"}, None)
            if not lookers:
                self._since = 0.0
                continue
            self._since = self._since or time.time()
            self._touch(folder / LOOKED)
            self._show(folder, lookers, others)

    def _show(self, folder: Path, lookers: set[int], others: dict[int, dict[str, Any]]) -> None:
        own = shown(folder, self._since)
        if own is not None:
            workers = [process._asdict() for process in own.processes]
            message = {"op": "shown", "node": self._node, "workers": workers}
            self._tell({**message, "complete": own.complete}, lookers)
        for node, record in others.items() if self._node == 0 else ():
            self._tell({"op": "shown", "node": node, **record}, lookers - {node})

    def _is_looked_at(self, path: Path) -> bool:
        """Whether there is a viewer on this machine."""
        try:
            found = os.stat(path)
        except OSError:
            return False
        return found.st_mtime_ns != self._touched and abs(time.time() - found.st_mtime) < LOOKING

    def _touch(self, path: Path) -> None:
        """Makes the processes on this machine publish their status."""
        try:
            path.touch(mode=0o600)
            self._touched = os.stat(path).st_mtime_ns
        except OSError:
            return  # the launch has ended

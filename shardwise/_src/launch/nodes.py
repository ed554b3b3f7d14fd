"""The launchers of many machines: they connect to the launcher of node 0, which coordinates them.

Each has one connection to it; messages are lines of JSON:

    join, refused       a launcher sends its node rank
    start               a generation begins: its coordinator's port, processes of each node
    exited              a process of a node has ended with status 0
    failed, finished    one has failed; all have exited with status 0
    stop, stopped       the processes must be ended; none is left
    look, shown         a user views the processes of all nodes (`status_relay`)
    end                 no further generation; the result of the launch
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from shardwise._src.coordination.failure_detector import MALFORMED
from shardwise._src.distributed.channel import Channel
from shardwise._src.launch.status_relay import OPS
from shardwise._src.launch.worker_output import say
from shardwise._src.launch.worker_reports import Report
from shardwise._src.launch.workers import Plan
from shardwise._version import __version__

JOIN_WITHIN = 10.0  # seconds that a connection may take to identify itself
LEAVE_WITHIN = 2.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between attempts to accept a connection
LONGEST = 1 << 22  # bytes of a message, which may contain the last lines of a process


class Problem(Exception):
    """A launch cannot continue; the message is for the user."""


def joining(plan: Plan) -> dict[str, Any]:
    return {
        "op": "join",
        "version": __version__,
        "node": plan.node,
        "nodes": plan.nodes,
        "count": plan.count,
    }


class Said(NamedTuple):
    """A message of a launcher: "exited", "failed", "finished" or "stopped"; or "came" and "gone"
    for the launcher itself.

    channel: its connection. report: describes a process that has ended.
    """

    node: int
    op: str
    channel: Channel
    generation: int = -1
    report: Report | None = None


class Nodes:
    """The other launchers, as seen by the launcher of node 0; none on one machine.

    post: called with their messages, from other threads.
    """

    def __init__(self, plan: Plan, post: Callable[[Said], None]):
        self._plan, self._post = plan, post
        self._listener: socket.socket | None = None
        self._channels: dict[int, Channel] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def listen(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        hear: Callable[[int, dict[str, Any]], None],
    ) -> None:
        """Lets other launchers join.

        tls:  the TLS context of their connections, if they are secured.
        hear: called with a node and its message, for messages between mirrors.
        """
        self._listener, self._tls, self._hear = listener, tls, hear
        self._spawn(self._listen)

    def _spawn(self, run: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=run, args=args, name="shardwise-nodes", daemon=True).start()

    def _listen(self) -> None:
        pause, is_known = FIRST_PAUSE, False
        while not self._closed.is_set():
            try:
                self._accept()
                pause = FIRST_PAUSE
                continue
            except ConnectionAbortedError:
                continue  # the peer has disconnected
            except (OSError, RuntimeError) as error:  # too many open files or threads
                why = error.strerror if isinstance(error, OSError) else str(error)
            if not (is_known or self._closed.wait(pause)):
                is_known = True
                say(
                    f"the launcher of node 0 cannot accept a connection: {why}. It will retry; "
                    "other nodes are waiting."
                )
            self._closed.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _accept(self) -> None:
        assert self._listener is not None
        sock, _ = self._listener.accept()
        try:
            self._spawn(self._serve, sock)
        except RuntimeError:
            sock.close()
            raise

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(JOIN_WITHIN)
            secured = self._tls.wrap_socket(sock, server_side=True) if self._tls else sock
            secured.settimeout(None)
            channel = Channel(secured, LONGEST)
        except OSError:  # not one of our launchers, or gone
            sock.close()
            return
        node = -1
        try:
            with suppress(*MALFORMED, OSError):  # strangers send anything, or disconnect
                channel.keep_alive(self._plan.heartbeat)
                node = self._admit(channel)
                while node >= 0 and (messages := channel.read(60.0)) is not None:
                    for message in messages:
                        if message["op"] in OPS:
                            self._hear(node, message)
                        else:
                            self._post(self._said(node, channel, message))
        finally:
            self._leave(node, channel)

    def _leave(self, node: int, channel: Channel) -> None:
        """Closes a connection, and posts "gone" if it belonged to a node."""
        if node >= 0:
            with self._lock:
                del self._channels[node]  # before the peer notices, which may reconnect
        channel.close()
        if node >= 0:
            self._post(Said(node, "gone", channel))

    def _said(self, node: int, channel: Channel, message: dict[str, Any]) -> Said:
        """Parses a message of a launcher; anything else raises an error."""
        op = message["op"]
        if op not in ("exited", "failed", "finished", "stopped"):
            raise ValueError(op)
        report = Report.from_dict(message["report"]) if op in ("exited", "failed") else None
        return Said(node, op, channel, int(message["generation"]), report)

    def _admit(self, channel: Channel) -> int:
        """The node of a connection; -1 if it is not admitted."""
        deadline, messages = time.monotonic() + JOIN_WITHIN, []
        while not messages:
            found = channel.read(max(0.0, deadline - time.monotonic()))
            if found is None or time.monotonic() > deadline:
                return -1
            messages = found
        joining, *others = messages
        channel.unread(others)
        if joining["op"] != "join":
            return -1
        node = int(joining["node"])
        with self._lock:
            why = self._rejection(node, joining)
            if not why:
                self._channels[node] = channel
        if why:
            channel.send({"op": "refused", "why": why})
            return -1
        self._post(Said(node, "came", channel))
        return node

    def _rejection(self, node: int, message: dict[str, Any]) -> str:
        wanted = joining(self._plan)
        for key, flag in (("nodes", "--nodes"), ("count", "-n"), ("version", "")):
            if message[key] != wanted[key]:
                name = flag or "shardwise"
                return (
                    f"node {node} has {name} {message[key]}, but node 0 has {name} {wanted[key]}: "
                    "they must be the same on all nodes"
                )
        if not 0 < node < self._plan.nodes:
            return f"--node-rank must be from 1 to {self._plan.nodes - 1} on this node; got {node}"
        if node in self._channels:
            return f"another launcher has already joined as node {node}"
        return ""

    # ------------------------------------------------------------------ for node 0

    def missing(self) -> list[int]:
        return [k for k in range(1, self._plan.nodes) if k not in self._channels]

    def tell(self, op: str, **facts: Any) -> dict[Channel, int]:
        """Sends a message to all nodes; returns the connections used, and their nodes."""
        return self.pass_on({"op": op, **facts}, None)

    def pass_on(self, message: dict[str, Any], nodes: set[int] | None) -> dict[Channel, int]:
        """Sends a message to some nodes, or to all if None; returns connections and nodes."""
        rows = tuple(self._channels.items())
        channels = {channel: node for node, channel in rows if nodes is None or node in nodes}
        for channel in channels:
            channel.send(message)
        return channels

    def close(self) -> None:
        """Waits briefly until the other launchers, which were sent "end", have disconnected."""
        self._closed.set()
        if self._listener is not None:
            self._listener.close()
        deadline = time.monotonic() + LEAVE_WITHIN
        while self._channels and time.monotonic() < deadline:
            time.sleep(0.01)

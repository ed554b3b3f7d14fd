"""The connection of this process to the coordinator (`coordination.coordinator`): lines of JSON."""

from __future__ import annotations

import json
import math
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.coordination.certificates import is_of

FIRST_PAUSE, LONGEST_PAUSE = 0.002, 0.2  # seconds between attempts to connect


class Refused(Exception):
    """The coordinator does not let this process join; the message says why.

    ranks: the processes that caused it, if any.
    """

    def __init__(self, text: str, ranks: Sequence[int] = ()):
        super().__init__(text)
        self.ranks = tuple(ranks)


class Channel:
    """One connection. A dedicated thread reads from it; any thread may send.

    The lock serializes all use, since TLS does not allow a read and a send at the same time.
    """

    def __init__(self, sock: Any, longest: float = math.inf):
        """longest: maximum bytes of an incoming message; if exceeded, `read` raises ValueError."""
        sock.settimeout(None)
        self._longest = longest
        self._sock = sock
        self._lock = threading.Lock()
        # File descriptors may be large; `select` does not support those.
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
        self._selector.register(sock, selectors.EVENT_READ)
        self._left = b""
        self._unread: list[dict[str, Any]] = []
        self.closed = False
        self.problem = ""  # why it closed

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if not self.closed:
                try:
                    self._sock.sendall(data)
                except OSError:
                    self.closed = True

    def read(self, seconds: float) -> list[dict[str, Any]] | None:
        """The messages that arrive within `seconds`; None once the connection is closed."""
        if self._unread:
            found, self._unread = self._unread, []
            return found
        pending = isinstance(self._sock, ssl.SSLSocket) and self._sock.pending()
        if not pending and not self._selector.select(seconds):
            return []
        try:
            with self._lock:
                data = self._sock.recv(1 << 16)
        except (ssl.SSLWantReadError, BlockingIOError, TimeoutError):
            return []
        except OSError as error:
            data, self.problem = b"", describe_error(error)
        if not data:
            self.closed = True
            return None
        *lines, self._left = (self._left + data).split(b"\n")
        if len(self._left) > self._longest:
            raise ValueError("an unterminated message")
        return [json.loads(line) for line in lines]

    def unread(self, messages: list[dict[str, Any]]) -> None:
        """Makes the next `read` return these."""
        self._unread = messages

    def limit(self, seconds: float) -> None:
        """Treats the connection as closed once the peer has accepted no data for so long."""
        self._sock.settimeout(seconds)

    def keep_alive(self, seconds: float) -> None:
        """Makes the connection fail once the other machine has not responded for so long."""
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        pause = max(1, int(seconds / 5))
        for name, value in (
            ("TCP_KEEPIDLE", pause),
            ("TCP_KEEPINTVL", pause),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", int(1000 * seconds)),
        ):
            if hasattr(socket, name):  # not on all systems
                self._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def drop(self) -> None:
        """Releases the connection in a child of `os.fork`; the parent continues to use it."""
        self.closed = True
        os.close(self._sock.detach())

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._sock.close()


def connect(
    host: str,
    port: int,
    deadline: float,
    tls: ssl.SSLContext | None,
    uri_prefix: str | None,
    longest: float = math.inf,
) -> Channel:
    """Connects as soon as a server listens at the address.

    deadline: a time of `time.monotonic`.
    uri_prefix: the prefix that a URI in the peer's certificate must have; if None, the certificate
      must be for the host.
    longest: maximum bytes of an incoming message.

    Raises:
      TimeoutError: no connection until the deadline; the message has the last error.
      Refused: the server does not have such a certificate.
    """
    begin = time.monotonic()
    while True:
        left = max(deadline - time.monotonic(), 1.0)  # one attempt is always made
        try:
            sock = socket.create_connection((host, port), timeout=min(left, 10.0))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = sock if tls is None else _secured(sock, tls, host, uri_prefix)
            return Channel(secured, longest)
        except ssl.SSLError as error:
            raise Refused(describe_error(error)) from error
        except OSError as error:
            problem = describe_error(error)
        now = time.monotonic()
        if now >= deadline:
            raise TimeoutError(problem)
        pause = min(max(FIRST_PAUSE, (now - begin) / 20), LONGEST_PAUSE)
        time.sleep(min(pause, max(0.0, deadline - now)))


def _secured(
    sock: socket.socket, tls: ssl.SSLContext, host: str, uri_prefix: str | None
) -> ssl.SSLSocket:
    secured = tls.wrap_socket(sock, server_hostname=host)
    if uri_prefix is not None and not is_of(secured, uri_prefix):
        secured.close()
        raise Refused(f"TLS: its certificate has no URI with the prefix {uri_prefix!r}")
    return secured


def describe_error(error: OSError) -> str:
    """A short description of a connection error."""
    if isinstance(error, ssl.SSLError):
        text = getattr(error, "verify_message", "") or error.reason or str(error)
        return f"TLS: {text.replace('_', ' ').lower() if text.isupper() else text}"
    return error.strerror or str(error)


def _answers(channel: Channel) -> list[dict[str, Any]]:
    try:
        messages = channel.read(0.25) or []
        return [{"op": message["op"], **message} for message in messages]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        line = str(getattr(error, "doc", "")).strip()
        raise Refused(
            "the program listening there is not a coordinator"
            + (f": it sent {line[:60]!r}" if line else "")
        ) from None


def joined(
    channel: Channel, about: dict[str, Any], deadline: float, warn: Callable[[float], None]
) -> dict[str, Any]:
    """Identifies this process, and waits until all have joined; returns the coordinator's answer.

    warn: called from time to time with the seconds waited so far.

    Raises:
      Refused: with the coordinator's reason; or the peer is not a coordinator.
      TimeoutError: no answer until the deadline.
    """
    channel.send({"op": "join", **about})
    begin = time.monotonic()
    noted = begin
    while True:
        answers = _answers(channel)
        for i, message in enumerate(answers):
            if message["op"] == "go":
                channel.unread(answers[i + 1 :])
                return message
            if message["op"] == "refused":
                raise Refused(message["why"], message.get("ranks", ()))
        now = time.monotonic()
        if channel.closed:
            why = f" ({channel.problem})" if channel.problem else ""
            raise Refused(
                f"the program listening there closed the connection{why}: is it a coordinator of "
                "the same release, with TLS if and only if this process has TLS?"
            )
        if now > deadline:
            raise TimeoutError("the coordinator did not answer")
        if now - noted > 30:
            noted = now
            warn(now - begin)

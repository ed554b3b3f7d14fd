"""Status of launches and their processes for `shardwise top`, in files private to the user.

    FOLDER/1234/launch      by launcher 1234: command, processes, restarts
    FOLDER/1234/looked      touched by any viewer
    FOLDER/1234/rank-2      by process 2: step, rates, bytes on devices, current wait
    FOLDER/1234/node-1      by launcher 1234: processes of node 1, as sent by its launcher

A process writes its file only while there is a viewer; with each heartbeat it checks (with a
`stat`) whether there is one. A file is JSON, and is replaced as a whole: a reader sees a complete
state. Nothing in them is executed.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, SupportsFloat, SupportsIndex

from shardwise._src.runtime import backend, buffers

VARIABLE = "SHARDWISE_BOARD"  # the path that a process writes to
LOOKED, LAUNCH = "looked", "launch"
LOOKING = 5.0  # seconds for which a touch by a viewer counts
WINDOW = 10.0  # seconds over which rates are computed
APART = 0.25  # seconds between reports that count for rates


def folder() -> Path:
    """The folder of this user's launches."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own and Path(own).is_dir():
        return Path(own, "shardwise")
    return Path(tempfile.gettempdir(), f"shardwise-{os.getuid()}")


def node_card(node: int) -> str:
    """The name of the file about the processes of another machine."""
    return f"node-{node}"


def make_private(path: Path) -> None:
    """Makes a folder that only this user can read or write.

    Raises:
      OSError: it cannot be made, or exists and is accessible to another user.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a folder that only this user can use")


def write(path: Path, record: dict[str, Any]) -> None:
    """Replaces a card by the last state of something. One thread at a time may write to a path."""
    new = path.with_name(f"{path.name}.new")
    flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o600), "w", encoding="ascii") as file:
        json.dump(record, file)
    os.replace(new, path)


def read(path: Path) -> dict[str, Any]:
    """The contents of a card; {} if the file is missing or not a card."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


# ---------------------------------------------------------------------------------- a process


class Progress:
    """The progress that a program has reported, and its rates."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.tokens = 0
        self.facts: dict[str, float] = {}
        self._past: deque[tuple[float, int, int]] = deque()  # time, step, tokens

    def add(self, step: int, tokens: int, facts: dict[str, float], now: float) -> None:
        if self.step is not None and step < self.step:  # it has gone back
            self._past.clear()
        self.step, self.tokens, self.facts = step, self.tokens + tokens, facts
        past = self._past
        if len(past) > 1 and now - past[-2][0] < APART:
            past.pop()
        past.append((now, step, self.tokens))
        while len(past) > 2 and now - past[1][0] > WINDOW:
            past.popleft()

    def record(self, now: float) -> dict[str, Any]:
        """The step, seconds since it was reported, and steps and tokens per second."""
        if self.step is None:
            return {}
        past = tuple(self._past)
        found: dict[str, Any] = {"step": self.step, "facts": self.facts, "ago": now - past[-1][0]}
        if len(past) > 1:
            (begin, first, had), (end, last, have) = past[0], past[-1]
            late = now - end > WINDOW  # no step for a long time: the rate decreases
            seconds = max((now if late else end) - begin, 1e-9)
            found["steps_per_second"] = (last - first) / seconds
            if have:
                found["tokens_per_second"] = (have - had) / seconds
        return found


class ProcessStatus:
    """The status that this process publishes. path: of its card; None if it has no card."""

    def __init__(self, path: str | None):
        self._path = Path(path) if path else None
        self._lock = threading.Lock()
        self._shown = 0.0
        self.progress = Progress()
        self.beats = False  # whether a thread shows it regularly

    def report(self, step: int, tokens: int, facts: dict[str, float]) -> None:
        now = time.monotonic()
        with self._lock:
            self.progress.add(step, tokens, facts, now)
        if not self.beats and self._path is not None and now - self._shown > APART:
            self.show({})

    def show(self, wait: dict[str, Any]) -> None:
        """Writes the card if there is a viewer. wait: the current activity, as in a heartbeat."""
        if self._path is None:
            return
        self._shown = time.monotonic()
        try:
            looked = os.stat(self._path.parent / LOOKED).st_mtime
            now = time.time()
            if not now - LOOKING < looked < now + LOOKING:
                return
            bytes_now = _device_bytes()
            with self._lock:
                progress = self.progress.record(time.monotonic())
                write(
                    self._path,
                    {"at": now, "pid": os.getpid(), **wait, **progress, "device_bytes": bytes_now},
                )
        except FileNotFoundError:
            return  # no viewer yet, or the launcher is gone
        except OSError:
            self._path = None  # a full disk must not stop the program


def _device_bytes() -> int | None:
    """The bytes of this process's arrays on its devices; None before devices are started."""
    try:
        return buffers.bytes_in_use() if backend.is_started() else None
    except Exception:  # an array was deleted concurrently; a viewer must never end a program
        return None


def _path() -> str | None:
    """The path of this process's card, if its parent is the launcher."""
    path = os.environ.get("SHARDWISE_BOARD")
    return path if path and Path(path).parent.name == str(os.getppid()) else None


board = ProcessStatus(_path())


def _forget() -> None:
    """A child of `os.fork` publishes nothing in place of its parent."""
    board.__init__(None)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget)


def report_progress(
    step: SupportsIndex, *, tokens: SupportsIndex = 0, **facts: SupportsFloat
) -> None:
    """Reports the progress of this process to `shardwise top`.

    Costs about a microsecond; without `shardwise launch` it does nothing else. Rates of
    steps and tokens are over the last ten seconds.

        for step, batch in enumerate(batches):
            state, loss = train(state, batch)
            report_progress(step, tokens=batch.size)

    Args:
      step: the number of the step that has ended.
      tokens: the number of tokens, samples or other units that it processed.
      facts: numbers to show, such as `loss=0.31`.

    Raises:
      TypeError: one of them is not a Python or NumPy number. Arrays are rejected, since the call
        would have to wait for them: `float(loss)` does.
    """
    for name, value in {"step": step, "tokens": tokens}.items():
        if not (hasattr(value, "__index__") and _is_plain(value)):
            raise TypeError(_rejection(name, "an integer", value, f"int({name})"))
    for name, value in facts.items():
        if not (hasattr(value, "__float__") and _is_plain(value)):
            raise TypeError(_rejection(name, "a number", value, f"float({name})"))
    board.report(int(step), int(tokens), {name: float(value) for name, value in facts.items()})


def _is_plain(value: Any) -> bool:
    """Whether it is a number in host memory, available without waiting."""
    return isinstance(value, int | float) or type(value).__module__ == "numpy"


def _rejection(name: str, wanted: str, value: Any, remedy: str) -> str:
    return (
        f"report_progress: {name} must be {wanted} of Python or NumPy; got {type(value).__name__}. "
        f"Reading an array would have to wait for it: pass {remedy} if that is intended."
    )


# --------------------------------------------------------------------------------- a launcher


class LaunchStatus:
    """The status that a launcher publishes. If it cannot, `why` has the reason, and it continues.

    facts: facts that do not change.
    """

    def __init__(self, facts: dict[str, Any]):
        self._facts = {**facts, "pid": os.getpid(), "started": time.time()}
        self.why = ""
        self.folder: Path | None = None
        self._lock = threading.Lock()
        try:
            own = _own_folder()
            write(own / LAUNCH, self._facts)
            self.folder = own
        except OSError as error:
            self.why = f"`shardwise top` will not show this launch: {error}"

    def card_of(self, rank: int) -> str:
        """The path of a process's card; "" if none."""
        return "" if self.folder is None else str(self.folder / f"rank-{rank}")

    def show(self, **facts: Any) -> None:
        """Updates the status."""
        with self._lock:
            self._facts |= facts
            self._write(LAUNCH, self._facts)

    def show_node(self, node: int, record: dict[str, Any]) -> None:
        """Updates the status of another machine."""
        with self._lock:
            self._write(node_card(node), record)

    def _write(self, name: str, record: dict[str, Any]) -> None:
        if self.folder is not None:
            with suppress(OSError):
                write(self.folder / name, record)

    def clear(self) -> None:
        """Deletes the cards of processes that are about to be restarted."""
        if self.folder is not None:
            remove(self.folder, "rank-*")

    def remove(self) -> None:
        """Deletes all files at the end of the launch."""
        with self._lock:
            own, self.folder = self.folder, None
        if own is not None:
            remove(own)
            with suppress(OSError):  # other launches of the user are in it
                own.parent.rmdir()


def _own_folder() -> Path:
    """Makes the folder of this launch."""
    root = folder()
    for tries_left in (2, 1, 0):
        make_private(root)
        sweep(root)
        own = root / str(os.getpid())
        try:
            make_private(own)
            break
        except FileNotFoundError:  # another launch has ended just now, and removed the root
            if not tries_left:
                raise
    return own


def remove(path: Path, pattern: str = "*") -> None:
    """Deletes files of a launch; by default all, with its folder."""
    with suppress(OSError):
        for file in path.glob(pattern):
            file.unlink(missing_ok=True)
        if pattern == "*":
            path.rmdir()


def sweep(root: Path) -> None:
    """Deletes the files left by launchers that were killed."""
    for path in launches(root, alive=False):
        remove(path)


def launches(root: Path, alive: bool = True) -> list[Path]:
    """The folders of launches whose launcher is alive, or is not."""
    try:
        found = [path for path in root.iterdir() if path.name.isdecimal()]
    except OSError:
        return []
    return sorted(path for path in found if _is_launcher(int(path.name), path) == alive)


def _is_launcher(pid: int, path: Path) -> bool:
    """Whether a process is alive, and is the one that made the folder."""
    import psutil

    try:
        return psutil.Process(pid).create_time() <= path.stat().st_ctime + 1.0
    except (psutil.Error, OSError):
        return False

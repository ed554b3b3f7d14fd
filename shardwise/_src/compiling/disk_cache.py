"""On-disk cache of compiled programs, shared by all processes of a user.

A file is written under a temporary name and renamed, so that readers see all of it or nothing, and
writers need no locks. It starts with a checksum: a damaged file is deleted, and its program
compiled again. If the files would exceed the limit, the least recently used are deleted first.
Nothing here raises: an unusable folder is logged once, and caching is then disabled.

The key determines when a file is valid: see `runtime.compiler.fingerprint`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shardwise._src.base import config
from shardwise._src.base.caches import cached

FORMAT = b"shardwise program 1\n"
STALE = 3600  # seconds after which an unfinished file is abandoned
_HEAD = len(FORMAT) + 32  # with a SHA-256
AGAIN = "its program is compiled again"
_PROGRAM, _UNFINISHED = ".program", ".program.tmp"
_log = logging.getLogger("shardwise.cache")


def key_of(parts: Iterable[bytes]) -> str:
    """A file name for the program that these parts determine."""
    from hashlib import sha256  # OpenSSL is slow to load

    digest = sha256(FORMAT)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


class DiskCache:
    """The files in one folder.

    limit: maximum total bytes; -1 for no limit.
    level: log level of the message that the folder cannot be used.
    """

    def __init__(self, folder: Path, limit: int, level: int = logging.WARNING):
        self.folder = folder
        self.limit = limit
        self._level = level
        self._room = -1  # bytes to write before the next count of the files
        self._usable = True

    def read(self, key: str, again: str = AGAIN) -> bytes | None:
        """The content stored under the key, or None. again: what follows if it is damaged."""
        path = self.folder / (key + _PROGRAM)
        try:
            with path.open("rb") as file:
                head, content = file.read(_HEAD), file.read()
        except OSError:  # usually: it does not exist
            return None
        if head != _head(content):
            self.drop(key, "is damaged", again)
            return None
        with suppress(OSError):  # it may belong to another user
            os.utime(path)
        return content

    def drop(self, key: str, why: str, again: str = AGAIN) -> None:
        """Deletes a useless file."""
        path = self.folder / (key + _PROGRAM)
        _log.warning("%s %s; %s.", path, why, again)
        with suppress(OSError):
            path.unlink()

    def write(self, key: str, content: bytes) -> None:
        """Stores the content under the key, if possible."""
        size = _HEAD + len(content)
        if not self._usable or 0 <= self.limit < size:
            return
        path = self.folder / (key + _PROGRAM)
        unfinished = self.folder / f"{key}.{os.urandom(6).hex()}{_UNFINISHED}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(size)
            with unfinished.open("xb") as file:
                file.write(_head(content))
                file.write(content)
            unfinished.replace(path)
        except OSError as error:
            self._usable = False
            with suppress(OSError):
                unfinished.unlink()
            _log.log(self._level, "no compiled programs are stored in %s: %s", self.folder, error)

    def _make_room(self, size: int) -> None:
        """Deletes the least recently used files, until `size` more bytes are within the limit.

        Counting is slow if there are many files. It is skipped as long as this process wrote only
        a small part of the free space, so that several processes may write at the same time.
        """
        self._room -= size
        if self._room >= 0 or self.limit < 0:
            return
        files = sorted(self._files())
        total = size + sum(n for _, n, _ in files)
        aim = self.limit if total <= self.limit else self.limit * 9 // 10
        for _, n, path in files:
            if total <= aim:
                break
            with suppress(OSError):  # another process was faster
                os.unlink(path)
            total -= n
        self._room = max(self.limit - total, 0) // 16

    def _files(self) -> list[tuple[float, int, str]]:
        """(last use, bytes, path) of each file; deletes the remains of killed processes."""
        found: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if not entry.name.endswith((_PROGRAM, _UNFINISHED)):
                    continue
                with suppress(OSError):
                    facts = entry.stat()
                    if entry.name.endswith(_PROGRAM):
                        found.append((facts.st_mtime, facts.st_size, entry.path))
                    elif time.time() - facts.st_mtime > STALE:
                        os.unlink(entry.path)
        return found


def _head(content: bytes) -> bytes:
    from hashlib import sha256

    return FORMAT + sha256(content).digest()


def disk_cache() -> DiskCache | None:
    """The cache that the flags request; None if it is off."""
    if not config.enable_compilation_cache.value:
        return None
    asked = config.compilation_cache_dir.value
    return _opened(asked, config.compilation_cache_max_size.value)


@cached(8)
def _opened(asked: str | None, limit: int) -> DiskCache | None:
    if asked is not None:
        return DiskCache(Path(asked).expanduser().absolute(), limit)
    folder = default_folder()
    # The user did not request it, so a failure to write is not worth a warning.
    return None if folder is None else DiskCache(folder, limit, logging.INFO)


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Caches compiled programs in this folder: sets the flag `compilation_cache_dir`."""
    config.compilation_cache_dir.set(os.fspath(path))


def reset_cache() -> None:
    """Inspects the folder again at the next compilation, for example after external changes."""
    _opened.cache_clear()


def default_folder() -> Path | None:
    """`shardwise` in the user's cache directory; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the standard says to ignore relative paths
        return Path(base) / "shardwise"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "shardwise"
    return None

"""Files of compiled programs, shared by all processes of a user.

A file is written beside its place and moved there, so that readers see all of it or nothing, and
writers need no locks. It starts with a checksum: a damaged one is deleted, and its program compiled
anew. What was used longest ago goes first when the files would take more than the limit. Nothing
here raises: a folder that cannot be used is logged once, and then nothing is kept.

What a file is good for is the business of its key: see `runtime.fingerprint`.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from shardwise._src.base import config

FORMAT = b"shardwise program 1\n"
STALE = 3600  # seconds after which a file that was never finished belongs to nobody
_HEAD = len(FORMAT) + 32  # with a SHA-256
_PROGRAM, _UNFINISHED = ".program", ".program.tmp"
_log = logging.getLogger("shardwise.cache")


def key_of(parts: Iterable[bytes]) -> str:
    """A name for the program that is made of these parts."""
    from hashlib import sha256  # OpenSSL takes a while to load

    digest = sha256(FORMAT)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


class DiskCache:
    """The files in one folder.

    limit: bytes that all of them may take; -1 for any number.
    level: of the log line that says that the folder cannot be used.
    """

    def __init__(self, folder: Path, limit: int, level: int = logging.WARNING):
        self.folder = folder
        self.limit = limit
        self._level = level
        self._room = -1  # bytes to write before the files are counted again
        self._usable = True

    def read(self, key: str) -> bytes | None:
        """What was written under the key, or None."""
        path = self.folder / (key + _PROGRAM)
        try:
            with path.open("rb") as file:
                head, content = file.read(_HEAD), file.read()
        except OSError:  # most often: there is none
            return None
        if head != _head(content):
            self.drop(key, "is damaged")
            return None
        with suppress(OSError):  # it may be somebody else's
            os.utime(path)
        return content

    def drop(self, key: str, why: str) -> None:
        """Deletes a file that is of no use."""
        path = self.folder / (key + _PROGRAM)
        _log.warning("%s %s; its program is compiled anew.", path, why)
        with suppress(OSError):
            path.unlink()

    def write(self, key: str, content: bytes) -> None:
        """Keeps the content under the key, if that can be."""
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
            _log.log(self._level, "no compiled programs are kept in %s: %s", self.folder, error)

    def _make_room(self, size: int) -> None:
        """Deletes what was used longest ago, until `size` more bytes are within the limit.

        Counting takes a while where there are many files. Nothing is counted as long as this
        process wrote little of what there was room for, so that some processes may write at once.
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
        """(last use, bytes, path) of each file; what a killed process left is deleted."""
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
    """The cache that the flags ask for; None where it is off."""
    if not config.enable_compilation_cache.value:
        return None
    asked = config.compilation_cache_dir.value
    return _opened(asked, config.compilation_cache_max_size.value)


@functools.lru_cache(8)
def _opened(asked: str | None, limit: int) -> DiskCache | None:
    if asked is not None:
        return DiskCache(Path(asked).expanduser().absolute(), limit)
    folder = default_folder()
    # Nobody asked for it: that it cannot be written is no news.
    return None if folder is None else DiskCache(folder, limit, logging.INFO)


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Keeps compiled programs in this folder: sets the flag `compilation_cache_dir`."""
    config.compilation_cache_dir.set(os.fspath(path))


def reset_cache() -> None:
    """Looks at the folder anew at the next compilation, as after it was changed by others."""
    _opened.cache_clear()


def default_folder() -> Path | None:
    """`shardwise` in the user's cache directory; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # others are to be ignored, says the standard
        return Path(base) / "shardwise"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "shardwise"
    return None

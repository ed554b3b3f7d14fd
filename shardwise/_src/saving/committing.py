"""Atomic checkpoint commits, by one writer at a time: `begin`, `Writing`.

    writing = begin("save", place, overwrite=True)    # locks out other writers
    writing.place.put("w/c/0", data)
    writing.commit(manifest)                          # from here on it exists and is complete

On a file system, everything is written into a sibling folder, which is renamed at the end. In
object stores, which cannot rename, the manifest is written last; nothing counts as a checkpoint
without one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from shardwise._src.base.errors import CheckpointError
from shardwise._src.saving.digests import METADATA, groups
from shardwise._src.saving.manifest import FORMAT, read, some
from shardwise._src.saving.storage import MANIFEST, Place, found, remove, set_aside, sync, sync_all

CLAIM = "checkpoint.writer"  # for object stores: who is writing
REMOVING = 600.0  # seconds that a writer may take to remove the checkpoint it replaces
LOOKS = 100  # attempts to list a folder that other writers keep replacing
_OF_SYSTEMS = (".DS_Store", "Thumbs.db")  # files that operating systems create in any folder
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # on some network file systems


def begin(what: str, place: Place, overwrite: bool) -> Writing:
    """Begins to write a checkpoint; no other writer can write there while the result exists.

    Raises:
      CheckpointError: another writer is active there; something other than a checkpoint is there;
        or a checkpoint is there and `overwrite` is False.
      OSError: the location is not writable.
    """
    _check_free(what, place, overwrite)
    how = _begin_keys if place.folder is None else _begin_folder
    return how(what, place, overwrite)


def _check_free(what: str, place: Place, overwrite: bool) -> None:
    mode = None
    if place.folder is not None:
        with contextlib.suppress(OSError, ValueError):  # reported when the folder is created
            mode = place.folder.stat().st_mode
    if mode is not None and not stat.S_ISDIR(mode):
        kind = "file" if stat.S_ISREG(mode) else "device or socket"
        raise CheckpointError(
            f"{what}: {place.text} is a {kind}. Choose a folder for the checkpoint."
        )
    there, manifest, names = _contents(place)
    if manifest is None and (not names or (place.folder is None and CLAIM in names)):
        return
    if manifest is None or FORMAT.encode() not in manifest:
        has = f"a {MANIFEST} that another program wrote"
        if manifest is None:
            has = f"{some(names)}, but no {MANIFEST}"
        raise CheckpointError(
            f"{what}: {place.text} has {has}: it is not a checkpoint, so it is not overwritten. "
            "Remove it, or choose another folder."
        )
    if not overwrite:
        raise _is_there(what, place)
    others = _others(what, there)
    if others and found(place).get(MANIFEST) != manifest:  # replaced in the meantime
        return _check_free(what, place, overwrite)
    if others:
        raise CheckpointError(
            f"{what}: {place.text} has {some(others)} in addition to the checkpoint, which would "
            "be deleted with it. Move those files elsewhere, or choose another folder."
        )


def _contents(place: Place) -> tuple[Place, bytes | None, list[str]]:
    """Location, manifest and file names of a checkpoint.

    Retries if another writer replaces the checkpoint between these reads.
    """
    looks = 0
    while True:
        there = found(place)
        manifest, names = there.get(MANIFEST), list(there.names())
        whole = manifest is not None or not names or (there is place and MANIFEST not in names)
        if whole or looks == LOOKS:
            return there, manifest, names
        looks += 1


def _is_there(what: str, place: Place) -> CheckpointError:
    return CheckpointError(
        f"{what}: {place.text} already contains a checkpoint, and overwrite is False. Pass "
        "overwrite=True to replace it, or choose another folder."
    )


def _others(what: str, there: Place) -> list[str]:
    """Files that belong to something other than the checkpoint; none if its manifest is damaged."""
    try:
        folders = {entry.folder for entry in read(what, there).arrays}
    except CheckpointError:
        return []
    described = folders | groups(folders)

    def is_own(name: str) -> bool:
        parts = name.split("/")
        if parts[-1] in _OF_SYSTEMS or parts[-1].startswith(".nfs") or name in (MANIFEST, CLAIM):
            return True
        if parts[-1] == METADATA and "/".join(parts[:-1]) in described:
            return True
        tops = ["/".join(parts[:i]) for i, part in enumerate(parts) if part == "c"]
        return any([top in folders for top in tops])

    return sorted([name for name in there.files() if not is_own(name)])


@dataclass
class Writing:
    """A checkpoint being written.

    final: where it will be; place: where its files go until the commit.
    lock: of a folder.
    claim: the generation of the claim object, in an object store.
    """

    what: str
    final: Place
    place: Place
    lock: int | None = None
    claim: bytes = b""
    committed: bool = False

    def commit(self, manifest: bytes) -> None:
        """Publishes the checkpoint at its place, atomically.

        Raises:
          CheckpointError: the claim of this writer has been removed, so another one may be writing.
        """
        if self.place.folder is None and not self._holds_claim():
            raise CheckpointError(
                f"{self.what}: the claim of this writer at {self.final.text} was removed while "
                "it wrote, and another writer may be writing there. Nothing was saved. Save again, "
                "or choose another folder."
            )
        self.place.put(MANIFEST, manifest)
        if self.place.folder is None or self.final.folder is None:
            self.committed = True
            self.abandon()
            return
        sync_all([folder for folder, _, _ in os.walk(self.place.folder)])
        lock = _locked_when_done(self.what, self.final)
        try:
            self._replace(self.place.folder, self.final.folder)
        finally:
            _unlock(lock)
        self.abandon()

    def _replace(self, folder: Path, target: Path) -> None:
        """Replaces a folder with another one; the old one is set aside in the meantime."""
        before = set_aside(target)
        if target.exists():
            remove(before)
            os.rename(target, before)
        try:
            os.rename(folder, target)
        except OSError:
            if before.exists():
                os.rename(before, target)
            raise
        self.committed = True
        sync(target.parent)
        with contextlib.suppress(OSError):  # the next save removes it
            remove(before)

    def abandon(self) -> None:
        """Removes uncommitted files and releases the lock or claim. Committed files stay."""
        if self.place.folder is None:
            if self._holds_claim():  # else the files may belong to another writer
                _release(self.place) if self.committed else self.place.remove()
                self.claim = b""
            return
        try:
            if self.lock is not None and not self.committed:
                remove(self.place.folder)
        finally:
            _unlock(self.lock)
            self.lock = None

    def _holds_claim(self) -> bool:
        """Whether the claim is still that of this writer."""
        if self.claim:
            claim = self.place._result(self.place._opened().read(CLAIM))
            if claim.stamp.generation != self.claim:
                self.claim = b""
        return bool(self.claim)


def staging_place(place: Place) -> Place:
    """Where the files of a checkpoint are stored until the commit."""
    if place.folder is None:
        return place
    return place.moved(place.folder.with_name(f".{place.folder.name}.saving"))


def _begin_folder(what: str, place: Place, overwrite: bool) -> Writing:
    beside = staging_place(place)
    assert beside.folder is not None
    for _ in range(100):  # retry if the writer renames its folder in the meantime
        try:
            beside.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if beside.folder.is_file():
                raise
            continue
        lock = locked(beside.folder)
        if lock is None and not beside.folder.exists():
            continue
        if lock is None:
            raise _second_writer(what, place.text, "")
        try:
            if _is_same(lock, beside.folder):
                for entry in [*beside.folder.iterdir()]:  # left by a dead writer
                    remove(entry)
                if not overwrite and found(place).get(MANIFEST) is not None:
                    remove(beside.folder)
                    raise _is_there(what, place)  # another writer has just finished
                return Writing(what, place, beside, lock)
        except BaseException:
            _unlock(lock)
            raise
        _unlock(lock)
    raise _second_writer(what, place.text, "")


def locked(folder: Path, surely: bool = False) -> int | None:
    """Locks a folder for the lifetime of this process; None if another process has the lock.

    surely: whether to return None also if the file system has no locks: the state is unknown.
    """
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if surely or error.errno not in _NO_LOCKS:
            os.close(lock)
            return None
    return lock


def _locked_when_done(what: str, place: Place) -> int | None:
    """Locks the checkpoint at a place, once its writer has removed the previous one.

    Returns None if there is no checkpoint.
    """
    assert place.folder is not None
    end = time.monotonic() + REMOVING
    while place.folder.exists():
        lock = locked(place.folder)
        if lock is not None and _is_same(lock, place.folder):
            return lock
        _unlock(lock)
        if time.monotonic() > end:
            raise _second_writer(what, place.text, "")
        time.sleep(0.01)
    return None


def _unlock(lock: int | None) -> None:
    if lock is not None:
        with contextlib.suppress(OSError):  # on file systems without locks
            fcntl.flock(lock, fcntl.LOCK_UN)  # also for processes forked in the meantime
        os.close(lock)


def _is_same(lock: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder))
    except FileNotFoundError:
        return False


def _begin_keys(what: str, place: Place, overwrite: bool) -> Writing:
    store = place._opened()
    claim = place._result(store.read(CLAIM))
    if claim.state == "value":
        raise _second_writer(what, place.text, f", since {_who(claim.value)}")
    about = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
    done = place._result(
        store.write(CLAIM, json.dumps(about).encode(), if_equal=claim.stamp.generation)
    )
    if not done.generation:
        raise _second_writer(what, place.text, "")
    try:
        if not overwrite and place.get(MANIFEST) is not None:
            raise _is_there(what, place)  # another writer has just finished
        for name in [MANIFEST, *place.names()]:
            if name != CLAIM:
                place._result(store.write(name, None))
    except BaseException:
        _release(place)
        raise
    return Writing(what, place, place, claim=done.generation)


def _release(place: Place) -> None:
    """Releases the claim on a place in an object store."""
    place._result(place._opened().write(CLAIM, None))


def _who(claim: bytes) -> str:
    try:
        about = json.loads(claim)
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(about["time"])))
        return f"{when}: process {int(about['process'])} on {about['host']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown time"


def _second_writer(what: str, place: str, more: str) -> CheckpointError:
    end = " Wait until it is done, or choose another folder."
    if more:
        end = f" If that writer is dead, remove the files at {place}."
    return CheckpointError(f"{what}: another writer is writing to {place}{more}.{end}")


def clean(folder: Path, names: re.Pattern[str]) -> None:
    """Removes the remains of dead writers from a folder of checkpoints.

    names: pattern of checkpoint names; other entries stay.
    """
    for entry in sorted(folder.iterdir()):
        name, _, end = entry.name[1:].rpartition(".")
        if not entry.name.startswith(".") or not names.match(name) or not entry.is_dir():
            continue
        if end in ("saving", "removed") or (end == "before" and (folder / name).exists()):
            lock = locked(entry, surely=True)
            if lock is not None:  # its writer has exited
                try:
                    remove(entry)
                finally:
                    _unlock(lock)

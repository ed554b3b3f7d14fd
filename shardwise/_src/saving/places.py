"""Where a checkpoint lies, and how it becomes whole at once: `Place`, `Writing`.

    place = Place.at("what", "/ckpt/step_10")     # or gs://bucket/run, s3://..., memory://...
    writing = begin(place, overwrite=True)        # nobody else may write there now
    writing.place.put("w/c/0", data)
    writing.commit(manifest)                      # from here on it is there, and whole

On the file system all is written into a sibling folder, which is renamed at the end. In other
stores, which cannot rename, the manifest is written last, and without one there is no checkpoint.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.words import shown
from shardwise._src.saving.arrays import store_context, tensorstore

MANIFEST = "checkpoint.json"
_CLAIM = "checkpoint.writer"  # in stores without folders: who is writing
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # on some network file systems


@dataclass(frozen=True)
class Place:
    """A folder, or what stands for one in a store of TensorStore.

    text: as the user says it; folder: on the file system, else None; store: TensorStore's
    specification of the key-value store, whose path ends in a slash.
    """

    text: str
    folder: Path | None
    store: dict[str, Any]

    @staticmethod
    def at(what: str, path: str | PathLike[str]) -> Place:
        """The place at a path or an address.

        Raises:
          TypeError: it is neither text nor a path.
          ValueError: TensorStore knows no such address.
        """
        if not isinstance(path, str | bytes | PathLike):
            raise TypeError(f"{what}: path must be a text or a path; got {shown(path)}.")
        text = os.fsdecode(path)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if not _URL.match(text):
            folder = Path(os.path.abspath(os.path.expanduser(text)))
            return Place(str(folder), folder, {"driver": "file", "path": f"{folder}/"})
        try:
            store = tensorstore().KvStore.Spec(text.rstrip("/") + "/").to_json()
        except ValueError as error:
            raise ValueError(
                f"{what}: path is {text!r}, which is no address of a store that TensorStore knows, "
                f"such as gs://bucket/folder, s3://bucket/folder or memory://folder: {error}"
            ) from None
        return Place(text.rstrip("/"), None, {**store, **_of_environment(store)})

    def __truediv__(self, name: str) -> Place:
        store = {**self.store, "path": f"{self.store.get('path', '')}{name}/"}
        return Place(f"{self.text}/{name}", self.folder and self.folder / name, store)

    def get(self, name: str) -> bytes | None:
        """The bytes under a name; None if there are none."""
        if self.folder is not None:
            try:
                return (self.folder / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        found = self._result(self._opened().read(name))
        return bytes(found.value) if found.state == "value" else None

    def put(self, name: str, data: bytes) -> None:
        """Writes bytes under a name, and waits until they are kept."""
        if self.folder is None:
            self._result(self._opened().write(name, data))
            return
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def names(self) -> list[str]:
        """What is there: on the file system the names in the folder, elsewhere all names."""
        if self.folder is not None:
            return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        return sorted(name.decode() for name in self._result(self._opened().list()))

    def remove(self) -> None:
        """Removes all of it. On the file system it is out of sight first."""
        if self.folder is None:
            store = self._opened()
            self._result(store.write(MANIFEST, None))  # from here on it is not whole
            self._result(store.delete_range(tensorstore().KvStore.KeyRange()))
            return
        there = found(self).folder
        if there is not None and there.is_dir():
            gone = self.folder.with_name(f".{self.folder.name}.removed")
            _remove(gone)
            os.rename(there, gone)
            _remove(gone)

    def size_of(self, name: str) -> int | None:
        """The size of a file in bytes; None where there is none, or no file system."""
        try:
            return None if self.folder is None else (self.folder / name).stat().st_size
        except OSError:
            return None

    def _opened(self) -> Any:
        return self._result(tensorstore().KvStore.open(self.store, context=store_context()))

    def _result(self, asked: Any) -> Any:
        """What a store answers.

        Raises:
          OSError: it refuses, or is not there.
        """
        try:
            return asked.result()
        except (ValueError, OSError, NotImplementedError) as error:
            answer = str(error).partition(" [")[0]  # and then the whole of an HTTP response
            raise OSError(
                f"{self.text}: the store answers {answer}. Look whether its bucket is there, and "
                "whether this program may use it."
            ) from error


def _of_environment(store: dict[str, Any]) -> dict[str, Any]:
    """What the environment says of objects of S3: TensorStore would ask Amazon's only, and look for
    files of credentials before those of the environment."""
    said: dict[str, Any] = {}
    if store["driver"] != "s3":
        return said
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        said["aws_credentials"] = {"type": "environment"}
    url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if url:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        said |= {"endpoint": url, "aws_region": region or "us-east-1"}
    return said


def found(place: Place) -> Place:
    """Where a checkpoint is read from: also the one before, if a new one was to take its place and
    its writer was ended between the two renames."""
    if place.folder is None or place.folder.exists():
        return place
    before = _set_aside(place.folder)
    if not before.is_dir():
        return place
    return Place(place.text, before, {"driver": "file", "path": f"{before}/"})


# ------------------------------------------------------------------------------------- writing


def begin(what: str, place: Place, overwrite: bool) -> Writing:
    """Begins to write at a place; no other writer can, as long as this one lives.

    Raises:
      CheckpointError: another one is writing there; something else than a checkpoint is there; or
        a checkpoint is, and `overwrite` is False.
    """
    _check_free(what, place, overwrite)
    return _begin_keys(what, place) if place.folder is None else _begin_folder(what, place)


def _check_free(what: str, place: Place, overwrite: bool) -> None:
    if place.folder is not None and place.folder.is_file():
        raise CheckpointError(f"{what}: {place.text} is a file. Name a folder for the checkpoint.")
    there = place.names()
    if not there or there == [_CLAIM]:
        return
    if MANIFEST not in there and _CLAIM not in there:
        some = ", ".join([*there[:3], "..."] if len(there) > 3 else there)
        raise CheckpointError(
            f"{what}: {place.text} has {some}, and no {MANIFEST}: it is no checkpoint, and is "
            "therefore not overwritten. Remove it, or name another folder."
        )
    if MANIFEST in there and not overwrite:
        raise CheckpointError(
            f"{what}: {place.text} has a checkpoint, and overwrite is False. Name another folder."
        )


class Writing:
    """A checkpoint that is being written.

    place: where its files go meanwhile.
    """

    def __init__(self, final: Place, place: Place, lock: int | None):
        self.place = place
        self._final = final
        self._lock = lock
        self._committed = False
        self._claimed = place.folder is None

    def commit(self, manifest: bytes) -> None:
        """Makes it the checkpoint at the place, all of it at once."""
        self.place.put(MANIFEST, manifest)
        if self.place.folder is None or self._final.folder is None:
            self._committed = True
            self._unclaim()
            return
        for folder, _, _ in os.walk(self.place.folder):
            sync(folder)
        target, before = self._final.folder, _set_aside(self._final.folder)
        if target.exists():
            _remove(before)
            os.rename(target, before)
        os.rename(self.place.folder, target)
        self._committed = True
        sync(target.parent)
        _remove(before)
        self._unlock()

    def abandon(self) -> None:
        """Removes what has been written, and lets others write. What is committed stays."""
        if self.place.folder is None:
            self._unclaim() if self._committed else self.place.remove()
            return
        try:
            if self._lock is not None and not self._committed:
                _remove(self.place.folder)
        finally:
            self._unlock()

    def _unclaim(self) -> None:
        if self._claimed:  # else the claim that is there may be another writer's
            _release(self.place)
            self._claimed = False

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def meanwhile(place: Place) -> Place:
    """Where the files of a checkpoint lie while it is written."""
    if place.folder is None:
        return place
    beside = place.folder.with_name(f".{place.folder.name}.saving")
    return Place(place.text, beside, {"driver": "file", "path": f"{beside}/"})


def _set_aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.before")


def _begin_folder(what: str, place: Place) -> Writing:
    beside = meanwhile(place)
    assert beside.folder is not None
    for _ in range(100):  # a folder that its writer renames meanwhile is looked for again
        beside.folder.mkdir(parents=True, exist_ok=True)
        lock = locked(beside.folder)
        if lock is None:
            raise _second_writer(what, place.text, "")
        try:
            if _is_same(lock, beside.folder):
                for entry in [*beside.folder.iterdir()]:  # of a writer that is dead
                    _remove(entry)
                return Writing(place, beside, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    raise _second_writer(what, place.text, "")


def locked(folder: Path, surely: bool = False) -> int | None:
    """Takes hold of a folder, for as long as this process lives; None if another has it.

    surely: whether to give None, too, where the file system has no locks, and nobody can know.
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


def _is_same(lock: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), os.stat(folder))
    except FileNotFoundError:
        return False


def _begin_keys(what: str, place: Place) -> Writing:
    store = place._opened()
    claim = place._result(store.read(_CLAIM))
    if claim.state == "value":
        raise _second_writer(what, place.text, f", since {_who(claim.value)}")
    about = {"host": socket.gethostname(), "process": os.getpid(), "time": time.time()}
    done = place._result(
        store.write(_CLAIM, json.dumps(about).encode(), if_equal=claim.stamp.generation)
    )
    if not done.generation:
        raise _second_writer(what, place.text, "")
    try:
        for name in [MANIFEST, *place.names()]:
            if name != _CLAIM:
                place._result(store.write(name, None))
    except BaseException:
        _release(place)
        raise
    return Writing(place, place, None)


def _release(place: Place) -> None:
    """Has others write to a place in a store without folders."""
    place._result(place._opened().write(_CLAIM, None))


def _who(claim: bytes) -> str:
    try:
        about = json.loads(claim)
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(about["time"])))
        return f"{when}: process {int(about['process'])} on {about['host']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown time"


def _second_writer(what: str, place: str, more: str) -> CheckpointError:
    end = (
        f" If that one is dead, remove what is at {place}." if more else
        " Wait until it is done, or name another folder."
    )
    return CheckpointError(f"{what}: another writer is writing to {place}{more}.{end}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=False)
    else:
        path.unlink(missing_ok=True)


def sync(folder: str | Path) -> None:
    """Has the names in a folder survive a failure of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def clean(folder: Path) -> None:
    """Removes what dead writers have left in a folder of checkpoints."""
    for entry in sorted(folder.iterdir()):
        if not entry.name.startswith(".") or not entry.is_dir():
            continue
        name, _, end = entry.name[1:].rpartition(".")
        if end in ("saving", "removed") or (end == "before" and (folder / name).exists()):
            lock = locked(entry, surely=True)
            if lock is not None:  # its writer is gone
                try:
                    _remove(entry)
                finally:
                    os.close(lock)

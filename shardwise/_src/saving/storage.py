"""Storage locations of checkpoints: `Place`, a folder or a prefix in an object store.

    place = Place.at("what", "/ckpt/step_10")     # or gs://bucket/run, s3://..., memory://...
    place.put("w/zarr.json", data)
    place.get("w/zarr.json")                      # None if it is absent

TensorStore retries requests for minutes if a store does not answer. Each request therefore has a
deadline (the option `store_timeout_secs`), and the error then names the store.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from shardwise._src.base.config import store_timeout_secs
from shardwise._src.messages.formatting import short_repr
from shardwise._src.runtime.threads import future_of
from shardwise._src.saving.arrays import store_context, tensorstore
from shardwise._src.saving.chunk_files import in_groups, in_thread

MANIFEST = "checkpoint.json"
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ELSEWHERE = "Choose a folder that this program may write to."
_ADVICE = {
    errno.ENOSPC: "Free space on that disk, or choose a folder on another one.",
    errno.EDQUOT: "Free space within the quota, or choose a folder on another disk.",
    errno.EFBIG: "Raise the file size limit (`ulimit -f`), or choose a folder on a file "
    "system that allows larger ones.",
    errno.EIO: "Look at the system log, or choose a folder on another disk.",
}
_GCS_URL = "TENSORSTORE_GCS_HTTP_URL"  # the variable that points TensorStore to another store
_SLOWEST = 1 << 20  # assumed minimum bandwidth of a store, in bytes per second
_FAILURES = (TimeoutError, ValueError, OSError, NotImplementedError)  # of requests to a store
_AT_A_TIME = 128 << 20  # bytes that may be in flight in addition to those of a request
_MANY, _SYNCING = 64, 16  # folders that are synced in threads; the threads


@dataclass(frozen=True)
class Place:
    """A folder, or its equivalent in a TensorStore key-value store.

    text: as the user wrote it; folder: on the file system, else None; store: TensorStore's
    specification of the key-value store, whose path ends in a slash; seconds: the deadline for an
    answer of the store.
    """

    text: str
    folder: Path | None
    store: dict[str, Any]
    seconds: float = 0.0

    @staticmethod
    def at(what: str, path: str | PathLike[str]) -> Place:
        """The place at a path or an address.

        Raises:
          TypeError: it is neither a string nor a path.
          ValueError: a folder cannot be there, or TensorStore does not support the address.
        """
        if not isinstance(path, str | bytes | PathLike):
            raise TypeError(f"{what}: path must be a string or a path; got {short_repr(path)}.")
        text = os.fsdecode(path)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        if not _URL.match(text):
            folder = Path(os.path.abspath(os.path.expanduser(text)))
            if "\0" in text or not folder.name:
                why = "contains a null character" if "\0" in text else "is the root folder"
                raise ValueError(f"{what}: path is {text!r}, which {why}. Choose another folder.")
            text = str(folder)
            if folder.is_symlink():  # the link must still lead to its target
                folder = Path(os.path.realpath(folder))
            return Place(text, folder, {"driver": "file", "path": f"{folder}/"})
        try:
            store = tensorstore().KvStore.Spec(text.rstrip("/") + "/").to_json()
        except ValueError as error:
            raise ValueError(
                f"{what}: path is {text!r}, which is not an address of an object store that "
                "TensorStore knows, such as gs://bucket/folder, s3://bucket/folder or "
                f"memory://folder: {error}"
            ) from None
        if store["driver"] == "s3":
            store |= _of_environment()
        return Place(text.rstrip("/"), None, store, store_timeout_secs.value)

    def __truediv__(self, name: str) -> Place:
        store = {**self.store, "path": f"{self.store.get('path', '')}{name}/"}
        folder = self.folder and self.folder / name
        return Place(f"{self.text}/{name}", folder, store, self.seconds)

    def moved(self, folder: Path) -> Place:
        """The place of another folder, which messages do not name."""
        return replace(self, folder=folder, store={"driver": "file", "path": f"{folder}/"})

    def get(self, name: str) -> bytes | None:
        """The bytes under a name; None if absent."""
        if self.folder is not None:
            try:
                return (self.folder / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        found = self._result(self._opened().read(name))
        return bytes(found.value) if found.state == "value" else None

    def put(self, name: str, data: bytes) -> None:
        """Writes bytes under a name, and waits until they are durable."""
        if self.folder is None:
            self._result(self._opened().write(name, data), len(data))
            return
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    async def upload(self, name: str, data: bytes) -> None:
        """`put` into an object store, for one of many concurrent writes."""
        await self._awaited(self._opened().write(name, data), len(data))

    async def put_all(self, files: Mapping[str, bytes]) -> None:
        """`put` of many files."""

        def put(group: Sequence[tuple[str, bytes]]) -> None:
            for name, data in group:
                self.put(name, data)

        async with asyncio.TaskGroup() as tasks:
            if self.folder is None:
                for name, data in files.items():
                    tasks.create_task(self.upload(name, data))
            else:
                for group in in_groups(files.items(), lambda file: len(file[1])):
                    tasks.create_task(in_thread(put, group))

    async def download(self, name: str, size: int) -> bytes | None:
        """`get` from an object store, for one of many concurrent reads.

        size: the expected number of bytes, which extends the deadline.
        """
        found = await self._awaited(self._opened().read(name), size)
        return bytes(found.value) if found.state == "value" else None

    async def get_all(self, names: Iterable[str], use: Callable[[str, bytes | None], None]) -> None:
        """`get` of many small files. use: called with the name and the contents of each."""

        def get(group: Sequence[str]) -> None:
            for name in group:
                use(name, self.get(name))

        async def download(name: str) -> None:
            use(name, await self.download(name, 0))

        async with asyncio.TaskGroup() as tasks:
            if self.folder is None:
                for name in names:
                    tasks.create_task(download(name))
            else:
                for group in in_groups(names, lambda _: 0):
                    tasks.create_task(in_thread(get, group))

    def drop(self, name: str) -> None:
        """Removes the object or file with a name."""
        if self.folder is None:
            self._result(self._opened().write(name, None))
        else:
            (self.folder / name).unlink()

    def names(self) -> list[str]:
        """The contents: names in the folder on a file system, all keys in an object store."""
        if self.folder is not None:
            try:
                return sorted(os.listdir(self.folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name.decode() for name in self._result(self._opened().list()))

    def files(self) -> list[str]:
        """Relative paths of all files."""
        top = self.folder
        if top is None:
            return self.names()
        walk = [(Path(at).relative_to(top), names) for at, _, names in os.walk(top)]
        return [(at / name).as_posix() for at, names in walk for name in names]

    def remove(self) -> None:
        """Removes the checkpoint. On a file system it first becomes invisible."""
        if self.folder is None:
            store = self._opened()
            self._result(store.write(MANIFEST, None))  # from here on the checkpoint is incomplete
            count = len(self.names())
            self._result(store.delete_range(tensorstore().KvStore.KeyRange()), count << 16)
            return
        there = found(self).folder
        if there is not None and there.is_dir():
            gone = self.folder.with_name(f".{self.folder.name}.removed")
            remove(gone)
            os.rename(there, gone)
            remove(gone)

    def size_of(self, name: str) -> int | None:
        """The size of a file in bytes; None if absent or not on a file system."""
        try:
            return None if self.folder is None else (self.folder / name).stat().st_size
        except OSError:
            return None

    def _opened(self) -> Any:
        return self._result(tensorstore().KvStore.open(self.store, context=store_context()))

    def _result(self, asked: Any, size: int = 0) -> Any:
        """A store's answer to a request. size: bytes to write.

        Raises:
          TimeoutError: the store does not answer in time.
          OSError: the store rejects the request or is unreachable.
        """
        seconds = self._seconds(size)
        try:
            return asked.result(timeout=seconds)
        except _FAILURES as error:
            asked.cancel()
            raise self._failure(error, seconds) from None

    async def _awaited(self, asked: Any, size: int) -> Any:
        """`_result` for one of many requests that share a connection."""
        seconds = self._seconds(size + _AT_A_TIME)
        try:
            async with asyncio.timeout(seconds):
                return await asked
        except _FAILURES as error:
            raise self._failure(error, seconds) from None

    def _seconds(self, size: int) -> float:
        return self.seconds + size / _SLOWEST

    def _failure(self, error: Exception, seconds: float) -> OSError:
        if not isinstance(error, TimeoutError):
            answer = str(error).partition(" [")[0]  # the full HTTP response follows
            return OSError(
                f"{self.text}: the store answered {answer}. Check that its bucket exists, and that "
                "this program may access it."
            )
        address, hint = self._endpoint()
        return TimeoutError(
            f"{self.text}: the store at {address} has not answered within {seconds:.3g} s. Check "
            f"that this machine can reach it{hint}; increase store_timeout_secs to allow more time."
        )

    def _endpoint(self) -> tuple[str, str]:
        """The address that requests go to, and a hint at the variable that selects another."""
        hint = ", and that {}, if set, names the right endpoint"
        if self.store["driver"] == "s3":
            amazon = f"https://{self.store.get('bucket')}.s3.amazonaws.com"
            return self.store.get("endpoint") or amazon, hint.format("AWS_ENDPOINT_URL")
        if self.store["driver"] == "gcs":
            google = "https://storage.googleapis.com"
            return os.environ.get(_GCS_URL) or google, hint.format(_GCS_URL)
        return self.text, ""


def _of_environment() -> dict[str, Any]:
    """S3 settings from the environment: by default TensorStore would contact only Amazon, and
    search for credential files before the environment variables."""
    said: dict[str, Any] = {}
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        said["aws_credentials"] = {"type": "environment"}
    url = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if url:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        said |= {"endpoint": url, "aws_region": region or "us-east-1"}
    return said


def found(place: Place) -> Place:
    """The location to read a checkpoint from: the previous checkpoint if a new one was to replace
    it and its writer was killed between the two renames."""
    if place.folder is None or place.folder.exists():
        return place
    before = set_aside(place.folder)
    return place.moved(before) if before.is_dir() else place


def set_aside(folder: Path) -> Path:
    """The location of a checkpoint while another one replaces it."""
    return folder.with_name(f".{folder.name}.before")


def remove(path: Path) -> None:
    """Removes a file, or a folder with its contents, if present."""
    while path.is_dir() and not path.is_symlink():
        with suppress(FileNotFoundError):  # another process is removing it, too
            shutil.rmtree(path)
    path.unlink(missing_ok=True)


def sync(folder: str | Path) -> None:
    """Makes the directory entries of a folder survive a machine failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folders: Sequence[str | Path]) -> None:
    """`sync` of folders; of many, in threads: disks complete concurrent syncs together."""
    if len(folders) < _MANY:
        for folder in folders:
            sync(folder)
        return
    parts = [folders[i::_SYNCING] for i in range(_SYNCING)]
    running = [future_of(lambda part=part: [sync(f) for f in part], "sync") for part in parts]
    wait(running)  # also if one fails: no folder may be removed while others are synced
    for syncing in running:
        syncing.result()


def not_saved(place: Place, why: str, error: Exception) -> OSError:
    """The error for a failed save, with the errno if the system provided one."""
    end = "The previous contents are unchanged."
    if place.folder is None:
        end = f"There is no checkpoint at {place.text} now."
    number = getattr(error, "errno", None)
    advice = "" if number is None else f" {_ADVICE.get(number, _ELSEWHERE)}"
    raised = OSError(f"{why}. {end}{advice}")
    raised.errno = number
    return raised


class explained(nullcontext[None]):
    """Re-raises system errors within a block as errors of `what` that name the checkpoint.

    doing: the failed action, such as "its folder could not be created".
    """

    def __init__(self, what: str, place: Place, doing: str):
        super().__init__()
        self._what, self._place, self._doing = what, place, doing

    def __exit__(self, *raised: Any) -> None:
        place, error = self._place, raised[1]
        # Without `strerror` it is an error raised by this library.
        if isinstance(error, OSError) and error.strerror is not None and place.folder is not None:
            why = f"{self._what}: {place.text} could not be written: {self._doing}: {error}"
            raise not_saved(place, why, error) from None

"""Digests of the files of a checkpoint, which its manifest lists.

    digests = {"zarr.json": "9a3c51f0", "w/zarr.json": "07b1d2aa", "w/c/0/0": "5e1f0c77"}

A chunk has its checksum behind its values, so that a changed byte is found. But the file of another
array, or of another checkpoint, under the same name is intact, too. The digest of a chunk is the
same checksum, CRC-32C of its values, which writing and reading compute anyway; that of a zarr.json
is the checksum of its text. Process 0 writes the manifest: the other processes leave their digests
in files, on the storage that all share.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from shardwise._src.base.errors import CheckpointError
from shardwise._src.saving.files import checksum, in_thread
from shardwise._src.saving.storage import Place

Digests = Mapping[str, str] | None  # None: of a checkpoint that has none
METADATA = "zarr.json"
_OF_PROCESS = "checkpoint.files"  # and a process's number: its digests, until the manifest has them


class WrongFile(ValueError):
    """A file is not the one that was written: the end of a sentence about it."""


def hexadecimal(found: int) -> str:
    """A checksum as a manifest has it."""
    return f"{found:08x}"


def digest_of(data: bytes) -> str:
    """The digest of a file that is no chunk."""
    return hexadecimal(checksum()(data))


def check_file(digests: Digests, name: str, found: int) -> None:
    """Compares a chunk's checksum with the digest of the file.

    Raises:
      WrongFile: it is another one, or the file has none.
    """
    if digests is None:
        return
    if name not in digests:
        raise WrongFile("is not among the files that the manifest lists")
    if digests[name] != hexadecimal(found):
        raise WrongFile(
            "is intact, but not the one that was saved there: it belongs to another array or to "
            "another checkpoint"
        )


async def check_metadata(what: str, place: Place, digests: Digests) -> None:
    """Reads all that the checkpoint says to other readers of Zarr, and compares the digests.

    Raises:
      CheckpointError: a file is missing, or is another one.
    """
    names = [name for name in digests or () if name.rpartition("/")[2] == METADATA]
    if place.folder is not None:
        await in_thread(_check_texts, what, place, digests, names)
        return

    async def check(name: str) -> None:
        _check_text(what, place, digests, name, await place.download(name, 0))

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(check(name))


def _check_texts(what: str, place: Place, digests: Any, names: Iterable[str]) -> None:
    for name in names:
        _check_text(what, place, digests, name, place.get(name))


def _check_text(what: str, place: Place, digests: Any, name: str, data: bytes | None) -> None:
    if data is not None and digest_of(data) == digests[name]:
        return
    why = "is missing" if data is None else "has other bytes than were written"
    raise CheckpointError(
        f"{what}: {place.text} is damaged: the file {name} {why}. Restore another checkpoint."
    )


# ---------------------------------------------------------------------------------- of processes


def leave(place: Place, process: int, digests: Mapping[str, str]) -> None:
    """Writes the digests of the files that a process has written to where process 0 reads them."""
    place.put(f"{_OF_PROCESS}.{process}", json.dumps(digests).encode())


def collect(place: Place, count: int) -> dict[str, str]:
    """The digests that all processes but the first have left, which are removed.

    Raises:
      CheckpointError: those of a process are not there.
    """
    found: dict[str, str] = {}
    for process in range(1, count):
        name = f"{_OF_PROCESS}.{process}"
        data = place.get(name)
        if data is None:
            raise CheckpointError(
                f"save: process 0 does not see what process {process} has written to {place.text}: "
                "all processes write one checkpoint. Name a folder on storage that they share."
            )
        found |= json.loads(data)
        place.drop(name)
    return found

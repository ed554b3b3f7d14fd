"""Digests of the files of a checkpoint, which its manifest lists.

    digests = {"zarr.json": "9a3c51f0", "w/zarr.json": "07b1d2aa", "w/c/0/0": "5e1f0c77"}

A chunk's file ends with the checksum of its values, which detects a changed byte. It does not
detect the intact file of another array or checkpoint under the same name. A chunk's digest is the
same checksum, CRC-32C of the values, which reads and writes compute anyway; the digest of a
zarr.json is the checksum of its contents. Process 0 writes the manifest: other processes leave
their digests in files on the shared storage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from shardwise._src.base.errors import CheckpointError
from shardwise._src.saving.chunk_files import checksum
from shardwise._src.saving.storage import Place

Digests = Mapping[str, str] | None  # None: the checkpoint has no digests
METADATA = "zarr.json"
_OF_PROCESS = "checkpoint.files"  # plus a process index: digests until the manifest exists


def groups(folders: Iterable[str]) -> set[str]:
    """The folders above those of arrays, which Zarr calls groups; "" is the checkpoint itself."""
    return {"/".join(f.split("/")[:i]) for f in folders for i in range(f.count("/") + 1)} | {""}


class WrongFile(ValueError):
    """A file is not the one that was written: the tail of an error message about it."""


def hexadecimal(found: int) -> str:
    """A checksum as stored in a manifest."""
    return f"{found:08x}"


def digest_of(data: bytes) -> str:
    """The digest of a file that is not a chunk."""
    return hexadecimal(checksum()(data))


def check_file(digests: Digests, name: str, found: int) -> None:
    """Compares a chunk's checksum with the digest of its file.

    Raises:
      WrongFile: they differ, or the file has no digest.
    """
    if digests is None:
        return
    if name not in digests:
        raise WrongFile("is not listed in the manifest")
    if digests[name] != hexadecimal(found):
        raise WrongFile(
            "is intact, but not the file that was saved there: it belongs to another array or "
            "checkpoint"
        )


async def check_metadata(what: str, place: Place, digests: Digests) -> None:
    """Reads all Zarr metadata files of a checkpoint and compares their digests.

    Raises:
      CheckpointError: a file is missing or is a different one.
    """

    files = {} if digests is None else digests

    def check(name: str, data: bytes | None) -> None:
        if data is None or digest_of(data) != files[name]:
            why = "is missing" if data is None else "does not have the contents that were written"
            raise CheckpointError(
                f"{what}: {place.text} is damaged: the file {name} {why}. Restore another "
                "checkpoint."
            )

    names = [name for name in files if name.rpartition("/")[2] == METADATA]
    await place.get_all(names, check)


# ---------------------------------------------------------------------------------- of processes


def leave(place: Place, process: int, digests: Mapping[str, str]) -> None:
    """Writes the digests of this process's files to where process 0 reads them."""
    place.put(f"{_OF_PROCESS}.{process}", json.dumps(digests).encode())


def collect(place: Place, count: int) -> dict[str, str]:
    """The digests left by all processes except process 0; removes their files.

    Raises:
      CheckpointError: the digests of a process are missing.
    """
    found: dict[str, str] = {}
    for process in range(1, count):
        name = f"{_OF_PROCESS}.{process}"
        data = place.get(name)
        if data is None:
            raise CheckpointError(
                f"save: process 0 does not see the files that process {process} wrote to "
                f"{place.text}: all processes write one checkpoint. Choose a folder on storage "
                "shared by all."
            )
        found |= json.loads(data)
        place.drop(name)
    return found

"""TensorStore specifications (dicts) of where arrays are stored.

    get_tensorstore_spec("/ckpt/arrays/0", arr=x)
    # {'driver': 'zarr3', 'kvstore': {'driver': 'ocdbt', ...}, 'metadata': {'shape': ..., ...}}

With `ocdbt`, the arrays of a folder share one database, keyed by the last component of the path.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from shardwise._src.arrays.array import Array

FILE_BYTES = 2 << 30  # maximum size of a chunk, if it can be split
Spec = dict[str, Any]
_REMOTE = {"gs": "gcs", "s3": "s3"}  # scheme of an address → TensorStore's driver


def get_tensorstore_spec(
    ckpt_path: str | PathLike[str],
    ocdbt: bool = True,
    process_idx: int | None = None,
    arr: Any = None,
    driver: str = "zarr3",
) -> Spec:
    """The TensorStore specification of an array at a path.

    Args:
      ckpt_path: absolute, or an address `gs://bucket/…` or `s3://bucket/…`.
      ocdbt: whether the arrays of a folder share one database; relative paths are then rejected.
      process_idx: of a process that writes into a separate folder, `process_N`, next to the path.
      arr: an array, whose shape, dtype and chunking are added to the specification.
      driver: "zarr3" or "zarr".

    Raises:
      ValueError: the path is not usable in this way.
    """
    path = re.sub(r"^(gs|s3):/", r"\1://", os.path.normpath(str(ckpt_path)))
    folder, name = os.path.split(path)
    if process_idx is not None:
        folder = os.path.join(folder, f"process_{process_idx}")
    store = _kvstore(folder if ocdbt else os.path.join(folder, name), path)
    if ocdbt:
        if store["driver"] == "file" and not os.path.isabs(folder):
            raise ValueError(
                f"get_tensorstore_spec: ckpt_path must be absolute; got {str(ckpt_path)!r}."
            )
        store = {"driver": "ocdbt", "base": store, "path": name}
    spec: Spec = {"driver": driver, "kvstore": store}
    if arr is not None:
        spec["metadata"] = metadata(arr, driver)
    return spec


def serialization_spec(
    ckpt_path: str | PathLike[str],
    ocdbt: bool = False,
    process_idx: int | None = None,
    arr: Any = None,
    driver: str = "zarr",
) -> Spec:
    """`get_tensorstore_spec` with a separate folder for each array, in the older format."""
    return get_tensorstore_spec(ckpt_path, ocdbt, process_idx, arr, driver)


def _kvstore(place: str, asked: str) -> Spec:
    scheme, _, rest = place.partition("://")
    if scheme not in _REMOTE or not rest:
        return {"driver": "file", "path": place}
    bucket, slash, inside = rest.partition("/")
    if not slash or not bucket:
        raise ValueError(
            "get_tensorstore_spec: ckpt_path must name a bucket and a path within it, as in "
            f"{scheme}://bucket/folder/name; got {asked!r}."
        )
    return {"driver": _REMOTE[scheme], "bucket": bucket, "path": inside}


def metadata(arr: Any, driver: str = "zarr3", file_bytes: int = FILE_BYTES) -> Spec:
    """An array's metadata: its shape, its dtype, and its chunks, which are its shards, or pieces of
    them if the shards are large."""
    shape = tuple(arr.shape)
    local = arr.sharding.shard_shape(shape) if isinstance(arr, Array) else shape
    if driver == "zarr":
        return {
            "compressor": {"id": "zstd"},
            "shape": list(shape),
            "chunks": [max(1, n) for n in local],
        }
    if driver != "zarr3":
        raise ValueError(f"get_tensorstore_spec: driver must be 'zarr3' or 'zarr'; got {driver!r}.")
    chunks = chunk_shape(local, arr.dtype.itemsize, file_bytes)
    return {
        "codecs": [],
        "shape": list(shape),
        "data_type": arr.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
    }


def chunk_shape(shape: Sequence[int], itemsize: int, file_bytes: int = FILE_BYTES) -> list[int]:
    """Splits a shard into equal chunks of about `file_bytes`, at most a tenth more.

    The dimension with the smallest factor is split first.
    """
    found = [max(1, n) for n in shape]
    while math.prod(found) * itemsize > 1.1 * file_bytes:
        factors = [(_smallest_factor(n), i) for i, n in enumerate(found) if n > 1]
        if not factors:
            break
        factor, i = min(factors)
        found[i] //= factor
    return found


def _smallest_factor(n: int) -> int:
    return next((k for k in range(2, math.isqrt(n) + 1) if n % k == 0), n)


def is_tensorstore_spec_leaf(leaf: Any) -> bool:
    """Whether this is a specification or None, within a pytree of them."""
    return leaf is None or (isinstance(leaf, dict) and ("driver" in leaf or "kvstore" in leaf))


def merge_nested_ts_specs(dict1: Spec, dict2: Spec | None) -> Spec:
    """Merges a second specification into the first; `kvstore` is merged key by key."""
    if dict2 is None:
        return dict1
    kvstore = {**dict1.get("kvstore", {}), **dict2.get("kvstore", {})}
    return {**dict1, **dict2, "kvstore": kvstore}


def verify_tensorstore_spec(
    spec: Spec, arr: Any, path: str | PathLike[str], ocdbt: bool, check_metadata: bool = True
) -> None:
    """Raises ValueError if a specification does not match an array or has a different path.

    arr: may be None if `check_metadata` is False.
    """
    what = "array_serialization"
    store = spec.get("kvstore", {})
    if ocdbt and store.get("driver") != "ocdbt":
        raise ValueError(f"{what}: the arrays of a checkpoint share a database: the driver of "
                         f"kvstore must be 'ocdbt'; got {store.get('driver')!r}.")  # fmt: skip
    if check_metadata:
        _check_metadata(what, spec, arr)
    found = store["base"]["path"] if ocdbt else store["path"]
    if str(found) != str(path):
        raise ValueError(
            f"{what}: the spec puts the array at {found!r}, but it must be at {str(path)!r}."
        )


def _check_metadata(what: str, spec: Spec, arr: Any) -> None:
    if arr is None:
        raise ValueError(f"{what}: the array is required to check the metadata of its spec.")
    about = spec["metadata"]
    wanted = metadata(arr)
    for name in ("data_type", "shape"):
        if name in about and about[name] != wanted[name] and [*about[name]] != wanted[name]:
            raise ValueError(
                f"{what}: {name} is {about[name]!r} for an array of {name} {wanted[name]!r}."
            )
    if spec.get("driver") != "zarr3":
        return
    chunks = about["chunk_grid"]["configuration"]["chunk_shape"]
    local = arr.sharding.shard_shape(arr.shape) if isinstance(arr, Array) else arr.shape
    if any(n % k for n, k in zip(local, chunks, strict=True)):
        raise ValueError(
            f"{what}: chunks of shape {tuple(chunks)} do not divide the shards of the array, "
            f"which are of shape {tuple(local)}."
        )


def has_metadata(spec: Any) -> bool:
    """Whether a specification, or one nested in it, has metadata."""
    return isinstance(spec, Mapping) and (
        "metadata" in spec or any(has_metadata(part) for part in spec.values())
    )


def is_remote_storage(tspec: Spec | str) -> bool:
    """Whether a specification, or an address, is in cloud storage: `gs://` or `s3://`."""
    if isinstance(tspec, str):
        return tspec.startswith(tuple(f"{scheme}://" for scheme in _REMOTE))
    for key in ("base", "kvstore"):
        if key in tspec:
            return is_remote_storage(tspec[key])
    return tspec.get("driver") in _REMOTE.values()

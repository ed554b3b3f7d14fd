"""Out-of-memory errors that name the computation, the bytes, the live arrays, and remedies.

The runtime reports only how many bytes it could not allocate. This module has the common part of
all such errors; the code that catches one (a launch, a wait for a result, a transfer to devices)
adds what was computed. The class is jaxlib's, and the message starts with RESOURCE_EXHAUSTED too.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.arrays.signature import Signature
from shardwise._src.messages.formatting import in_bytes, joined
from shardwise._src.runtime import buffers
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.types.array_type import ArrayType

MOST = 3  # maximum arrays named in a message
_MARKS = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory")
_ASKED = re.compile(r"allocat\w*(?: of)? (\d+) ?bytes")
REMEDIES = (
    "Shard arrays over more devices, donate arguments that are no longer needed "
    "(`donate_argnums`), delete arrays, use a smaller dtype, or compute in parts with "
    "`shardwise.lax.map`. `shardwise.explain` of a function and `shardwise.plan` of a transfer "
    "report how much memory they need before anything runs."
)


def is_exhausted(error: BaseException) -> bool:
    """Whether an error reports that memory could not be allocated."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeFailure) and any([m in str(error) for m in _MARKS])


def out_of_memory(
    what: str, error: BaseException, devices: Sequence[Any], asked: int | None = None
) -> Exception:
    """The error to raise for one that satisfies `is_exhausted`.

    what:  the first sentence of the message: what was computed, with its type.
    asked: bytes that were requested on a device, if the error does not contain them.
    """
    found = _ASKED.search(str(error))
    bytes_asked = int(found[1]) if found else asked
    size = "" if bytes_asked is None else f"{in_bytes(bytes_asked)} ({bytes_asked} bytes) "
    free, where = buffers.free_bytes(devices[0]), _where(devices)
    have = "" if free is None else f", and {in_bytes(free)} are free"
    needed = f"{size or 'More memory '}could not be allocated on {where}{have}."
    return RuntimeFailure(f"RESOURCE_EXHAUSTED: {what} {needed}{_alive(devices)} {REMEDIES}")


def of_array(sig: Signature, error: BaseException) -> Exception:
    """The error for an array whose computation or transfer failed for lack of memory."""
    what = f"an array of type {sig.type.str_short(True)} could not be created: out of memory."
    held = math.prod(sig.sharding.tile_shape(sig.stored.shape)) * sig.stored.dtype.itemsize
    return out_of_memory(what, error, sig.devices, held)


@contextmanager
def naming(sig: Signature) -> Generator[None]:
    """A block that puts an array on devices: turns out-of-memory errors into `of_array` errors."""
    try:
        yield
    except (MemoryError, RuntimeFailure) as error:
        if is_exhausted(error):
            raise of_array(sig, error) from None
        raise


def typed(t: ArrayType) -> str:
    """`f32[8,4] (128 B)`."""
    return f"{t.str_short(True)} ({in_bytes(nbytes(t))})"


def nbytes(t: ArrayType) -> int:
    """Total bytes of an array of this type; 0 for symbolic sizes."""
    sizes = [n for n in t.shape if isinstance(n, int)]
    return math.prod(sizes) * t.dtype.itemsize if len(sizes) == t.ndim else 0


def _where(devices: Sequence[Any]) -> str:
    if len(devices) == 1:
        return f"device {devices[0].id} ({devices[0].device_kind})"
    return f"one of {len(devices)} devices ({devices[0].device_kind})"


def _alive(devices: Sequence[Any]) -> str:
    """The largest live arrays on these devices."""
    from_all, here = _all_arrays(), {*devices}
    arrays = [x for x in from_all if x.ndim and x.nbytes and not here.isdisjoint(x._sig.devices)]
    if not arrays:
        return ""
    largest = sorted(arrays, key=lambda x: -x.nbytes)[:MOST]
    texts = joined([typed(x._sig.type) for x in largest])
    most = (
        "it is"
        if len(arrays) == 1
        else "the largest is"
        if len(largest) == 1
        else ("the largest are")
    )
    total = in_bytes(sum([x.nbytes for x in arrays]))
    count = f"{len(arrays)} array" + ("s" if len(arrays) > 1 else "")
    return f" Live there: {count}, {total} in all; {most} {texts}."


def _all_arrays() -> list[Any]:
    """The arrays of this process that are not deleted."""
    found = [x for x in gc.get_objects() if "_raw_parts" in type(x).__dict__]
    return [x for x in found if not x.is_deleted() and _is_computed(x._impl)]


def _is_computed(raw: Any) -> bool:
    """Whether a raw buffer has memory: its computation has finished without failing."""
    if not raw.is_ready():
        return False
    try:
        raw.block_until_ready()
    except RuntimeFailure:
        return False
    return True

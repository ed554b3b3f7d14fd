"""Saves pytrees of arrays to files and restores them onto any devices, as atomic checkpoints.

    checkpoints.save("/ckpt/step_10", {"params": params, "step": 10})
    state = checkpoints.restore("/ckpt/step_10", shardings)

Arrays are written in Zarr version 3, which other tools read. Needs the packages tensorstore
and crc32c (`pip install 'shardwise[tensorstore]'`); without them this import fails.
`shardwise.checkpoint` is unrelated: it recomputes values.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.saving.formats.orbax import load_orbax as load_orbax
    from shardwise._src.saving.formats.safetensors import load_safetensors as load_safetensors
    from shardwise._src.saving.formats.safetensors import (
        safetensors_metadata as safetensors_metadata,
    )
    from shardwise._src.saving.formats.safetensors import save_safetensors as save_safetensors
    from shardwise._src.saving.manager import CheckpointManager as CheckpointManager
    from shardwise._src.saving.manifest import Checkpoint as Checkpoint
    from shardwise._src.saving.manifest import describe as describe
    from shardwise._src.saving.restoring import restore as restore
    from shardwise._src.saving.writing import Saving as Saving
    from shardwise._src.saving.writing import save as save
    from shardwise._src.saving.writing import save_async as save_async

lazy_names(__name__, needs=("crc32c", "tensorstore"), extra="tensorstore")

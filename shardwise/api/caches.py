"""`clear_caches`: everything that was traced or compiled, forgotten."""

from __future__ import annotations

from shardwise.api import backward
from shardwise.api.jit import forget_calls
from shardwise.base.caches import release_recent
from shardwise.control import bodies
from shardwise.core import fused, infer
from shardwise.core.op import OPS
from shardwise.engine import compiled, emitter, transfer
from shardwise.engine.eager import EAGER
from shardwise.ops import families
from shardwise.runtime import program
from shardwise.transforms import batch, stage, tape
from shardwise.types import promotion


def clear_caches() -> None:
    """Forgets all traces and compiled programs of this process.

    Functions are traced and compiled again when they are next called; what `lower(...).compile()`
    gave stays valid. Programs on disk stay, see `compilation_cache_dir`. What was kept about types,
    meshes and shardings goes, too, as far as nothing else holds them.
    """
    forget_calls()
    bodies.forget()
    EAGER.cache.clear()
    tape.forget()
    backward.forget()
    compiled.forget()
    for op in list(OPS.values()):
        op.inferred.clear()
    for table in (infer._scalar_types, promotion._joins_by_key, stage._literals):
        table.clear()
    for function in (
        fused._form, emitter.tensor_text, families._literal, transfer._plan, batch.without_dim,
        program.result_handler,
    ):
        function.cache_clear()
    release_recent()

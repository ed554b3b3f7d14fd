"""`clear_caches`: clears everything that was traced or compiled."""

from __future__ import annotations

from collections.abc import Callable

from shardwise._src.autodiff import eager_backward
from shardwise._src.base.caches import release_recent
from shardwise._src.compiling import module_cache
from shardwise._src.control import bodies
from shardwise._src.core import fingerprints, fused, infer
from shardwise._src.core.op import OPS
from shardwise._src.jit import trace_cache
from shardwise._src.lowering import emitter
from shardwise._src.ops import families
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime.compiler import modules
from shardwise._src.transfers import transfer
from shardwise._src.transforms import batch, stage, tape, templates
from shardwise._src.types import promotion

also_cleared: list[Callable[[], None]] = []  # caches of extensions


def clear_caches() -> None:
    """Clears all traces and compiled programs of this process.

    Functions are traced and compiled again at their next call; results of `lower(...).compile()`
    stay valid. Programs on disk remain, see `compilation_cache_dir`. Cached types, meshes and
    shardings are cleared, too, unless something else references them.
    """
    trace_cache.forget()
    fingerprints.forget()
    bodies.forget()
    EAGER.cache.clear()
    tape.forget()
    eager_backward.forget()
    module_cache.forget()
    for op in list(OPS.values()):
        if op.inferred is not None:
            op.inferred.clear()
    for table in (
        infer._scalar_types, promotion._joins_by_key, stage._literals, templates.templates,
    ):
        table.clear()
    for function in (
        fused.equal_form, emitter.tensor_text, families._literal, transfer._plan,
        transfer._default_plan, batch.without_dim, modules.result_handler,
    ):
        function.cache_clear()
    for clear in also_cleared:
        clear()
    release_recent()

"""Loaded modules, cached by their text: equal programs are compiled once.

A function that is defined again, or another function with the same program, reuses the module;
other processes find it on disk, if its compilation was slow enough to be worth storing.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shardwise._src.base import config, monitoring
from shardwise._src.base.caches import make_room, register, snapshot
from shardwise._src.base.progress import progress
from shardwise._src.compiling.disk_cache import DiskCache, disk_cache, key_of
from shardwise._src.runtime import backend
from shardwise._src.runtime.compiler import lapack
from shardwise._src.runtime.compiler.callback_targets import PATIENCE
from shardwise._src.runtime.compiler.fingerprint import dumps, fingerprint
from shardwise._src.runtime.compiler.modules import (
    CompiledModule,
    compile_options,
    compile_text,
    load,
)
from shardwise._src.runtime.compiler.partitioner_callbacks import without_names
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.target_machines import is_compile_only, is_elsewhere

CACHE_SIZE = 2048
# Characters of all texts, each counted with `OVERHEAD` more: a loaded module takes some 200 bytes
# for each. A module that is no longer in the cache lives as long as functions that use it.
TEXTS = 2 << 20
OVERHEAD = 1 << 10
# Devices wait for the one that calls a host function, which may be slow.
_PATIENT = ("xla_cpu_collective_call_terminate_timeout_seconds", PATIENCE)

_modules: OrderedDict[tuple, CompiledModule] = OrderedDict()
register(__name__, "loaded modules", lambda: len(_modules), _modules.clear, CACHE_SIZE)
_log = logging.getLogger("shardwise.jit")


def loaded_for(
    text: str,
    devices: tuple,
    free_outputs: tuple[bool, ...],
    quick: bool = False,
    small: bool = False,
    overrides: tuple = (),
    callbacks: tuple[Callable[..., Any], ...] = (),
    ordered: bool = False,
    check: Callable[[CompiledModule], None] = lambda module: None,
    only_here: bool = False,
) -> CompiledModule:
    """The module of a text, compiled for its devices.

    free_outputs: the results whose sharding the partitioner chooses.
    quick, small: enable faster compilation (see `runtime.compiler.modules.compile_options`).
    overrides:    XLA options as (name, value) pairs.
    callbacks:    host functions that the module calls, by number. A program with any is not
                  cached: it would keep them alive, and they exist in this process only.
    ordered:      whether they are called in program order.
    check:        may reject a newly compiled module, which is then not cached.
    only_here:    whether the text is valid in this process only, so it is not stored on disk.
    """
    begin = time.perf_counter()
    key = (text, devices, free_outputs, quick, small, repr(overrides))  # repr: 1 is not True
    found = None if callbacks else _modules.get(key)
    if found is not None:
        with suppress(KeyError):  # another thread may have just evicted it
            _modules.move_to_end(key)
        _report("found %s in memory in %.1f ms", text, begin)
        return found
    if lapack.PREFIX in text and "lapack" in platform_of(devices[0]).linalg:
        lapack.register()
    if callbacks and len(devices) > 1 and platform_of(devices[0]).is_xla_cpu:
        overrides = (_PATIENT, *overrides)
    options = compile_options(
        devices, free_outputs=free_outputs, quick=quick, small=small, overrides=dict(overrides)
    )

    def compiled() -> CompiledModule:
        new = _compile(text, devices, options, callbacks, ordered)
        check(new)
        return new

    if callbacks:
        return _identified(compiled(), text, overrides)
    is_run_here = not (is_compile_only(devices) or is_elsewhere(devices))
    files = disk_cache() if is_run_here and not only_here else None
    new = _kept(files, text, devices, options, compiled)
    _modules[key] = _identified(new, text, overrides)
    _make_room_for(len(text))
    return new


_added = 0


def _make_room_for(characters: int) -> None:
    """Evicts the least recently used modules, if there are too many, or if they are too large."""
    global _added
    make_room(_modules, CACHE_SIZE + 1)
    _added += characters + OVERHEAD  # since they were counted
    if _added <= TEXTS:
        return
    keys = snapshot(_modules)
    _added = sum([len(key[0]) + OVERHEAD for key in keys])
    for key in keys[:-1]:
        if _added <= TEXTS // 2:
            break
        _modules.pop(key, None)
        _added -= len(key[0]) + OVERHEAD


def _identified(module: CompiledModule, text: str, overrides: tuple) -> CompiledModule:
    """The module, with its cross-process fingerprint if it runs in other processes as well."""
    if module.span is not None:
        ids = [d.id for d in module.devices]
        text = without_names(text)
        module.name, module.text = _name_in(text), text
        module.digest = key_of([text.encode(), repr(overrides).encode(), repr(ids).encode()])
    return module


def _compile(
    text: str, devices: tuple, options: Any, callbacks: tuple, ordered: bool
) -> CompiledModule:
    begin = time.perf_counter()
    client = devices[0].client
    with progress(f"compiling {_name_in(text)}"):
        new = compile_text(client, text, devices, options, callbacks, ordered)
    monitoring.took(monitoring.COMPILE, time.perf_counter() - begin, _name_in(text))
    _report("compiled %s in %.1f ms", text, begin)
    return new


def _kept(
    files: DiskCache | None,
    text: str,
    devices: tuple,
    options: Any,
    compiled: Callable[[], CompiledModule],
) -> CompiledModule:
    """The program from its file; else compiled, and stored there if compilation was slow."""
    if files is None or dumps(options):
        return compiled()
    begin = time.perf_counter()
    key = key_of([*fingerprint(devices, options), text.encode()])
    monitoring.record_event(monitoring.DISK_ASKED)
    content = files.read(key)
    if content is not None:
        found = _loaded(content, devices, options)
        if found is not None:
            monitoring.record_event(monitoring.DISK_HIT)
            _report("loaded %s from disk in %.1f ms", text, begin)
            return found
        files.drop(key, "cannot be loaded")
    begin = time.perf_counter()
    new = compiled()
    if time.perf_counter() - begin >= config.persistent_cache_min_compile_time_secs.value:
        with suppress(backend.RuntimeFailure):  # a platform that cannot serialize programs
            content = bytes([new.has_collectives]) + new.serialize()
            if len(content) >= config.persistent_cache_min_entry_size_bytes.value:
                files.write(key, content)
                monitoring.record_event(monitoring.DISK_MISS)
    return new


def _loaded(content: bytes, devices: tuple, options: Any) -> CompiledModule | None:
    client = devices[0].client
    try:
        return load(client, content[1:], devices, options, bool(content[0]))
    except (backend.RuntimeFailure, IndexError):
        return None


def _report(what: str, text: str, begin: float) -> None:
    if config.log_compiles.value:
        _log.warning(what, _name_in(text), 1e3 * (time.perf_counter() - begin))


def _name_in(text: str) -> str:
    """The name of the program in a module's text."""
    return text.removeprefix("module @jit_").partition(" ")[0]

"""Saves a training run so that a kill at any moment leaves the old or the new file intact.

A saved run is one `.npz` file: the leaves of the state under their paths (`parameters/blocks/0/up`)
and the hyper-parameters as JSON. Values are full arrays, so any mesh can continue a run. Under any
other name it is a checkpoint, a folder into which each process writes its shards.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gpt_model import Config

import shardwise as sw
from shardwise.errors import CheckpointError


@dataclass(frozen=True)
class Saved:
    """A run as read from disk: NumPy arrays in nested dicts."""

    state: dict
    config: Config
    first_validation: float
    finished: bool

    @property
    def step(self) -> int:
        return int(self.state["step"])


def is_checkpoint(path: Path) -> bool:
    """Whether all processes save a run there, as a checkpoint, or one of them, as a file."""
    return path.suffix != ".npz"


def save(path: Path, saved: Saved) -> None:
    """Writes a file next to `path` and then renames it: readers see the old run or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "config": asdict(saved.config),
        "first_validation": saved.first_validation,
        "finished": saved.finished,
    }
    if is_checkpoint(path):
        sw.checkpoints.save(path, saved.state, overwrite=True, metadata=facts)
        return
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            arrays: dict[str, Any] = flatten(saved.state)
            np.savez(file, facts=json.dumps(facts), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path) -> Saved | None:
    """The run saved at `path`, or None if absent."""
    if not path.exists():
        return None
    try:
        facts, state = _read(path)
        facts["config"] = Config(**facts["config"])
        return Saved(state=state, **facts)
    except (CheckpointError, LookupError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise SystemExit(
            f"{path} is not a saved run ({error}); name another one or use --fresh"
        ) from None


def _read(path: Path) -> tuple[Any, Any]:
    """The facts, and the state as NumPy arrays."""
    if is_checkpoint(path):
        return sw.checkpoints.describe(path).metadata, sw.checkpoints.restore(path)
    with np.load(path) as file:
        leaves = {name: file[name] for name in file.files if name != "facts"}
        return json.loads(str(file["facts"])), unflatten(leaves)


def flatten(tree: Any, path: str = "") -> dict[str, np.ndarray]:
    """Nested dicts and lists → one dict, keyed by the path of each leaf."""
    if not isinstance(tree, (dict, list)):
        return {path: np.asarray(tree)}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    flat: dict[str, np.ndarray] = {}
    for key, value in items:
        flat |= flatten(value, f"{path}/{key}" if path else str(key))
    return flat


def unflatten(leaves: dict[str, np.ndarray]) -> Any:
    """The inverse of `flatten`; keys that are numbers make lists."""
    if "" in leaves:
        return leaves[""]
    parts: dict[str, dict[str, np.ndarray]] = {}
    for path, leaf in leaves.items():
        head, _, rest = path.partition("/")
        parts.setdefault(head, {})[rest] = leaf
    tree = {key: unflatten(part) for key, part in parts.items()}
    if all(key.isdigit() for key in tree):
        return [tree[str(i)] for i in range(len(tree))]
    return tree


class Interrupt:
    """The first Ctrl-C requests the loop to stop after its step; a second one stops immediately.
    SIGTERM, the warning of schedulers before they end a process, does the same.

    with Interrupt() as interrupt:
        while not interrupt.asked: ...
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> Interrupt:
        self._before = [(n, signal.signal(n, self._handle)) for n in self.SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)

    def _handle(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

"""`CheckpointManager`: the checkpoints of a run, by step, with a retention policy.

    manager = CheckpointManager("/run/ckpt", keep_last=3, keep_best=(1, "loss", "min"), every=100)
    state, first = (manager.restore(like=state), manager.latest()) if manager.latest() else ...
    for step in range(first, steps):
        state, loss = train(state)
        manager.save(step, state, metrics={"loss": float(loss)})   # writes in the background
    manager.wait()

Each checkpoint is a separate, self-contained folder (`step_00000100`). Incomplete files of a
killed writer are ignored, and removed by the next manager that opens the folder.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping
from os import PathLike
from typing import Any

from shardwise._src.base.errors import CheckpointError
from shardwise._src.messages.formatting import join, short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.placement.device_put import process_index
from shardwise._src.saving import committing, manifest, storage, writing
from shardwise._src.saving.async_manager import together
from shardwise._src.saving.digests import METADATA
from shardwise._src.saving.restoring import restored_together
from shardwise._src.saving.storage import MANIFEST, Place, explained

_NAME = re.compile(r"\.?step_(\d+)(\.before)?$")
_numbers = itertools.count()  # of queries to process 0, in the same order in all processes


class CheckpointManager:
    """The checkpoints of one run.

    folder: their location, or an address; it is created if absent.
    keep_last: how many of the newest to keep; None keeps all, or only one if `keep_best` is set.
    keep_best: (count, metric, "min" or "max"): these are kept in addition. The newest checkpoint
      and the one just saved are always kept.
    every: only steps divisible by this are saved.
    wait: the default of `wait` in `save`.

    All processes create a manager and call its `save` and `restore` in the same order.
    """

    @hides_frames
    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        keep_last: int | None = None,
        keep_best: tuple[int, str, str] | None = None,
        every: int = 1,
        wait: bool = False,
    ):
        self._place = Place.at("CheckpointManager", folder)
        self._keep_last, self._best = keep_last, _checked(keep_last, keep_best, every)
        self._every, self._waits = every, wait
        self._saving: writing.Saving | None = None
        self._known: dict[int, manifest.Checkpoint] = {}  # by step
        if process_index() == 0:
            self._clean()

    @hides_frames
    def save(
        self,
        step: int,
        tree: Any,
        metrics: Mapping[str, float] | None = None,
        *,
        metadata: Any = None,
        force: bool = False,
        wait: bool | None = None,
    ) -> bool:
        """Saves a pytree as the checkpoint of a step, if the step is due, and removes checkpoints
        that are no longer retained. Waits for the previous save first.

        Args:
          step: 0 or more. An existing checkpoint of this step is replaced.
          tree: as for `save`.
          metrics: numbers by name, for `keep_best` and `best`.
          metadata: any JSON-serializable value.
          force: whether to save even if `every` does not divide the step.
          wait: whether to return only when it is written; by default as set in the manager.

        Returns:
          Whether the step is saved.

        Raises:
          as `save_async`; ValueError if `metrics` lacks the metric of `keep_best`.
        """
        step = _step_number(step)
        if step % self._every and not force:
            return False
        about = manifest.with_metrics(step, self._metrics(metrics), metadata)
        self.wait()
        self._known.pop(step, None)
        job = writing.prepared(
            "CheckpointManager.save", f"{self._place.text}/{_name(step)}", tree, True, about,
            functools.partial(self._prune, step),
        )  # fmt: skip
        self._saving = writing.start(job)
        if self._waits if wait is None else wait:
            self.wait()
        return True

    @hides_frames
    def wait(self) -> None:
        """Waits until the last checkpoint is written; raises any error."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.wait()

    @hides_frames
    def restore(self, step: int | None = None, shardings: Any = None, like: Any = None) -> Any:
        """Reads the checkpoint of a step, by default the newest: see `checkpoints.restore`.

        Raises:
          FileNotFoundError: it is missing; other processes that have shards of its arrays raise a
            RuntimeError that reports this.
          and as `checkpoints.restore`.
        """
        self.wait()
        what = "CheckpointManager.restore"
        asked = self._agreed_latest() if step is None else _step_number(step)
        if asked is None:
            raise FileNotFoundError(f"{what}: {self._place.text} has no checkpoint.")

        def found() -> manifest.Checkpoint:
            """Lets a process that does not see the step report this to the waiting processes."""
            if step is not None and asked not in (there := self.steps()):
                but = f", but has steps {join(there)}" if there else ""
                raise FileNotFoundError(
                    f"{what}: {self._place.text} has no checkpoint for step {step}{but}."
                )
            return manifest.read(what, self._place / _name(asked))

        return restored_together(what, found, shardings, like)

    def steps(self) -> list[int]:
        """The steps that have complete checkpoints, in order; excludes one that is being saved."""
        names = self._place.names()
        if self._place.folder is None:
            names = [n.removesuffix(f"/{MANIFEST}") for n in names if n.endswith(f"/{MANIFEST}")]
        found = {int(m[1]) for m in map(_NAME.match, names) if m is not None}
        places = {step: storage.found(self._place / _name(step)) for step in sorted(found)}
        return [step for step, place in places.items() if place.get(MANIFEST) is not None]

    def latest(self) -> int | None:
        """The newest complete step; None if absent. The last `save` may still be running:
        call `wait` first."""
        return max(self.steps(), default=None)

    def best(self, metric: str | None = None, mode: str = "min") -> int | None:
        """The step with the best value of a metric, by default the metric of `keep_best`; the
        newest if there are ties. None if no checkpoint has the metric."""
        if metric is None:
            if self._best is None:
                raise ValueError(
                    "CheckpointManager.best: metric is required, because the manager has no "
                    "keep_best."
                )
            _, metric, mode = self._best
        _check_mode("CheckpointManager.best: mode", mode)
        return next(iter(self._by_value(self.steps(), metric, mode)), None)

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics saved with a step."""
        return dict(self._about(step).metrics)

    def metadata(self, step: int) -> Any:
        """The metadata saved with a step."""
        return self._about(step).metadata

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def __repr__(self) -> str:
        return f"CheckpointManager({self._place.text!r}, steps={self.steps()})"

    # -- retention --

    def _prune(self, saved: int) -> None:
        """Removes checkpoints that are no longer retained. saved: the step just written, which may
        precede existing ones if the run was rolled back."""
        steps = self.steps()
        for step in sorted(set(steps) - self._kept(steps) - {saved}):
            (self._place / _name(step)).remove()
            self._known.pop(step, None)

    def _kept(self, steps: list[int]) -> set[int]:
        if self._keep_last is None and self._best is None:
            return {*steps}
        kept = {*steps[-(self._keep_last or 1) :]}
        if self._best is not None:
            count, metric, mode = self._best
            kept |= {*self._by_value(steps, metric, mode)[:count]}
        return kept

    def _by_value(self, steps: list[int], metric: str, mode: str) -> list[int]:
        """The steps that have a metric, best first; NaN is worst. Skips damaged checkpoints."""
        rows: list[tuple[bool, float, int]] = []
        for step in steps:
            try:
                value = self._about(step).metrics.get(metric)
            except CheckpointError:
                continue
            if value is not None:
                rows.append((math.isnan(value), value if mode == "min" else -value, -step))
        return [-step for *_, step in sorted(rows, key=lambda r: (r[0], r[0] or r[1], r[2]))]

    def _about(self, step: int) -> manifest.Checkpoint:
        if step not in self._known:
            self._known[step] = manifest.read("CheckpointManager", self._place / _name(step))
        return self._known[step]

    def _metrics(self, metrics: Mapping[str, float] | None) -> dict[str, float]:
        what = "CheckpointManager.save: metrics"
        if metrics is not None and not isinstance(metrics, Mapping):
            raise TypeError(
                f"{what} must be a dict from names to numbers; got {short_repr(metrics)}."
            )
        found = {str(name): _as_number(what, name, v) for name, v in (metrics or {}).items()}
        if self._best is not None and self._best[1] not in found:
            raise ValueError(
                f"{what} must contain {self._best[1]!r}, the metric of keep_best; got "
                f"{short_repr(metrics)}."
            )
        return found

    def _agreed_latest(self) -> int | None:
        """The newest step according to process 0, in all processes."""
        name = f"checkpoint latest {next(_numbers)}"
        said = together(name, lambda: str(self.latest()), 600, doing="read")[0]
        return None if said == "None" else int(said)

    def _clean(self) -> None:
        """Removes the remains of dead writers.

        In stores without locks, a writer with a claim may be alive: its files stay.
        """
        folder = self._place.folder
        if folder is not None:
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(
                    f"CheckpointManager: {folder} is not a folder. Choose a folder for the "
                    "checkpoints."
                )
            with explained("CheckpointManager", self._place, "its folder could not be created"):
                folder.mkdir(parents=True, exist_ok=True)
            committing.clean(folder, manifest.STEP)
            return
        names = self._place.names()
        steps = {n.split("/")[0] for n in names if _NAME.match(n.split("/")[0])}
        for step in steps:
            if {f"{step}/{committing.CLAIM}", f"{step}/{MANIFEST}"}.isdisjoint(names) and (
                f"{step}/{METADATA}" in names
            ):
                (self._place / step).remove()


def _name(step: int) -> str:
    return f"step_{step:08}"


def _step_number(step: int) -> int:
    if isinstance(step, bool) or not hasattr(step, "__index__") or int(step) < 0:
        raise ValueError(
            f"CheckpointManager: step must be a non-negative integer; got {short_repr(step)}."
        )
    return int(step)


def _as_number(what: str, name: Any, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what}[{name!r}] must be a number; got {short_repr(value)}.") from None


def _check_mode(what: str, mode: str) -> None:
    if mode not in ("min", "max"):
        raise ValueError(f"{what} must be 'min' or 'max'; got {mode!r}.")


def _checked(keep_last: int | None, keep_best: Any, every: int) -> tuple[int, str, str] | None:
    """Checks the options of a manager; returns `keep_best`."""
    what = "CheckpointManager"
    for name, value in (("keep_last", keep_last), ("every", every)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{what}: {name} must be a positive integer; got {short_repr(value)}.")
    if keep_best is None:
        return None
    if (
        not isinstance(keep_best, tuple | list)
        or len(keep_best) != 3
        or not (
            isinstance(keep_best[0], int) and keep_best[0] > 0 and isinstance(keep_best[1], str)
        )
    ):
        raise ValueError(
            f"{what}: keep_best must be (count, metric name, 'min' or 'max'), such as "
            f"(2, 'loss', 'min'); got {short_repr(keep_best)}."
        )
    _check_mode(f"{what}: the last entry of keep_best", keep_best[2])
    return keep_best[0], keep_best[1], keep_best[2]

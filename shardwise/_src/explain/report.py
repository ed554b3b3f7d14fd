"""`Report`: the results of analyzing a compiled program, as data, text and HTML."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.explain.rendering.report_html import figure
from shardwise._src.explain.rendering.report_page import save
from shardwise._src.explain.rendering.report_text import styled, text_of
from shardwise._src.explain.report_data import ReportData


@public("shardwise.explain")
@dataclass(frozen=True)
class Report(ReportData):
    """What a program will do when it runs.

    name:     of the function. devices: how many. mesh: axis sizes by name; {} for one device.
    others:   further meshes that it uses over these devices, in the same form.
    communication: most bytes first. buffers: largest first. lines: user source lines by
    `file:line`, for all locations in the report. program: as text, with lines. hlo: as compiled.
    compiler: the package of the machine's own compiler and its version, if that made the program;
    missing: why not, if it was asked for. Otherwise XLA's compiler for the devices here made it.
    launches: of kernels, with what each moves and computes (`kernels.LaunchReport`).
    target:   the machine that `compiler` made the program for; `machine`, which has the rates and
    the memory, may be another. "" without `compiler`.
    Compilers of their own do not report buffers: those are values, by the schedule of the program.
    """

    def __str__(self) -> str:
        """Tables for a terminal, at most 100 columns wide."""
        return text_of(self)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield from styled(self, options.max_width)

    def _repr_html_(self) -> str:
        return figure(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes one self-contained HTML file with all data, user source lines and the program.

        It needs no network. Source lines are read now, from the files that the report names.

        Returns:
          The path.

        Raises:
          OSError: the file cannot be written; the message explains why. IsADirectoryError for a
            folder.
        """
        return save(self, path)

"""Ops whose modules XLA cannot compile without its fusion passes say so (`needs_fusion`)."""

from __future__ import annotations

import pytest

import shardwise as sw
from shardwise._src.core.op import every_op
from tests.ops.samples import SAMPLES

OPS = every_op()


def texts(name, samples):
    for sample in samples:
        if sample.keys or sample.x64:
            continue
        f = sw.jit(lambda *args, p=sample.params: OPS[name](*args, **p))
        yield f.lower(*sample.args).as_text()


@pytest.mark.parametrize("name", ["scatter", "scatter_add", "select_and_scatter_add"])
def test_modules_with_scatters_are_recognized(name):
    assert any('scatter"(' in text for text in texts(name, SAMPLES[name]))


@pytest.mark.parametrize("part", range(8))
def test_modules_with_scatters_are_of_ops_that_say_so(part):
    names = [n for n in sorted(SAMPLES) if not OPS[n].needs_fusion][part::8]
    found = {
        name for name in names
        for text in texts(name, SAMPLES[name]) if 'scatter"(' in text
    }  # fmt: skip
    assert found == set()

"""Packages whose names are imported on first use."""

import os
import subprocess
import sys

import pytest

import shardwise as sw
import shardwise.numpy as np


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(AttributeError) as failure:
        np.sinn
    expected = "module 'shardwise.numpy' has no attribute 'sinn'. Did you mean 'sin'?"
    assert str(failure.value) == expected


def test_python_adds_no_suggestion_of_its_own(capsys):
    with pytest.raises(AttributeError) as failure:
        sw.gard
    sys.__excepthook__(failure.type, failure.value, None)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("module 'shardwise' has no attribute 'gard'. Did you mean 'grad'?")


def test_functions_win_over_modules_of_the_package():
    from shardwise.numpy import einsum, linalg, shape

    assert callable(einsum) and callable(shape) and linalg.norm is np.linalg.norm


def test_importing_loads_no_function_that_nobody_used():
    code = (
        "import sys, shardwise as sw, shardwise.numpy as np\n"
        "print([m for m in ('rich', 'opt_einsum', 'shardwise._src.numpy.ordering.sorting', 'jax')\n"
        "       if m in sys.modules], end='')"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=dict(os.environ),
    )
    assert run.stdout == "[]"

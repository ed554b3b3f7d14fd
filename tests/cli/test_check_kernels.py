"""`shardwise check`: programs with kernels."""

import re

import pytest

from shardwise._src.cli import main

PROGRAM = """
import numpy as np
import shardwise as sw
from shardwise import kernels
from shardwise.kernels import SemaphoreType, make_async_copy

like = sw.ShapeDtypeStruct((8,), "float32")
x = np.ones(8, np.float32)

def double(x, out):
    out[...] = 2 * x[...]

def copied(x, out, done):
    make_async_copy(x, out, done).start()

right = sw.jit(kernels.call(double, like))
wrong = kernels.call(copied, like, scratch=[SemaphoreType.DMA])

def both(devices):
    return lambda x: wrong(right(right(x))), (x,)

def fails():
    return lambda: 1 / 0, ()

if __name__ == "__main__":
    print(right(x)[:2])
"""
RIGHT = """\
[2. 2.]
kernel  launches  verdict
double         1  no fault
"""
BOTH = """\
kernel  launches  verdict
double         2  no fault
copied         1  fault

kernel copied: the copy that the kernel starts at FILE:14 (copied) writes out, and may not have \
ended at the end of the kernel. Call its `wait`.
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels_to_check.py"
    path.write_text(PROGRAM)
    return path


def test_a_file(file, capsys):
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out == RIGHT


def test_a_function(file, capsys):
    assert main(["check", f"{file}:both"]) == 1
    assert capsys.readouterr().out.replace(str(file), "FILE") == BOTH


def test_mistakes(file, capsys):
    assert main(["check", f"{file}:fails"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"ZeroDivisionError: division by zero\n", err)
    assert err.endswith("shardwise check: the program launches no kernel.\n")
    assert main(["check", f"{file}:bath"]) == 2
    assert capsys.readouterr().err.endswith(
        f"shardwise check: error: {file} has no function 'bath'. Did you mean 'both'?\n"
    )

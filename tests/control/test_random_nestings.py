"""Random nestings of maps, transforms, control flow and collectives, whichever maps bind the axes.

The reference result of a program is the one with all axes bound by `vmap`, on one device. A program
with another result is reduced and printed.
"""

import time

import numpy as np
import pytest

from tests.helpers.everyday import everyday
from tests.helpers.nestings import AXES, drawn, run, shown, smaller

XS = np.sin(np.arange(32, dtype=np.float32) + 1).reshape(2, 2, 2, 2, 2)
COUNT = 96
SECONDS = 60


def fault(program):
    """The problem with a program; empty if it has none."""
    wanted = np.asarray(run(program, ("vmap",) * len(AXES))(XS))
    try:
        found = np.asarray(run(program, program.maps)(XS))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=1e-3, atol=1e-3):
        return f"{found.ravel()[:4]} for {wanted.ravel()[:4]}"
    return ""


def cut_down(program, wrong):
    """The smallest program found that still fails in this way."""
    ends, again = time.monotonic() + SECONDS, True
    while again:
        again = False
        for less in smaller(program):
            if time.monotonic() > ends:
                break
            try:
                found = fault(less)
            except Exception:
                continue
            if found and found.partition(":")[0][:9] == wrong.partition(":")[0][:9]:
                program, wrong, again = less, found, True
                break
    return program, wrong


@pytest.mark.parametrize("seed", everyday(range(COUNT), 1))
def test_like_mapped_axes(seed):
    program = drawn(seed)
    if wrong := fault(program):
        less, wrong = cut_down(program, wrong)
        pytest.fail(f"{program}\n\ncut down to\n{less}\n\n{wrong}", pytrace=False)


def test_a_program_is_drawn_again():
    assert drawn(7) == drawn(7)
    assert shown(("jit", None, (("sin", None, ()),))) == "  jit\n    sin"

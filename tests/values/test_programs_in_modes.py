"""Random programs over Explicit axes, under `disable_jit` and under `debug_nans`.

Values match jit on one device. `python -m tests.values.programs.modes 17 18` does
that for one seed.
"""

import pytest

from tests.values.programs.modes import MODES, sweep

EVERYDAY = range(2)
EACH, GROUPS = 10, 30


@pytest.mark.parametrize("mode", MODES)
def test_a_few(mode):
    wrong = sweep(mode, EVERYDAY)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("mode", MODES)
def test_many(mode, group):
    first = len(EVERYDAY) + EACH * group
    wrong = sweep(mode, range(first, first + EACH))
    assert not wrong, "\n\n".join(wrong)

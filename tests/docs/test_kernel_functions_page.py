"""docs/kernels-functions.md says what the library does."""

import pytest

from tests.helpers.everyday import everyday
from tools import kernel_functions_page as tool


@pytest.mark.sweep
def test_the_page_is_current():
    same = tool.PAGE.read_text() == tool.page()
    assert same, (
        "docs/kernels-functions.md is not current: run `python tools/kernel_functions_page.py`"
    )


@pytest.mark.parametrize("expression", everyday([e for _, e in tool.expressions()], 12))
def test_expressions(expression):
    on_gpus, on_tpus = tool.reasons(expression)
    (row,) = [line for line in tool.PAGE.read_text().splitlines() if f"`{expression}`" in line]
    if row.startswith("On GPUs and TPUs:"):
        assert not on_gpus and not on_tpus
    else:
        assert f"| {on_gpus or 'yes'} | {on_tpus or 'yes'} |" in row

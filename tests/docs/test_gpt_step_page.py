"""The page of the demo's training step: its lines are those of the example, its sums add up.

The step is not compiled here, which takes long: `tools/gpt_step_page.py` regenerates the page.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gpt_step.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^  ([a-z-]+) f32 +(data|model) +(\d+)(\*?) +.*? (examples/gpt\w*\.py):(\d+)(.*)$\n(    .*)?$",
    re.MULTILINE,
)


def test_lines_are_those_of_the_example():
    rows = ROW.findall(PAGE)
    assert len(rows) >= 10
    for *_, file, number, beside, below in rows:
        line = (ROOT / file).read_text().splitlines()[int(number) - 1].strip()
        shown = (beside.strip() or below.strip()).removesuffix("…")
        assert shown and line.startswith(shown), (file, number)


def test_counts_add_up():
    (total,) = re.findall(r"^communication: (\d+) collectives, ", PAGE, re.MULTILINE)
    assert re.findall(r"^  total +(\d+) ", PAGE, re.MULTILINE) == [total]
    along = {axis for _, axis, *_ in ROW.findall(PAGE)}
    assert along == {"data", "model"} and not re.search(r"all-gather|all-to-all", PAGE)

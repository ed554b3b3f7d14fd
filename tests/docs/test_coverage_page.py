"""docs/coverage.md: every name that it lists exists, and omitted names have reasons."""

import fnmatch
import re

import jax
import pytest

from tools import coverage_page as tool


def test_the_page_promises_nothing_that_is_not_there():
    text = tool.PAGE.read_text()
    if f"from jax {jax.__version__}," not in text:
        pytest.skip(f"the page is of another jax than {jax.__version__}")
    pytest.importorskip("tensorstore")  # modules of jax cannot be imported without it
    found = tool.names()
    numbers = re.search(r"Of (\d+) names, (\d+) are present", text)
    assert len(found) == int(numbers[1])
    assert sum(name.is_there for name in found) >= int(numbers[2])
    missing = {name.path for name in found if not name.is_there}
    row = r"^\*\*`([\w.]+)`\*\*(?: \(\d+\))?$(.*?)(?=^\*\*|^## )"
    told = re.findall(row, text, re.MULTILINE | re.DOTALL)
    rows = [(module, re.findall(r"`(\w+)`", names)) for module, names in told]
    listed = {f"{module}.{name}" for module, names in rows for name in names}
    documented = re.search(r"documentation,\n(\d+) of (\d+) are present", text)
    inner = re.findall(r"\((\d+)\)\n\n- `", text)
    assert int(documented[2]) == int(numbers[1]) - sum(map(int, inner))
    assert missing <= listed, "run `python tools/coverage_page.py`"


def test_what_is_left_out_exists():
    import pkgutil

    modules = [m.name for m in pkgutil.walk_packages(jax.__path__, "jax.", onerror=lambda _: None)]
    for pattern in tool.LEFT_OUT:
        assert any(fnmatch.fnmatch(name, pattern) for name in modules), pattern
    pytest.importorskip("tensorstore")
    missing = [name.path for name in tool.names() if not name.is_there]
    for pattern in tool.REASONS:
        assert any(fnmatch.fnmatch(path, pattern) for path in missing), pattern


def test_arguments_are_compared():
    def theirs(x, axis=None, *, out=None): ...

    assert tool.missing_arguments(lambda x: x, theirs) == ("axis", "out")
    assert tool.missing_arguments(lambda x, axis=0, out=None: x, theirs) == ()
    assert tool.missing_arguments(lambda x, **others: x, theirs) == ()

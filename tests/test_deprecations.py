"""Every DeprecationWarning of the library states the version that removes the name."""

import ast
import re

from shardwise._version import __version_info__
from tools.size import ROOT

GOES = re.compile(r"removed in (\d+)\.(\d+)\.0")


def mentions(node):
    return any(isinstance(n, ast.Name) and n.id == "DeprecationWarning" for n in ast.walk(node))


def messages(source):
    """The texts of calls of `warn` with this class."""
    for call in ast.walk(ast.parse(source)):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if named and call.func.id == "warn" and any(map(mentions, call.args)):
            texts = [n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)]
            yield "".join(map(str, texts))


def test_messages_state_a_version_that_is_not_reached():
    files = (ROOT / "shardwise").rglob("*.py")
    found = [text for file in files for text in messages(file.read_text())]
    assert len(found) == 5
    for text in found:
        goes = GOES.search(text)
        assert goes, text
        version = (int(goes[1]), int(goes[2]))
        assert __version_info__[:2] < version, f"is to be removed: {text}"

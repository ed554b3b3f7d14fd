"""The XLA errors in docs/values.md: shardwise is right; jax, without the workarounds, is not.

If jax gets a program right, the workaround is no longer needed with this jaxlib.
"""

import re
from pathlib import Path

import pytest
from jaxlib.version import __version__ as jaxlib_version

from shardwise._src.lowering.instructions import Instructions
from shardwise._src.lowering.manual import Manual
from shardwise._src.lowering.text import turned
from shardwise._src.lowering.xla_workarounds import WithWorkarounds
from tests.helpers.everyday import everyday
from tests.helpers.processes import python

PAGE = Path(__file__).resolve().parents[2] / "docs" / "values.md"
BLOCK = re.compile(r"```(?:python|text)\n(.*?)```", re.DOTALL)
INTRODUCTION, *SECTIONS = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
PRELUDE = BLOCK.findall(INTRODUCTION)[-1]
PROGRAMS = {section.split("`")[1]: BLOCK.findall(section)[:2] for section in SECTIONS}


def since(what):
    """For each error name, the first jaxlib that the page calls right, or wrong."""
    found = {s.split("`")[1]: re.search(rf"{what} since jaxlib ([\d.]+\d)", s) for s in SECTIONS}
    return {name: tuple(map(int, m[1].split("."))) for name, m in found.items() if m}


RIGHT_SINCE, WRONG_SINCE = since("Right"), since("Wrong")
JAXLIB = tuple(int(n) for n in jaxlib_version.split(".")[:2])


def printed(source):
    """The output of a program over eight devices; empty if the program fails or crashes."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = python(source, **flags)
    return done.stdout if done.returncode == 0 else ""


@pytest.mark.parametrize("name", everyday(PROGRAMS, 1))
def test_jax_needs_the_mend(name):
    program, right = PROGRAMS[name]
    source = PRELUDE.replace("shardwise as jax", "jax").replace("shardwise", "jax") + program
    wrong = printed(source) != right
    if not WRONG_SINCE.get(name, (0,)) <= JAXLIB < RIGHT_SINCE.get(name, (99,)):
        assert not wrong
    else:
        assert wrong, (
            f"jaxlib {jaxlib_version} gets {name!r} right: its entry in "
            "lowering/xla_workarounds.py is only for older ones now. Say in docs/values.md since "
            "when."
        )


def test_each_error_has_a_mend_and_each_mend_an_error():
    classes = (Instructions, Manual, WithWorkarounds)
    methods = [value for c in classes for value in vars(c).values()]
    methods.append(turned)
    mends = " ".join(method.__doc__ or "" for method in methods if callable(method))
    assert {name for name in PROGRAMS if f"`{name}`" in mends} == set(PROGRAMS)
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+|pad)`", mends)) == set(PROGRAMS)

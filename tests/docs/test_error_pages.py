"""The error pages are correct: each example fails with the text shown, each fix runs.

The block `python fails` of a page must raise the error that the page is named after, with the text
in the block after it (except for line breaks and `...`). The `python` blocks that follow run in the
same namespace, after the failed one. A block `python fails in 2 processes` runs in two, and
process 0 prints the text.
"""

import re
from pathlib import Path

import pytest

import shardwise as sw
from shardwise import testing
from shardwise._src.base.errors import Documented
from tests.helpers.everyday import everyday

PAGES = Path(__file__).resolve().parents[2] / "docs" / "errors"
BLOCK = re.compile(
    r"^```(python fails in 2 processes|python fails|python|text)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
BASES = ("JAXIndexError", "JAXTypeError", "JaxprTypeError")  # raised only as a subclass
CLASSES = {
    name: getattr(home, name)
    for home in (sw.errors, testing)
    for name in dir(home)
    if isinstance(getattr(home, name), type)
    and issubclass(getattr(home, name), Exception)
    and name not in BASES
}


def run(source, name, space):
    exec(compile(source, name, "exec"), space)


@pytest.mark.parametrize("name", everyday(CLASSES, 3))
def test_a_page(name):
    kinds, bodies = zip(*BLOCK.findall((PAGES / f"{name}.md").read_text()), strict=True)
    shown = re.escape(" ".join(bodies[1].split())).replace(r"\.\.\.", ".*")
    if kinds == ("python fails in 2 processes", "text"):
        first, _ = testing.run_processes(bodies[0], 2, expect=1)
        assert re.search(shown, " ".join(first.err.split()))
        return
    assert kinds[:2] == ("python fails", "text")
    assert set(kinds[2:]) == {"python"}
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    kind = CLASSES[name]
    with pytest.raises(kind) as caught:
        run(bodies[0], "example.py", space)
    assert type(caught.value) is kind
    assert re.fullmatch(shown, " ".join(f"{name}: {caught.value}".split()))
    for i, body in enumerate(bodies[2:]):
        run(body, f"fix{i}.py", space)


def test_every_public_error_has_a_page_and_says_so():
    assert {p.stem for p in PAGES.glob("*.md")} == {*CLASSES, "README"}
    index = (PAGES / "README.md").read_text()
    for name in CLASSES:
        assert f"]({name}.md)" in index
        kind = CLASSES[name]
        if issubclass(kind, Documented):
            note = kind("text").__notes__[0]
            assert note == f"Examples and fixes: `shardwise explain-error {name}`"
            assert str(kind("text")) == "text"


def test_a_users_subclass_points_to_the_page_of_its_base():
    class Own(sw.errors.UnexpectedTracerError):
        pass

    assert Own().__notes__ == [
        "Examples and fixes: `shardwise explain-error UnexpectedTracerError`"
    ]


def test_names_and_bases_are_those_of_jax():
    jax = pytest.importorskip("jax")
    for name in CLASSES:
        theirs = getattr(jax.errors, name, None)
        if theirs is not None:
            own = [c.__name__ for c in CLASSES[name].__mro__]
            public = [c.__name__ for c in theirs.__mro__ if "JAX" not in c.__name__]
            assert [n for n in own if n != "Documented" and "JAX" not in n] == public


def test_errors_that_the_library_defines_have_a_public_home():
    public = {*CLASSES, *BASES, *dir(sw.experimental.sparse), "BarrierTimeoutError"}
    for path in sorted((PAGES.parents[1] / "shardwise").rglob("*.py")):
        for name in re.findall(r"^class (\w+(?:Error|Failure))\b", path.read_text(), re.MULTILINE):
            assert name in public, f"{path}: {name}"


def test_pages_that_messages_name_exist():
    for path in sorted((PAGES.parents[1] / "shardwise").rglob("*.py")):
        for name in re.findall(r"explain-error (\w+Error)`", path.read_text()):
            assert (PAGES / f"{name}.md").exists(), f"{path}: {name}"


def test_errors_over_explicit_axes_say_that_there_are_others():
    assert sw.errors.ShardingTypeError("text").__notes__[1:] == [
        "Axes of `shardwise.make_mesh` are Explicit by default, so shardings are part of types. "
        "With axis_types=(shardwise.sharding.AxisType.Auto,) * n the compiler chooses them."
    ]

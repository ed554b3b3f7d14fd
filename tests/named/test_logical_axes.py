"""Parsing of logical axes, and error messages for invalid strings."""

import pytest

from shardwise._src.named.logical_axes import flat, parse, sides
from tests.helpers.errors import fails


def test_words_groups_and_ones():
    assert parse(" batch  seq _ _", "f") == ("batch", "seq", "_", "_")
    assert parse("", "f") == ()
    assert parse("1 (heads head)b ()", "f", patterned=True) == ((), ("heads", "head"), "b", ())
    assert flat(parse("1 (heads head) b", "f", patterned=True)) == ["heads", "head", "b"]
    assert sides("a b -> c", "f") == ("a b", "c")


@pytest.mark.parametrize(
    "text, patterned, message",
    [
        ("batch batch", False, "f: 'batch batch' has 'batch' twice. The axes of a value must "
         "have different names; rename one of them."),
        ("batch, seq", False, "f: 'batch,' in 'batch, seq' is not an axis name. Expected names."),
        ("(a b)", False, "f: '(' in '(a b)' is not an axis name. Expected names."),
        ("(a (b))", True, "f: '(' in '(a (b))' is not an axis name. Expected names, `1` and groups "
         "such as (heads head)."),
        ("a (b", True, "f: a group in 'a (b' is not closed."),
    ],
)  # fmt: skip
def test_what_is_no_word(text, patterned, message):
    fails(ValueError, message, parse, text, "f", patterned)


def test_what_is_no_text():
    message = (
        "f: logical axes must be a string such as 'batch embed'; got ('a', 'b') of type tuple."
    )
    fails(TypeError, message, parse, ("a", "b"), "f")
    message = "f: a pattern must have one arrow, as in 'batch embed -> batch'; got 'a b'."
    fails(ValueError, message, sides, "a b", "f")

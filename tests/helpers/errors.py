"""Errors as text. In full messages, locations in the test's own file are shown as FILE:line."""

import re
import sys

import pytest


def message(kind, fun, *args, **kwargs):
    """The message of the error that `fun(*args, **kwargs)` raises, an instance of `kind`."""
    with pytest.raises(kind) as caught:
        fun(*args, **kwargs)
    return str(caught.value)


def fails(kind, message, fun, *args, **kwargs):
    """`fun(*args, **kwargs)` raises exactly `kind` with the message; this call is shown as HERE."""
    with pytest.raises(kind) as caught:
        fun(*args, **kwargs)
    assert type(caught.value) is kind
    text = str(caught.value).replace(sys._getframe(1).f_code.co_filename, "FILE")
    assert re.sub(r"at \S+:\d+ \(fails\)", "HERE", text) == message


def donated(name):
    """The end of the message for an array that was donated to a function of this name."""
    if name == "device_put":
        instead = "call it without `donate`."
    else:
        instead = (
            "pass a copy of it, `x.copy()`, or leave it out of `donate_argnums` and "
            "`donate_argnames`."
        )
    return f"Use what {name} returned; to keep the array as well, {instead}"


COPY = "To use it longer, make a copy beforehand: `x.copy()`."  # for a deleted array


def line(text):
    """The number of the first line of the caller's file that contains `text`."""
    with open(sys._getframe(1).f_code.co_filename) as source:
        return next(i for i, row in enumerate(source, 1) if text in row)


def messages(table, names=None):
    """A test of the rows of a table: a call, the class of the error that it raises, its message.

    A call is a function, or text, an expression of `names`.
    """

    @pytest.mark.parametrize(("call", "kind", "text"), table)
    def test(call, kind, text):
        found = message(kind, *([eval, call, names] if isinstance(call, str) else [call]))
        assert found == text, found

    return test

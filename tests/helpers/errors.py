"""Errors as text. In full messages, locations in the test's own file are shown as FILE:line."""

import re
import sys
import textwrap

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


def messages(text, names):
    """A test of calls, expressions of `names`, and of the errors that they raise.

    An error is below its call, as Python prints it, but wrapped:

        linalg.qr(A, "all")
            ValueError: qr: mode must be 'reduced', 'complete', 'r' or 'raw'; got 'all'.
    """

    @failing_calls(text)
    def test(call, error):
        found = raised(eval, call, names)
        assert found == error, found

    return test


def failing_calls(text):
    """Parametrizes a test by the `call`s of a text as in `messages`, and the `error` of each."""
    rows = _rows(text)
    return pytest.mark.parametrize(("call", "error"), rows, ids=[call for call, _ in rows])


def fail(text, names):
    """The calls of a text as in `messages` raise its errors."""
    for call, error in _rows(text):
        found = raised(eval, call, names)
        assert found == error, found


def _rows(text):
    blocks = re.split(r"\n(?=\S)", textwrap.dedent(text).strip())
    rows = [re.split(r"\n +(?=\w+: )", block, maxsplit=1) for block in blocks]
    return [[" ".join(part.split()) for part in row] for row in rows]


def raised(fun, *args):
    """The error that `fun(*args)` raises, as Python prints it."""
    try:
        fun(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"

"""Some 390 mistakes: the error has the class that users of JAX catch, the listed message, and is
short.

The full messages are in mistakes.txt. Regenerate messages that changed on purpose with

    SHARDWISE_UPDATE_GOLDENS=1 pytest tests/messages/test_mistakes.py

and read the change in the diff of the file; `python -m tests.messages.beside_jax` shows each next
to JAX's.
"""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

import pytest

import shardwise as sw
from shardwise._src.messages.source import is_own
from tests.helpers.everyday import everyday
from tests.messages.mistakes import MISTAKES

MESSAGES = Path(__file__).with_name("mistakes.txt")
UPDATE = os.environ.get("SHARDWISE_UPDATE_GOLDENS", "") not in ("", "0")
OWN_FRAMES = 4  # at most; the innermost one raises the error

# Where the class differs, and why.
OTHERWISE = {
    "concatenate array": "a TypeError: an array of no dimensions is no sequence",
    "device_put target": "a TypeError: text is no place",
    "fori bounds": "JAX takes floats",
    "histogram": "NumPy's methods for bins are not there",
    "lax.dot": "a TypeError, as all checks of operands by ops are",
    "linear_transpose": "JAX fails by an assertion",
    "pure_callback shape": "JAX's runtime fails",
    "spec twice": "JAX's class is private",
    "constraint spec": "JAX raises RuntimeError; a spec without a mesh is a ValueError elsewhere",
    "make_mesh str": "a TypeError: text is no sequence of sizes",
    "hessian argnums": "JAX: ValueError here, TypeError in grad",
    "x.sum axis str": "JAX looks for a named axis",
    "x.swapaxes": "JAX: IndexError here, ValueError for all other axes",
    "split axis": "JAX: IndexError here, ValueError for all other axes",
    "categorical": "JAX: IndexError here, ValueError for all other axes",
    "x[arrays]": "an IndexError, as NumPy's",
    "x.at.add bool": "a TypeError: None is no operand",
    "take float": "a TypeError, as NumPy's",
    "bincount rank": "a TypeError, with the type in one message",
    "x.repeat": "JAX takes no list of counts",
    "repeat": "JAX takes no list of counts",
    "apply_along_axis": "the function is not there",
    "vectorize": "the function is not there",
    "del x[0]": "JAX has no such method, and says no more",
    "sharding str": "JAX fails by an AttributeError",
    "normal keys": "JAX fails by an AttributeError",
    "key + 1": "JAX fails by an AttributeError",
    "attention": "JAX fails by an AttributeError",
    "glu": "JAX fails by an assertion",
    "unique size": "a ValueError: the type is right",
}


def raised(name, package):
    """The error that a mistake raises; None if it raises none."""
    try:
        MISTAKES[name](package)
    except Exception as error:
        return error
    return None


def text_of(error):
    text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", str(error))
    text = re.sub(r"\S*mistakes\.py:\d+", "FILE", text)
    text = re.sub(r"( keyword argument '\w+')\. Did you mean '\w+'\?$", r"\1", text)  # Python 3.13
    return f"{type(error).__name__}: {text}"


@pytest.fixture(scope="module")
def messages():
    rows = MESSAGES.read_text().split("\n\n") if MESSAGES.exists() else []
    return dict(row.strip("\n").split("\n", 1) for row in rows)


@pytest.mark.skipif(not UPDATE, reason="writes the messages anew")
def test_write():
    rows = [f"{name}\n{text_of(raised(name, sw))}" for name in MISTAKES]
    MESSAGES.write_text("\n\n".join(rows) + "\n")


@pytest.mark.parametrize("name", everyday(MISTAKES, 141))
def test_the_message_is_short_of_frames_and_as_it_was(name, messages):
    error = raised(name, sw)
    assert error is not None
    assert text_of(error) == messages[name]
    frames = traceback.extract_tb(error.__traceback__)
    assert sum(is_own(f.filename) for f in frames) <= OWN_FRAMES, frames
    shown = error.__context__ is None or error.__suppress_context__
    assert shown, "another error is shown above it"


@pytest.mark.sweep
def test_the_class_is_what_users_of_jax_catch():
    jax = pytest.importorskip("jax")
    unlike = {}
    for name in MISTAKES.keys() - OTHERWISE.keys():
        theirs, ours = raised(name, jax), raised(name, sw)
        jax.config.update("jax_enable_x64", False)  # JAX takes any value: "nope" turns it on
        kinds = [c for c in type(theirs).__mro__ if c.__module__ == "builtins"]
        if theirs is not None and not isinstance(ours, kinds[0]):
            unlike[name] = text_of(theirs), text_of(ours)
    assert not unlike

"""Types of command-line arguments: whole numbers, and seconds."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    found = number(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"it must be 1 or more; got {text}.")
    return found


def number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"it must be an integer; got {text!r}.")
    return int(text)


def seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise argparse.ArgumentTypeError(f"it must be a positive number of seconds; got {text!r}.")
    return found

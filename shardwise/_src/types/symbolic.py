"""Sizes that are no numbers yet."""

from __future__ import annotations


class Symbolic:
    """A dimension of exported programs that calls decide on (export/dims.py)."""

    __slots__ = ()

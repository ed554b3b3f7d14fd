"""Finds and describes the host values that differ between two processes.

It is used when the checksums of the values that two processes put before a launch differ. It
queries both for the values' types and the checksums of their blocks, then for the elements of the
first block that differs. It does not wait for late answers.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANSWERED_WITHIN = 2.0  # seconds


class Difference:
    """A difference between two processes, before a launch over a set of them.

    names: the names of the processes, by rank.
    """

    def __init__(self, key: str, number: int, program: str, names: dict[int, str]):
        self.key, self.number, self.program, self.names = key, number, program, names
        self.begin = time.monotonic()
        self.place: tuple[int, int] | None = None  # the value and block being queried
        self._abouts: list[list[Any]] = []
        self._answers: dict[int, dict[str, Any]] = {}

    @property
    def ranks(self) -> list[int]:
        return sorted(self.names)

    def question(self) -> dict[str, Any]:
        return {"op": "values", "set": self.key, "number": self.number, "place": self.place}

    def unknown(self) -> str:
        a, b = self.ranks
        return f"{self.names[a]} and {self.names[b]} differ"

    def answer(self, rank: int, message: dict[str, Any]) -> str | None:
        """Handles an answer of a process; returns the difference, or None if more is needed.

        Raises:
          ValueError, LookupError, TypeError, AttributeError: the message is malformed.
        """
        if "about" in message:
            message["about"] = [
                (str(at), str(dtype), [int(n) for n in shape], [int(n) for n in sums])
                for at, dtype, shape, sums in message["about"]
            ]
        else:
            message["bytes"] = bytes.fromhex(message["bytes"])
            message["texts"] = [str(text)[:100] for text in message["texts"]]
            message["first"] = int(message["first"])
        self._answers[rank] = message
        if len(self._answers) < 2:
            return None
        first, second = [self._answers[rank] for rank in self.ranks]
        self._answers = {}
        if self.place is None:
            return self._compare(first["about"], second["about"])
        return self._element(first, second)

    @property
    def is_to_be_asked(self) -> bool:
        return not self._answers

    def _compare(self, first: list[Any], second: list[Any]) -> str | None:
        """The difference in the values' number or types; None if a differing block is found."""
        if not first or not second:
            return self.unknown()  # no longer cached
        if len(first) != len(second):
            rows = [(len(about), *about[-1][:1]) for about in (first, second)]
            return self._said([f"{n} value{'s' * (n > 1)}, the last at {at}" for n, at in rows])
        for i, (one, other) in enumerate(zip(first, second, strict=True)):
            if one[1:3] != other[1:3]:
                return self._said([f"{_typed(about)} at {about[0]}" for about in (one, other)])
            for block, sums in enumerate(zip(one[3], other[3], strict=True)):
                if sums[0] != sums[1]:
                    self.place, self._abouts = (i, block), [one, other]
                    return None
        return self.unknown()

    def _element(self, first: dict[str, Any], second: dict[str, Any]) -> str:
        (bytes_a, texts_a), (bytes_b, texts_b) = [
            (answer["bytes"], answer["texts"]) for answer in (first, second)
        ]
        if not texts_a or len(texts_a) != len(texts_b) or 0 in self._abouts[0][2]:
            return self.unknown()
        size = len(bytes_a) // len(texts_a)
        differs = [
            bytes_a[k * size : (k + 1) * size] != bytes_b[k * size : (k + 1) * size]
            for k in range(len(texts_a))
        ]
        if True not in differs:
            return self.unknown()
        at = differs.index(True)
        index: list[int] = []
        left = first["first"] + at
        for n in reversed(self._abouts[0][2]):
            index = [left % n, *index]
            left //= n
        where = f"element {index} of {_typed(self._abouts[0])}" if index else "a value"
        said = [
            f"{texts[at]} in {self.names[rank]}, put at {about[0]}"
            for rank, about, texts in zip(self.ranks, self._abouts, (texts_a, texts_b), strict=True)
        ]
        return f"{where} is {', and '.join(said)}"

    def _said(self, texts: list[str]) -> str:
        return " and ".join(
            [f"{self.names[rank]} put {text}" for rank, text in zip(self.ranks, texts, strict=True)]
        )


def _typed(about: Any) -> str:
    _, dtype, shape, _ = about
    return f"{dtype}[{','.join(map(str, shape))}]"

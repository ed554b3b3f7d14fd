"""Malformed protocol messages, from fixed seeds.

For example:

    for line in malformed(VALID, seed=1, count=40):
        sock.sendall(line)
"""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**400,
    float("inf"),
    float("nan"),
    1.5,
    "",
    "x",
    "0,99",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
    [None],
    ["0"],
    [0, [[0]]],
    {"0,1": [1, [[1, "d", "n"]]]},
    {"9": [1, []]},
)


def malformed(valid: Sequence[dict[str, Any]], seed: int, count: int) -> Iterator[bytes]:
    """valid: messages to malform: some are truncated, some get other values in their fields."""
    rng = random.Random(seed)
    for number in range(count):
        yield _KINDS[number % len(_KINDS)](rng, rng.choice(valid)) + b"\n"


def _noise(rng: random.Random, message: dict[str, Any]) -> bytes:
    return rng.randbytes(rng.randrange(1, 400))


def _cut(rng: random.Random, message: dict[str, Any]) -> bytes:
    line = json.dumps(message).encode()
    return line[: rng.randrange(1, len(line))]


def _other_type(rng: random.Random, message: dict[str, Any]) -> bytes:
    """With another value in a field, possibly a nested one."""
    changed = json.loads(json.dumps(message))
    within, place = changed, rng.choice([*message])
    while isinstance(within[place], dict) and within[place] and rng.random() < 0.7:
        within, place = within[place], rng.choice([*within[place]])
    within[place] = rng.choice(JUNK)
    return json.dumps(changed).encode()


def _lacking(rng: random.Random, message: dict[str, Any]) -> bytes:
    left_out = rng.choice([*message])
    return json.dumps({k: v for k, v in message.items() if k != left_out}).encode()


def _unknown(rng: random.Random, message: dict[str, Any]) -> bytes:
    names = ("", "exec", "__class__", "serve", "mind", "run", "wake", 1, None, ["join"])
    return json.dumps({**message, "op": rng.choice(names)}).encode()


def _deep(rng: random.Random, message: dict[str, Any]) -> bytes:
    opening = rng.choice((b"[", b'{"op":'))
    return opening * rng.choice((1000, 100_000))


def _no_object(rng: random.Random, message: dict[str, Any]) -> bytes:
    return json.dumps(rng.choice(JUNK)).encode()


_KINDS = (_noise, _cut, _other_type, _lacking, _unknown, _other_type, _deep, _no_object)

"""Static types of jitted functions; `make lint` checks them, nothing runs this."""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

import shardwise as sw


def scale(a: int, b: float = 2.0) -> list[str]:
    return [str(a * b)]


@sw.jit
def step(x: int) -> int:
    return x


assert_type(sw.jit(scale)(1, b=3.0), list[str])
assert_type(sw.jit(static_argnums=0)(scale)(1), list[str])
assert_type(step(1), int)

step("no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sw.jit(scale, static_argnum=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

"""The sources for families of cases: meshes, layouts, a generator; and the list of families.

All small choices (the amounts of `pad` in a dimension), times some of the meshes and shardings,
drawn with a fixed seed: the same cases in every run.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from tests.values.structure import Case, Input

T = TypeVar("T")

MESHES = [(2,), (3,), (4,), (5,), (6,), (8,), (2, 2), (2, 3), (2, 4), (4, 2), (3, 2)]
FLOAT, INT = "float32", "int32"
MOST = 400  # cases of a family: about 40 seconds
SIZES = (0, 1, 2, 4, 5, 8, 9)
DTYPES = (FLOAT, FLOAT, INT, "bool", "int8", "uint8", "bfloat16", "float16", "complex64", "uint32")


@functools.cache
def specs(ndim: int, mesh: tuple[int, ...]) -> list[str]:
    """All shardings of `ndim` dimensions over (some) axes of a mesh, replicated ones last."""
    axes = "xyz"[: len(mesh)]
    found = []
    for where in itertools.product(range(-1, ndim), repeat=len(axes)):
        parts = [
            "".join(a for a, w in zip(axes, where, strict=True) if w == d) or "-"
            for d in range(ndim)
        ]
        found.append(",".join(parts))
    return sorted(set(found), reverse=True)


class Draw:
    """Draws from a generator that is the same in every run."""

    def __init__(self, name: str):
        self.random = random.Random(name)

    def of(self, choices: Iterable[T]) -> T:
        return self.random.choice(list(choices))

    def some(self, choices: Iterable[T], count: int) -> list[T]:
        found = list(choices)
        return self.random.sample(found, min(count, len(found)))

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def case(
        self,
        program: str,
        shapes: Sequence[Input | tuple[int, ...]],
        outs: Sequence[int] | int,
        wanted: str = "",
        close: float = 0.0,
    ) -> Case:
        """The program over a random mesh, under random specs.

        shapes: of the arguments, or the arguments without their specs. outs: ranks of results.
        """
        mesh = self.of(MESHES)
        given = [x if isinstance(x, Input) else Input(x) for x in shapes]
        inputs = tuple(
            Input(x.shape, self.of(specs(len(x.shape), mesh)), x.dtype, x.holds) for x in given
        )
        ranks = [outs] if isinstance(outs, int) else outs
        out = ";".join(self.of([*specs(n, mesh), "?"]) for n in ranks)
        return Case(program, inputs, mesh, out, wanted, close)


def index(value: int, dtype: str = INT) -> Input:
    """A scalar argument of this value: a position that is known only at run time."""
    return Input((), "", dtype, f"{value}:{value}")


Family = Callable[[], Iterable[Case]]
FAMILIES: dict[str, Family] = {}


def family(cases: Family) -> Family:
    """Adds a function that yields cases to the list."""
    FAMILIES[cases.__name__] = cases
    return cases


@functools.cache
def cases_of(name: str, most: int | None = MOST) -> tuple[Case, ...]:
    """The distinct cases of a family, shuffled."""
    found = list(dict.fromkeys(FAMILIES[name]()))
    random.Random(name).shuffle(found)
    return tuple(found[:most])

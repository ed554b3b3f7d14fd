"""Partial evaluation of a scan: one scan of the known part, one of the rest, and residuals.

A residual is a value that the rest needs from the known part, in every step. Values that depend
only on known constants are computed once, before the loop, and become constants of the rest; slices
of xs are passed on as xs; everything else is stacked by the known scan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.marks import partition
from shardwise._src.control.call import call
from shardwise._src.control.programs import ScanParams
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import derived
from shardwise._src.transforms.linearize import Split, split_program
from shardwise._src.transforms.residuals import split_and_shrink

Marks = tuple[bool, ...]


@derived
def unknown_carries(body: Program, num_consts: int, num_carry: int, unknown: Marks) -> Marks:
    """Which carries depend on something unknown, in some step."""
    consts, carry = unknown[:num_consts], unknown[num_consts : num_consts + num_carry]
    xs = unknown[num_consts + num_carry :]
    while True:
        found = split_program(body, (*consts, *carry, *xs)).unknown_out[:num_carry]
        grown = tuple([a or b for a, b in zip(carry, found, strict=True)])
        if grown == carry:
            return carry
        carry = grown


class SplitPlan:
    """The plan for a scan whose arguments are partly known.

    unknown_in, unknown_out: which of the scan's arguments and results are unknown.
    before:   computes the loop invariants, from the known constants.
    loop:     the body of the known scan.
    rest:     the body of the scan of the rest.
    rest_positions: of the unknown arguments, among those of the rest.
    """

    def __init__(self, body: Program, num_consts: int, num_carry: int, unknown: Marks):
        carry = unknown_carries(body, num_consts, num_carry, unknown)
        end = num_consts + num_carry
        self.unknown_in = (*unknown[:num_consts], *carry, *unknown[end:])
        self.num_carry = num_carry
        self.counts = num_consts, num_carry
        self.parts: Split = split_and_shrink(body, self.unknown_in)
        self.unknown_out = (*carry, *self.parts.unknown_out[num_carry:])
        self.known_consts = unknown[:num_consts].count(False)
        self.known_carry = carry.count(False)
        self._separate_invariants()
        self._plan_loop()
        self._plan_rest()

    def _separate_invariants(self) -> None:
        """Splits the known body again: into invariants and values that change from step to step."""
        known = self.parts.known
        changing = len(known.invars) - self.known_consts
        inner = split_program(known, (False,) * self.known_consts + (True,) * changing)
        self.inner, self.before = inner, inner.known
        atoms = iter(inner.rest.outvars)
        number = iter(range(len(known.outvars)))
        # Each result of the known body: a position among the invariants, or an atom of the loop.
        self.results: list[Any] = [next(atoms) if u else next(number) for u in inner.unknown_out]

    def _plan_loop(self) -> None:
        """The known scan: carries, then ys, then residuals that change; each stacked once."""
        rest = self.inner.rest
        consts = list(rest.invars[: len(self.inner.forwarded)])
        self.changing = list(rest.invars[len(self.inner.forwarded) :])
        self.loop_invariants: list[int] = []
        extra: list[Var] = []

        def in_loop(result: Any) -> Any:
            """An atom of the loop; an invariant becomes a constant of the loop."""
            if not isinstance(result, int):
                return result
            if result not in self.loop_invariants:
                self.loop_invariants.append(result)
                extra.append(Var(self.before.outvars[result].aval))
            return extra[self.loop_invariants.index(result)]

        self.stacked: list[Any] = []
        known_outs = iter(self.results)
        carried, self.y_places, self.known_later = [], [], {}
        for i, u in enumerate(self.parts.unknown_out):
            if u:
                continue
            result = next(known_outs)
            if i >= self.num_carry:
                self.y_places.append(self._stack(in_loop(result)))
            elif self.unknown_out[i]:
                self.known_later[i] = result  # unknown at first, known after the first step
            else:
                carried.append(in_loop(result))
        self.residuals = list(known_outs)
        self.sources = [self._source(p) for p in self._residual_results()]
        self.known_later = {i: self._source(r) for i, r in self.known_later.items()}
        inputs = [*rest.constvars, *consts, *extra, *self.changing]
        self.loop = rest.replace(inputs=inputs, outvars=carried + self.stacked)
        self.loop_consts = len(consts) + len(extra)

    def _stack(self, atom: Any) -> int:
        """The position of an atom among the stacked results."""
        for i, held in enumerate(self.stacked):
            if held is atom:
                return i
        self.stacked.append(atom)
        return len(self.stacked) - 1

    def _residual_results(self) -> list[Any]:
        """For each residual: a result of the known body, or the argument that it equals."""
        computed = iter(self.residuals)
        return [next(computed) if p is None else ("argument", p) for p in self.parts.forwarded]

    def _source(self, result: Any) -> tuple[str, int]:
        """The source of a residual's value, outside the loop."""
        if isinstance(result, int):
            return "before", result
        if isinstance(result, tuple):
            position = result[1]
            if position < self.known_consts:
                return "constant", position
            place = position - self.known_consts
            if place >= self.known_carry:
                return "xs", place - self.known_carry
            return "stacked", self._stack(self.changing[place])
        return "stacked", self._stack(result)

    def _plan_rest(self) -> None:
        """The rest: residuals become constants or xs, depending on their source."""
        rest = self.parts.rest
        count = len(self.parts.forwarded)
        residual_vars, unknown_vars = list(rest.invars[:count]), rest.invars[count:]
        sources = list(self.sources)
        outputs, found = [], iter(rest.outvars)
        for i, u in enumerate(self.unknown_out):
            if not u:
                continue
            if i in self.known_later:
                sources.append(self.known_later[i])
                aval = self.parts.known.outvars[self._known_place(i)].aval
                residual_vars.append(Var(aval))
                outputs.append(residual_vars[-1])
            else:
                outputs.append(next(found))
        rows = list(zip(residual_vars, sources, strict=True))
        fixed = [row for row in rows if row[1][0] in ("before", "constant")]
        moving = [row for row in rows if row[1][0] in ("stacked", "xs")]
        consts = sum(self.unknown_in[: self.counts[0]])
        carry = sum(self.unknown_in[self.counts[0] : sum(self.counts)])
        inputs = [
            *[v for v, _ in fixed],
            *unknown_vars[: consts + carry],
            *[v for v, _ in moving],
            *unknown_vars[consts + carry :],
        ]
        self.rest = rest.replace(inputs=[*rest.constvars, *inputs], outvars=outputs)
        self.fixed = [s for _, s in fixed]
        self.moving = [s for _, s in moving]
        self.rest_counts = len(fixed) + consts, carry
        places = {v: i for i, v in enumerate(inputs)}
        self.rest_positions = [places[v] for v in unknown_vars]

    def _known_place(self, i: int) -> int:
        return self.parts.unknown_out[:i].count(False)

    def run(
        self, bind: Callable, scan: Op, args: Sequence[Any], params: dict
    ) -> tuple[list[Any], list[Any], dict]:
        """Runs the known part; returns its results, and arguments and parameters of the rest.

        bind: `(op, args, params) → results`, for known values.
        """
        own = ScanParams(**params)
        known, rest_args = partition(args, self.unknown_in)
        consts, changing = known[: self.known_consts], known[self.known_consts :]
        computed = _run(bind, self.before, consts)
        count = len(self.results) - sum(self.inner.unknown_out)
        held = self.inner.residuals(consts, computed[count:])
        held += [computed[i] for i in self.loop_invariants]
        stacked: list[Any] = []
        carried: list[Any] = []
        if self.loop.outvars:
            first = own._replace(
                body=self.loop, num_consts=self.loop_consts, num_carry=self.known_carry
            )
            outs = bind(scan, [*held, *changing], first._asdict())
            carried, stacked = outs[: self.known_carry], outs[self.known_carry :]
        values = {
            "before": computed,
            "constant": consts,
            "stacked": stacked,
            "xs": changing[self.known_carry :],
        }
        count = self.rest_counts[0] - len(self.fixed) + self.rest_counts[1]
        fixed, moving = [[values[kind][i] for kind, i in s] for s in (self.fixed, self.moving)]
        ordered = [*fixed, *rest_args[:count], *moving, *rest_args[count:]]
        last = ScanParams(self.rest, *self.rest_counts, own.length, own.reverse, own.unroll)
        return [*carried, *[stacked[i] for i in self.y_places]], ordered, last._asdict()


def _run(bind: Callable, program: Program, args: Sequence[Any]) -> list[Any]:
    """A program's results; one that computes nothing is not called."""
    if program.eqns or program.consts:
        return bind(call, args, {"program": program}) if program.outvars else []
    return program(*args)


split_plan = derived(SplitPlan)

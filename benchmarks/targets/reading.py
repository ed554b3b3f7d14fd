"""What an optimized program consists of, read from its HLO text.

    facts = read(compiled)
    facts.counts["fusions"], facts.collectives, facts.calls

Instructions count if they are executed by themselves: those of the entry computation, and of bodies of
loops, branches and calls; not those inside of fusions, or the bodies of reductions. Those of a loop
count once for each iteration, if XLA knows how many there are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from shardwise._src.explain import hlo

COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[\w.-]+) .*\{$")
INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%(?P<name>[\w.-]+) = (?P<type>\((?:[^()]|\([^()]*\))*\)|\S+) (?P<op>[\w-]+)\("
    r"(?P<rest>.*)$"
)
COMMENT = re.compile(r"/\*.*?\*/")  # `/*index=5*/` inside of long tuples
ARRAY = re.compile(r"([a-z]\w*)\[([\d,]*)\]")
OPERAND = re.compile(r"%([\w.-]+)")
CALLED = re.compile(r"(?:calls|body|condition|to_apply|branch_computations)=\{?((?:%[\w.-]+,? ?)+)")
TARGET = re.compile(r'custom_call_target="([^"]*)"')

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# Not executed: values by other names, and the second halves of asynchronous instructions.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "call",
        "optimization-barrier", "partition-id", "iota", "async-start", "async-done",
        "async-update"}  # fmt: skip
# Custom calls that are part of a fusion or only allocate, by target.
INTERNAL = {"AllocateBuffer", "AssumeGatherIndicesInBound", "Sharding"}


@dataclass
class Facts:
    """collectives: how often each occurs, by kind and size: `{"all-reduce f32[1024]": 2}`.
    calls: custom calls, by target.
    counts: fusions, kernels (all instructions that are executed), copies, bytes that collectives
        send, asynchronous collectives.
    memory: temporary and peak bytes.
    seconds: XLA's estimate, if it has one; it counts one iteration of a loop.
    loops: the numbers of iterations, 0 if unknown.
    """

    collectives: dict[str, int]
    calls: dict[str, int]
    counts: dict[str, int]
    loops: list[int] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read(compiled: Any) -> Facts:
    """The facts of a compiled function of either library."""
    facts = read_text(compiled.as_text())
    stats = compiled.memory_analysis()
    for name in ("temp", "peak_memory"):
        size = getattr(stats, f"{name}_size_in_bytes", getattr(stats, f"{name}_in_bytes", None))
        if size is not None:
            facts.memory[name.partition("_")[0]] = size
    try:
        cost = compiled.cost_analysis()
    except Exception:  # CUDA's compiler does not estimate
        cost = None
    cost = cost[0] if isinstance(cost, list) else cost
    facts.seconds = (cost or {}).get("optimal_seconds")
    return facts


def read_text(text: str) -> Facts:
    computations, entry = _parsed(text)
    types = {i["name"]: i["type"] for body in computations.values() for i in body}
    collectives: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    counts: Counter[str] = Counter({"fusions": 0, "kernels": 0, "copies": 0, "sent": 0, "async": 0})
    module = hlo.read(text)
    times = {name: count for name, (count, _) in module.runs.items() if name in computations}
    loops = sorted([i.trips or 0 for _, i in module if i.opcode == "while"])
    for name, count in times.items():  # the TPU compiler has collectives inside of fusions
        for i in computations[name]:
            kind = i["op"].removesuffix("-start")
            if kind in KINDS:
                operands = OPERAND.findall(i["rest"].partition(")")[0])
                sizes = [_arrays(types[x]) for x in operands if x in types]
                arrays = Counter(sorted(a for found in sizes for a, _ in found))
                parts = [f"{n}×{a}" if n > 1 else a for a, n in arrays.items()]
                collectives[" ".join((kind, *parts))] += count
                counts["sent"] += count * sum(size for found in sizes for _, size in found)
                counts["async"] += count * _is_asynchronous(i)
            if i["op"] == "custom-call" and not _is_internal(i):
                calls[_target(i)] += count
    for name in _executed(computations, entry):
        for i in computations[name]:
            op = i["op"]
            if op in FREE or op.endswith("-done") or (op == "custom-call" and _is_internal(i)):
                continue
            counts["kernels"] += times[name]
            counts["fusions"] += times[name] * (op == "fusion")
            counts["copies"] += times[name] * (op in ("copy", "copy-start"))
    return Facts(dict(collectives), dict(calls), dict(counts), loops)


def _parsed(hlo: str) -> tuple[dict[str, list[dict[str, str]]], str]:
    """The instructions of each computation, and the name of the entry computation."""
    computations: dict[str, list[dict[str, str]]] = {}
    entry, body = "", []
    for line in COMMENT.sub("", hlo).splitlines():
        if head := COMPUTATION.match(line):
            body = computations[head["name"]] = []
            entry = head["name"] if head["entry"] else entry
        elif found := INSTRUCTION.match(line):
            body.append(found.groupdict())
    return computations, entry


def _executed(computations: dict[str, list[dict[str, str]]], entry: str) -> list[str]:
    """The computations whose instructions are executed one by one."""
    found, open_ = [], [entry]
    while open_:
        name = open_.pop()
        if name in found or name not in computations:
            continue
        found.append(name)
        for i in computations[name]:
            if i["op"] in ("while", "conditional", "call", "async-start"):
                for names in CALLED.findall(i["rest"]):
                    open_ += OPERAND.findall(names)
    return found


def _is_asynchronous(i: dict[str, str]) -> bool:
    """Whether other instructions may run during a collective."""
    return i["op"].endswith("-start") and '"is_sync":true' not in i["rest"]


def _target(i: dict[str, str]) -> str:
    """The name of the function that a custom call calls."""
    found = TARGET.search(i["rest"])
    return "" if found is None else found[1]


def _is_internal(i: dict[str, str]) -> bool:
    return _target(i) in INTERNAL


def _arrays(text: str) -> list[tuple[str, int]]:
    """The arrays of a type, by dtype and number of elements, with their bytes.

    An array that is sent in its transposed form is the same communication.
    """
    found = []
    for dtype, sizes in ARRAY.findall(text):
        count = math.prod(map(int, filter(None, sizes.split(","))))
        bits = 8 if dtype == "pred" else int((re.findall(r"\d+", dtype) or ["0"])[0])
        found.append((f"{dtype}[{count}]", count * bits // 8))
    return found

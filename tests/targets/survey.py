"""Compiles every op and public function for machines that are not attached, and shows the results.

    python -m tests.targets.survey                              # for CUDA and TPU
    python -m tests.targets.survey --platform cuda --jax        # what jax does with the others
    python -m tests.targets.survey --only 'numpy*' 'dtypes/*'   # groups and programs, as globs

A program is *compiled*, or *refused*: this library says that the platform lacks something, and what
to do. Anything else is a mistake: it *failed* with a message of XLA, or its process *crashed*. A
failed check of XLA ends its process, so that children compile the programs. If one dies, the
programs of its batch are compiled again, each in a separate child.

Programs that cannot be lowered for a CPU either, such as the derivative of an integer function, are
not counted. It prints a table, and writes build/survey.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.helpers.patience import Deadline

ROOT = Path(__file__).resolve().parents[2]
PER_BATCH, PER_CHILD = 16, 12  # programs compiled as one; batches
SECONDS = 600  # of an idle machine that a child may take without output
FLAGS = "--xla_force_host_platform_device_count=8"
CRASHED, INVALID, COMPILED, REFUSED = "crashed", "invalid", "compiled", "refused"


@dataclass
class Result:
    """What became of a program on a platform; with `jax`, of jax's program."""

    name: str
    platform: str
    result: str
    message: str = ""
    jax: str = ""
    jax_message: str = ""

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


@dataclass
class Child:
    """One run of `survey_child`, and how far it got."""

    library: str
    platform: str
    batches: list[list[str]]
    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    started: int = -1
    ended: bool = False
    errors: str = ""
    late: bool = False

    def run(self) -> None:
        given = {"library": self.library, "platform": self.platform, "batches": self.batches}
        environment = {
            **os.environ,
            "XLA_FLAGS": FLAGS,
            "JAX_PLATFORMS": "cpu",
            "SHARDWISE_ENABLE_COMPILATION_CACHE": "0",
            "TF_CPP_MIN_LOG_LEVEL": "1",
            "TPU_LOG_DIR": "disabled",  # libtpu writes files there
        }
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(
                [sys.executable, "-m", "tests.targets.survey_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=environment,
            ) as process:
                assert process.stdin
                process.stdin.write(json.dumps(given))
                process.stdin.close()
                self._read(process)
            errors.seek(0)
            self.errors = errors.read()

    def _read(self, process: subprocess.Popen[str]) -> None:
        ended, current = threading.Event(), [Deadline(SECONDS)]

        def watch() -> None:
            while not ended.wait(0.5):
                deadline = current[0]
                if deadline.is_over() and deadline is current[0]:  # no output meanwhile
                    self.late = True
                    process.kill()
                    return

        watching = threading.Thread(target=watch)
        watching.start()
        assert process.stdout
        for line in process.stdout:
            current[0] = Deadline(SECONDS)
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            if "start" in row:
                self.started = row["start"]
            elif "end" in row:
                self.ended = True
            else:
                self.found[row["name"]] = (row["result"], row["message"])
        ended.set()
        process.wait()
        watching.join()

    @property
    def cause(self) -> str:
        """Why it died, from what it wrote to its standard error."""
        if self.late:
            return f"no output for {SECONDS} seconds of an idle machine"
        lines = [line for line in self.errors.splitlines() if line.strip()]
        for line in lines:
            if "Check failed" in line or "F0000" in line or "Error:" in line:
                return line[:600]
        return (lines or ["no output"])[0][:600]


def outcomes(
    names: Sequence[str], library: str, platform: str, workers: int = 2
) -> dict[str, tuple[str, str]]:
    """The result and message of each program."""
    size = PER_BATCH if library == "shardwise" else 4
    batches = [list(names[i : i + size]) for i in range(0, len(names), size)]
    groups = [batches[i : i + PER_CHILD] for i in range(0, len(batches), PER_CHILD)]
    found: dict[str, tuple[str, str]] = {}
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(lambda group: _finished(library, platform, group), groups):
            found.update(part)
            print(f"{library} for {platform}: {len(found)} of {len(names)}", file=sys.stderr)
    return found


def _finished(library: str, platform: str, batches: list[list[str]]) -> dict[str, tuple[str, str]]:
    """Runs children until all programs of the batches have a result."""
    found: dict[str, tuple[str, str]] = {}
    while batches:
        child = Child(library, platform, batches)
        child.run()
        found.update(child.found)
        for name, (result, message) in child.found.items():
            if result not in (COMPILED, INVALID):
                print(f"{name}: {result}: {message[:200]}", file=sys.stderr)
        if child.ended:
            break
        if child.started < 0:
            raise RuntimeError(f"a child did not start:\n{child.errors[-3000:]}")
        left = [n for n in batches[child.started] if n not in child.found]
        if len(left) == 1:
            found[left[0]] = (CRASHED, child.cause)
            print(f"{left[0]}: {CRASHED}: {child.cause[:200]}", file=sys.stderr)
            left = []
        batches = [*[[n] for n in left], *batches[child.started + 1 :]]
    return found


# -- tables --


def table(results: Iterable[Result], platform: str) -> str:
    """Counts by group."""
    rows = [r for r in results if r.platform == platform and r.result != INVALID]
    kinds = (COMPILED, REFUSED, "failed", CRASHED)
    lines = [f"{platform:32}" + "".join(f"{k:>10}" for k in kinds)]
    groups = dict.fromkeys([r.group for r in rows])
    for group in groups:
        counts = Counter(r.result for r in rows if r.group == group)
        lines.append(f"{group:32}" + "".join(f"{counts[k] or '':>10}" for k in kinds))
    counts = Counter(r.result for r in rows)
    lines.append(f"{'all':32}" + "".join(f"{counts[k]:>10}" for k in kinds))
    return "\n".join(lines)


def reason_of(message: str) -> str:
    """A message without what differs from program to program: types and lines."""
    kind, _, text = message.partition(": ")
    op = re.match(r"\[\w+\]", text)
    _, found, reason = text.partition(" cannot be compiled for ")
    return f"{kind}: {op[0] if op else ''} … {reason}"[:230] if found else message[:160]


def others(results: Iterable[Result], platform: str) -> Iterator[str]:
    """The programs that were not compiled, by message."""
    rows = [r for r in results if r.platform == platform]
    for kind in ("failed", CRASHED, REFUSED):
        reasons: dict[str, list[Result]] = {}
        for r in rows:
            if r.result == kind:
                reasons.setdefault(reason_of(r.message), []).append(r)
        for reason, held in sorted(reasons.items(), key=lambda item: -len(item[1])):
            yield f"{kind} {len(held)}: {reason}"
            beside = Counter(r.jax for r in held if r.jax)
            if beside:
                yield "    jax: " + ", ".join(f"{n} {k}" for k, n in beside.items())
            yield "    " + ", ".join(r.name for r in held[:8]) + (" …" if held[8:] else "")


def chosen(only: Sequence[str]) -> list[str]:
    from tests.targets.survey_child import every

    globs = [glob if "/" in glob else f"{glob}/*" for glob in only or ["*"]]
    return [n for n in every() if any(fnmatch(n, glob) for glob in globs)]


def surveyed(platform: str, only: Sequence[str], jax: str, workers: int) -> list[Result]:
    """The results on a platform. jax: "" without it, "others" for what this library does not
    compile, "all"."""
    from tests.targets.survey_child import find

    names = chosen(only)
    found = outcomes(names, "shardwise", platform, workers)
    results = [Result(n, platform, *found[n]) for n in names]
    if jax:
        asked = [r for r in results if jax == "all" or r.result not in (COMPILED, INVALID)]
        asked = [r for r in asked if not find(r.name).ours]
        theirs = outcomes([r.name for r in asked], "jax", platform, workers)
        for r in asked:
            r.jax, r.jax_message = theirs[r.name]
    return results


def main() -> None:
    os.environ.setdefault("XLA_FLAGS", FLAGS)
    parser = argparse.ArgumentParser(prog="python -m tests.targets.survey")
    parser.add_argument("--platform", choices=("cuda", "tpu"), action="append")
    parser.add_argument("--only", nargs="*", default=[], help="groups or group/name, as globs")
    parser.add_argument("--jax", nargs="?", const="others", default="", choices=("others", "all"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", default=str(ROOT / "build" / "survey.json"))
    options = parser.parse_args()
    results: list[Result] = []
    for platform in options.platform or ("cuda", "tpu"):
        begin = time.monotonic()
        results += surveyed(platform, options.only, options.jax, options.workers)
        print(table(results, platform))
        print("\n".join(others(results, platform)))
        print(f"{time.monotonic() - begin:.0f} s\n", flush=True)
    Path(options.out).parent.mkdir(exist_ok=True)
    Path(options.out).write_text(json.dumps([vars(r) for r in results], indent=1))
    sys.exit(any([r.result in ("failed", CRASHED) for r in results]))


if __name__ == "__main__":
    main()

"""Random programs under every sharding, from the command line.

For example:

    python -m tests.values.programs 0 100            # seeds 0 to 99: counts and failures
    python -m tests.values.programs 17               # one, with its text
    python -m tests.values.programs 17 --shrink      # the smallest program that is still wrong
"""

from __future__ import annotations

import argparse
import os
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

from tests.values.programs.sweep import show, sweep


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.values.programs")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--places", type=int, default=3)
    parser.add_argument("--shrink", action="store_true")
    given = parser.parse_args()
    end = given.end if given.end is not None else given.first + 1
    started = time.monotonic()
    shrink = 120 if given.shrink else 0
    report = sweep(range(given.first, end), given.places, shrink=shrink, tell=print)
    if given.end is None and not report.failures:
        print(show(given.first))
    print(f"{report}; {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()

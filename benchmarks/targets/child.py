"""Compiles programs with one library: `benchmarks.targets.child --save= LIBRARY MACHINE NAME…`.

Prints a line of JSON for each: its facts, or its error.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

from benchmarks.libs import prepare_environment


def main(library: str, machine: str, names: list[str], save: str = "") -> None:
    prepare_environment()
    warnings.simplefilter("ignore")
    from benchmarks.runner import first_line
    from benchmarks.targets.machines import target
    from benchmarks.targets.programs import PROGRAMS
    from benchmarks.targets.reading import read

    lib = target(library, machine)
    for name in names:
        print(json.dumps({"begun": name}), flush=True)
        began = time.perf_counter()
        try:
            made = PROGRAMS[name](lib)
            jitted = lib.root.jit(made.function, **made.options)
            lowered = jitted.lower(*made.arguments)
            compiled = lowered.compile()
            found = {"facts": read(compiled).as_json()}
            if save:
                stem = Path(save) / f"{name}.{machine.replace(':', '_')}.{library}"
                stem.with_name(f"{stem.name}.hlo").write_text(compiled.as_text())
                stem.with_name(f"{stem.name}.mlir").write_text(lowered.as_text())
        except Exception as error:
            found = {"error": first_line(error)}
        seconds = round(time.perf_counter() - began, 2)
        print(json.dumps({"name": name, "seconds": seconds, **found}), flush=True)


if __name__ == "__main__":
    folder, library, machine, *names = sys.argv[1:]
    main(library, machine, names, folder.removeprefix("--save="))

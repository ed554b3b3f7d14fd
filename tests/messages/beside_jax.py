"""Writes every message of mistakes.py next to JAX's message, for review.

For example:

    python -m tests.messages.beside_jax    # → build/mistakes.txt
"""

from __future__ import annotations

from pathlib import Path

import shardwise as sw
from tests.messages.mistakes import MISTAKES
from tests.messages.test_mistakes import raised, text_of

OUT = Path(__file__).parents[2] / "build" / "mistakes.txt"


def main() -> None:
    import jax

    rows = []
    for name in MISTAKES:
        ours, theirs = raised(name, sw), raised(name, jax)
        jax.config.update("jax_enable_x64", False)  # one of the mistakes turns it on
        there = text_of(theirs) if theirs is not None else "no error"
        rows.append(f"{name}\nhere: {text_of(ours)}\nJAX:  {there}\n")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("\n".join(rows))
    print(f"wrote {OUT}: {len(rows)} mistakes")


if __name__ == "__main__":
    main()

"""`shardwise describe CHECKPOINT`: lists the contents of a checkpoint, without reading arrays."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from shardwise._src.base.errors import CheckpointError
from shardwise._src.cli.arguments import command_parser
from shardwise._src.saving.manifest import describe


def parser() -> argparse.ArgumentParser:
    parser = command_parser("describe")
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help="a folder, or an address such as gs://bucket/folder",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Prints it; returns the exit status: 1 if there is no complete checkpoint."""
    asked = parser().parse_args(list(arguments))
    try:
        found = describe(asked.checkpoint)
    except (CheckpointError, ImportError, OSError, ValueError) as error:
        text = str(error).removeprefix("describe: ")
        print(f"shardwise describe: {text}", file=sys.stderr)
        return 1
    print(json.dumps(found.to_dict(), indent=2) if asked.json else found)
    return 0

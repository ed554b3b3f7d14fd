"""`shardwise launch`: starts a program in several processes, on one machine or many."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from shardwise._src.base.config import wait_report_secs, wait_timeout_secs
from shardwise._src.base.errors import did_you_mean
from shardwise._src.cli.arguments import (
    PROGRAM_USAGE,
    add_program,
    command_parser,
    count,
    number,
    program_of,
    seconds,
)
from shardwise._src.distributed.start import address_of
from shardwise._src.launch.launcher import launch
from shardwise._src.launch.workers import Plan

OF_OTHERS = {  # options of torchrun, mpirun and srun
    "nproc-per-node": "-n",
    "nprocs": "-n",
    "np": "-n",
    "ntasks": "-n",
    "num-processes": "-n",
    "nnodes": "--nodes",
    "max-restarts": "--restarts",
    "master-addr": "--coordinator",
    "rdzv-endpoint": "--coordinator",
    "coordinator-address": "--coordinator",
    "module": "-m",
    "min-np": "--min-processes",
}


def run(arguments: Sequence[str]) -> int:
    """Runs a program; returns its exit status."""
    own = parser()
    asked, unknown = own.parse_known_args(list(arguments))
    if unknown:
        _reject_option(own, unknown[0].partition("=")[0])
    plan = _plan(own, asked)
    for flag in (wait_report_secs, wait_timeout_secs):
        limit = getattr(asked, flag.name)
        if limit is not None:
            flag.set(limit)
    return launch(plan)


def parser() -> argparse.ArgumentParser:
    parser = command_parser("launch", usage=PROGRAM_USAGE, allow_abbrev=False)
    add = parser.add_argument
    add(
        "-n",
        "--processes",
        type=_processes,
        default=1,
        metavar="N",
        help="number of processes on this machine (1)",
    )
    add(
        "--devices-per-process",
        type=count,
        metavar="D",
        help="virtual CPU devices per process; with GPUs, each process gets the next D",
    )
    add(
        "--restarts",
        type=number,
        default=0,
        metavar="N",
        help="maximum number of restarts of all processes after one fails (0)",
    )
    add(
        "--min-processes",
        type=count,
        metavar="M",
        help="restart without the processes that were killed, as long as M are left in all (all)",
    )
    add(
        "--log-dir",
        type=Path,
        metavar="DIR",
        help="also write the output of process N to DIR/rank-N.log",
    )
    add(
        "--grace",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="time for processes to exit on their own when they are stopped (3)",
    )
    add = parser.add_argument_group("many machines").add_argument
    add(
        "--coordinator",
        metavar="HOST:PORT",
        help="address of the launcher of node 0; without it, only this machine is used",
    )
    add("--nodes", type=count, default=1, metavar="N", help="number of machines (1)")
    add("--node-rank", type=number, metavar="R", help="the index of this machine, from 0")
    waits = parser.add_argument_group("how long to wait, in seconds")
    add = functools.partial(waits.add_argument, type=seconds, metavar="SECONDS")
    text = "for all machines and processes to join (300)"
    add("--initialization-timeout", default=300.0, help=text)
    text = "for a heartbeat, before a process counts as lost (20)"
    add("--heartbeat-timeout-seconds", default=20.0, help=text)
    text = "for other processes, before the missing ones are reported"
    add("--wait-report-secs", help=f"{text} ({wait_report_secs.default:.0f})")
    text = "for other processes, before the wait fails"
    add("--wait-timeout-secs", help=f"{text} ({wait_timeout_secs.default:.0f})")
    add_program(parser)
    return parser


def _reject_option(parser: argparse.ArgumentParser, name: str) -> NoReturn:
    plain = name.strip("-").replace("_", "-")
    known = re.findall(r"--[a-z-]+", parser.format_help())
    hint = did_you_mean(OF_OTHERS.get(plain, f"--{plain}"), ("-n", "-m", *known))
    parser.error(f"unknown option {name!r}.{hint}")


def _plan(parser: argparse.ArgumentParser, asked: Any) -> Plan:
    address = None
    if asked.coordinator is not None:
        try:
            address = address_of("--coordinator", asked.coordinator)
        except ValueError as error:
            parser.error(str(error))
    if asked.nodes > 1 and (address is None or asked.node_rank is None):
        parser.error(
            "--nodes requires --node-rank, and the same --coordinator HOST:PORT on all nodes."
        )
    if asked.node_rank is not None and asked.node_rank >= asked.nodes:
        parser.error(
            f"--node-rank must be from 0 to --nodes - 1; got {asked.node_rank} with --nodes "
            f"{asked.nodes}."
        )
    _check_least(parser, asked)
    command = _command(parser, asked)
    if asked.log_dir is not None:
        try:
            asked.log_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--log-dir {asked.log_dir}: {error.strerror}.")
    return Plan(
        command,
        asked.processes,
        asked.devices_per_process,
        asked.restarts,
        asked.log_dir,
        address,
        asked.nodes,
        asked.node_rank or 0,
        asked.grace,
        asked.heartbeat_timeout_seconds,
        asked.initialization_timeout,
        asked.min_processes,
    )


def _check_least(parser: argparse.ArgumentParser, asked: Any) -> None:
    least, total = asked.min_processes, asked.nodes * asked.processes
    if least is None:
        return
    if least > total:
        parser.error(
            f"--min-processes must be from 1 to {total}, the processes in all; got {least}."
        )
    if not asked.restarts:
        parser.error("--min-processes applies to restarts: it requires --restarts N.")


def _command(parser: argparse.ArgumentParser, asked: Any) -> tuple[str, ...]:
    """The arguments of Python: a file or a module, and its arguments."""

    def hint(word: str) -> str:
        is_python = re.fullmatch(r"python[\d.]*", word)
        return " The launcher starts Python itself: pass only the script." if is_python else ""

    words, is_module = program_of(parser, asked, hint)
    return ("-m", *words) if is_module else tuple(words)


def _processes(text: str) -> int:
    least, colon, most = text.partition(":")
    if colon and least.isdecimal() and most.isdecimal():  # as in torchrun
        raise argparse.ArgumentTypeError(
            f"it must be an integer; got {text!r}. If {least} are enough after a failure, pass -n "
            f"{most} --restarts N --min-processes {least}."
        )
    return count(text)

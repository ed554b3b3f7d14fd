"""Starts the processes of a program on this machine, which may be one of many: `launch`.

    status = launch(Plan(("train.py", "--steps", "9"), count=4, restarts=3))

A coordinator and all processes that are started together are a *generation*. If one process fails,
the others are stopped, which ends the generation; another one may follow. The launcher of node 0
decides; on one machine it is the only one. Everything that happens (a process ends, a signal
arrives, another launcher sends a message) is an event for the main thread, which sleeps otherwise.
"""

from __future__ import annotations

import os
import secrets

from shardwise._src.distributed.status_files import LaunchStatus
from shardwise._src.launch.agent import Agent
from shardwise._src.launch.leader import Leader
from shardwise._src.launch.local_agent import Events, LocalAgent, Stopped
from shardwise._src.launch.nodes import Problem
from shardwise._src.launch.process_reaper import Guard
from shardwise._src.launch.worker_output import say
from shardwise._src.launch.worker_reports import signal_name
from shardwise._src.launch.workers import Plan, adopt_orphans, descendants


def launch(plan: Plan) -> int:
    """Runs a program to its end; returns the exit status of the process that failed first."""
    events = Events()
    before = [p.pid for p in descendants(os.getpid())]
    adopt_orphans()
    mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    with events.signals():
        guard = Guard(mark)
        notice = LaunchStatus(plan.facts())
        here = LocalAgent(plan, events, mark, (*before, guard.pid), notice)
        if notice.why:
            say(notice.why)
        try:
            status = (Leader if plan.node == 0 else Agent)(here).run()
        except Stopped as stop:
            say(f"stopped by {signal_name(stop.number)}")
            status = 128 + stop.number
        except Problem as problem:
            say(str(problem))
            status = 1
        finally:
            notice.remove()
        guard.dismiss()  # after any other exception the guard kills what is left
        return status

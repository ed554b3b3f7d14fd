"""`shardwise launch`: starts and monitors the processes of a program, on one machine or several.

The main modules:

    launcher         generations of processes, restarts
    leader           the launcher of node 0, which decides; `agent`: the launcher of any other node;
                     `local_agent`: their common part, for the processes on their own machine
    nodes            the connections between launchers
    workers          the processes of a generation on this machine; `worker_output`: their output;
                     `worker_reports`: which one failed first
    process_reaper   ends all descendants of a launch
    rank_assignment  how many processes run on each machine
    status_view      reads the status of launches; `status_relay`: exchanges it between machines
"""

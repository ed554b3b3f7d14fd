"""Multi-process programs: discovery, rendezvous, and failure detection.

The modules:

    cluster     the rank of this process and the process count, from the cluster's environment
    start       `initialize`, `shutdown`
                (`settings`: options that are read then; `tls`: certificate files)
    channel     the connection to the coordinator
    watch       launches, waits and heartbeats; what happens when another process fails
    launcher    `shardwise launch`: generations of processes, restarts
                (`leader`: the launcher of node 0, which decides; `agent`: the launcher of any other
                node; `local_agent`: what both do on their own machine)
    workers     the processes of a generation on this machine; `output`: their output;
                `reports`: which failed first; `process_reaper`: leaves no process behind;
                `rank_assignment`: how many run on which machine
    nodes       the launchers of many machines
    status_files  status that launches publish for `shardwise top`; `status_view`: reads it;
                `status_relay`: exchanges it between the launchers of many machines
    multihost   operations on host values of several processes: barriers, gathering
    exchange    sends bytes between processes; tiles: the shards of arrays as bytes
    host_local  converts process-local values to global arrays, and back
"""

"""Many processes that run one program: how they find each other, meet, and tell who fails.

    cluster     where this process stands, as the cluster's environment says
    start       `initialize`, `shutdown`
                (`settings`: options that count then; `tls`: the files for it)
    channel     the connection to the coordinator
    watch       launches, waits and beats; what happens when another process fails
    launcher    `shardwise launch`: generations of processes, restarts
                (`lead`: of node 0, which decides; `follower`: of another; `here`: on its machine)
    workers     the processes of a generation on this machine; `output`: what they write;
                `reports`: which failed first; `guard`: that none of them stays behind;
                `shares`: how many run on which machine
    nodes       the launchers of many machines
    board       what launches show to `shardwise top`; `looking`: what it finds there;
                `mirror`: what launchers of many machines tell each other of it
    multihost   what programs of several processes do with host values: barriers, gathering
    exchange    how bytes go from process to process; tiles: those of arrays
    host_local  values of one process as parts of arrays, and back
"""

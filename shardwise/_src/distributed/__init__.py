"""Many processes that run one program: how they find each other, meet, and tell who fails.

    cluster     where this process stands, as the cluster's environment says
    start       `initialize`, `shutdown`
    channel     the connection to the coordinator
    watch       launches, waits and beats; what happens when another process fails
    multihost   what programs of several processes do with host values: barriers, gathering
"""

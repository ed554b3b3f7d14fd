"""Multi-process programs: discovery, rendezvous, and failure detection.

The main modules:

    cluster        the rank of this process and the process count, from the cluster's environment
    start          `initialize`, `shutdown`; `initialize_arguments`: their inputs; `settings`:
                   options that are read then; `tls`: certificate files
    channel        the connection to the coordinator
    watch          launches, waits and heartbeats, and the reaction to failures of other processes
    recorder       the flight recorder of launches and waits
    survivors      continuing after processes were lost
    multihost      operations on host values of several processes: barriers, gathering
    host_exchange  sends bytes between processes; `tiles`: the shards of arrays as bytes
    host_local     converts process-local values to global arrays, and back
    status_files   the status that launches publish for `shardwise top`
"""

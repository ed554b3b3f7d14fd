"""The functions of `shardwise.nn`."""

"""The functions of `shardwise.image`."""

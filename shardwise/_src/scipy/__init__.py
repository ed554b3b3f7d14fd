"""The functions of `shardwise.scipy`."""

"""The functions of `shardwise.lax`: ops under strict, typed names."""

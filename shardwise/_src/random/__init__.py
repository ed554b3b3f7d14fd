"""The functions of `shardwise.random`: keys and samplers."""

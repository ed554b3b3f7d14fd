"""Pytrees for users: the functions of `shardwise.tree` and `shardwise.tree_util`."""

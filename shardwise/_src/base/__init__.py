"""The ground floor: context, flags, caches, error classes. Imports nothing of shardwise."""

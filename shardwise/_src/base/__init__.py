"""The base layer: context, flags, caches, error classes. Imports no other package of shardwise."""

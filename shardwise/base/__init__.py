"""The ground floor: context, configuration flags, error classes. Imports nothing of shardwise."""

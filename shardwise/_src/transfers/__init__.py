"""Arrays on their way: from the host, to it, between devices and shardings."""

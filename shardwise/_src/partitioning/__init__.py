"""`custom_partitioning`: functions whose per-device code the user defines."""

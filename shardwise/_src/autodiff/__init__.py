"""`grad`, `jvp`, `vjp`, Jacobians, Taylor mode, and `checkpoint` (rematerialization)."""

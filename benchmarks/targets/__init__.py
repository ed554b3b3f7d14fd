"""Programs compiled for GPUs and TPUs that are not attached, next to jax's from the same compiler."""

"""Functions with rules of their own: derivatives, batching, implicit solutions."""

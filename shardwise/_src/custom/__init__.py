"""Functions with custom rules: derivatives, batching, implicit differentiation."""

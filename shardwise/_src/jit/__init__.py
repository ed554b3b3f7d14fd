"""`jit`: from a call to an executable; `eval_shape`, stages, serialized executables."""

"""Reports of launches of kernels, and the choice between variants of a kernel."""

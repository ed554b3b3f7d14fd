"""Programs of one matrix or array that is divided over devices; see `columns`, `fourier`."""

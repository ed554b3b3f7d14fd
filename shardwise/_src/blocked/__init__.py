"""Programs of factors of one matrix that is divided over devices; see `columns`."""

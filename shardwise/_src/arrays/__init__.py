"""`Array`: buffer and signature, host values, and interchange with other libraries."""

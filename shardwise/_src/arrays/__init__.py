"""`Array`: its buffer and signature, its values on the host, its exchange with other libraries."""

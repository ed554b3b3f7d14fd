"""Types: dtypes and promotion, meshes, specs and shardings; `ArrayType` combines them."""

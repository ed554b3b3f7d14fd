"""Types: dtypes and promotion, meshes, specs and shardings, and `ArrayType` made of them."""

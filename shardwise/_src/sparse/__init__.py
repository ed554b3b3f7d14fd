"""Sparse arrays: stored elements and their indices, as pytrees of dense arrays.

No op is specific to them: they are composed of gathers, scatters and sorts, so that every transform
and every sharding of the data applies. The number of stored elements (*nse*) is part of the static
shape; elements with out-of-bounds indices are padding.
"""

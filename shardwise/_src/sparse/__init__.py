"""Sparse arrays: elements that are stored, with their places, as pytrees of dense arrays.

No op knows of them: they are composed of gathers, scatters and sorts, so that every transform and
every sharding of the data applies. The number of stored elements (*nse*) is a part of the shape;
elements whose place is out of bounds stand for nothing.
"""

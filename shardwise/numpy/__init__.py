"""The NumPy API as plain typed functions over ops."""

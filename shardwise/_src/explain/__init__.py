"""Reports and visualizations of what programs do and where arrays are placed."""

"""What a database's YAML says: operators to kernels, and the layout of column tables."""

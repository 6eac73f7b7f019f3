"""Files to kernel tables: one module per file format, each ending in a load report."""

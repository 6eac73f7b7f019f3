"""GPU tables: readers, and what their columns mean."""

"""Exact lookup, one module per kind of operator; nothing here knows of interpolation."""

"""Operators: a tensor, a leaf operator, the arguments of each operator, and records of calls."""

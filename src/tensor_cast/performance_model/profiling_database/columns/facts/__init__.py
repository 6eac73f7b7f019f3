"""What a leaf operator asks of a table with named columns: its coordinates and its regime.

`describe` lists every fact that a table of the operator's family could ask for; a table's layout says which it uses.
The mapping entry picks the family (`facts: {family: matmul}`); its other facts are constants of the operator.
"""

from __future__ import annotations

from tensor_cast.performance_model.profiling_database.columns.facts.describe import ATTRIBUTES, FAMILIES, describe
from tensor_cast.performance_model.profiling_database.columns.facts.facts import ColumnFacts

__all__ = ["ATTRIBUTES", "FAMILIES", "ColumnFacts", "describe"]

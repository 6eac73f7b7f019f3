"""Points of a regime: slices, simplices, lattices."""

"""Trees to the interchange form: names, moments, costs, statements, both editions."""

"""Which work a step selects, which padded shape runs it, which metadata is legal; progress is never touched."""

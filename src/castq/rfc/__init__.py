"""The conformance check of the seed RFC: its rows, and rows of measurements of its own."""

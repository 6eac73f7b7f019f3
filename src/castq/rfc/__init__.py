"""The conformance check of the RFC: its rows, and rows of measurements of its own."""

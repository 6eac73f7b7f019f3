"""The simulator: one event loop over sessions, pools, stages and step engines."""

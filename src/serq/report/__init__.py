"""What a run tells: rows, a verdict in one line, files, drawings."""

"""Measured rows of one kernel each: Ascend and communication CSV files, read, stored and written."""

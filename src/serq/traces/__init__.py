"""Traces: replayed by a program, or converted from published forms."""

"""Serving programs: a language in which a deployment is a program that is checked and simulated."""

__all__: list[str] = []

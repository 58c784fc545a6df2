"""Immutable values of the engine and their pure transitions."""

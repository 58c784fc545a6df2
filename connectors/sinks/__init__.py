"""Writes folded records to the changelog topic and the dead letter topic."""

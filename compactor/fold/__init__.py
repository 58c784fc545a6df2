"""Finds the latest record of every key over offset ranges."""

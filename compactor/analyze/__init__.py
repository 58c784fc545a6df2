"""Counts what a clean would do; writes nothing."""

"""Counts what a full fold would do; writes nothing."""

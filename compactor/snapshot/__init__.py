"""Snapshots: the live records of a topic as plain Parquet, with a manifest."""

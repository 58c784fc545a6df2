"""Typed snapshots: the columns that keys and values become (docs/decisions/0007-typed-snapshots.md)."""

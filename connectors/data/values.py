"""Reads and writes values without a schema: Java's dates, and texts (`org.apache.kafka.connect.data.Values`)."""

from __future__ import annotations


class Date(int):
    """A moment in ms since 1970-01-01T00:00Z, of a value without a schema (java.util.Date)."""

    __slots__ = ()

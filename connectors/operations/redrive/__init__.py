"""Sends dead letters back to their source topics: steps D1 to D6 of docs/protocol.md."""

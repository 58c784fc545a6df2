"""Rebuilds the logs of a lost catalog from what the output holds: steps R1 to R3 of docs/protocol.md."""

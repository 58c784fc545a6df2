"""Makes the logs of a lost catalog anew from what the output holds: steps R1 to R3 of docs/protocol.md."""

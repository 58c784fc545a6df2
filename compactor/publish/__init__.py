"""Brings the changelog up to what is publishable: steps 5 to 12 of docs/protocol.md."""

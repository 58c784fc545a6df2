"""Protobuf, with a schema registry."""

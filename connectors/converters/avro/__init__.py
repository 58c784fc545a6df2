"""Avro, with a schema registry."""

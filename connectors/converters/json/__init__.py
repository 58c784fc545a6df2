"""JSON, with and without schemas, and JSON Schema with a schema registry."""

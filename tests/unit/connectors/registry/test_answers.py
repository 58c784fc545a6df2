"""What is read of a registry's answers."""

from __future__ import annotations

import pytest

from connectors.registry.answers import schema_of


@pytest.mark.parametrize(
    ("said", "kind"), [(None, "AVRO"), ("OPENAPI", "OPENAPI"), ("Basic cmVndXNlcjpyZWdQYXNz", "unknown")]
)
def test_a_type_that_no_registry_has_is_not_shown(said: str | None, kind: str) -> None:
    """A registry may repeat a login there, and dead letters say which type a schema has."""
    assert schema_of({"schema": "a", "schemaType": said}).kind == kind

"""Settings of a converter, transform or predicate are read as Connect's ConfigDef reads them."""

from __future__ import annotations

import pytest

from connectors.options import REQUIRED, Option, OptionsError, read, unknown

OPTIONS = (
    Option("field", "STRING", REQUIRED, "A field."),
    Option("fields", "LIST", [], "Fields."),
    Option("on", "BOOLEAN", False, "Whether."),
    Option("size", "INT", 3, "How many.", check=lambda size: None if size > 0 else "it must be above 0."),
    Option("mode", "STRING", "a", "Which.", allowed=("a", "b")),
)


def test_values_are_read_and_defaults_stand_for_what_is_missing() -> None:
    """Texts become values of their kind; blanks around them do not count."""
    found = read(OPTIONS, {"field": " x ", "fields": "a, b", "on": "TRUE", "size": "4"})
    assert found == {"field": "x", "fields": ["a", "b"], "on": True, "size": 4, "mode": "a"}


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ({}, "field"),
        ({"field": "x", "on": "yes"}, "on"),
        ({"field": "x", "size": "many"}, "size"),
        ({"field": "x", "size": "0"}, "size"),
        ({"field": "x", "size": str(2**31)}, "size"),
        ({"field": "x", "mode": "c"}, "mode"),
    ],
)
def test_what_is_not_allowed_is_named_on_its_key(texts: dict[str, str], name: str) -> None:
    """Each fault says which setting it is about."""
    with pytest.raises(OptionsError) as raised:
        read(OPTIONS, texts)
    assert [fault for fault, _ in raised.value.faults] == [name]


def test_names_of_no_option_are_found() -> None:
    """So that a typing error is told."""
    assert unknown(OPTIONS, ["field", "feild"]) == ("feild",)

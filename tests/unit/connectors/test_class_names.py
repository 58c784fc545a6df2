"""Classes are found by the names that Connect's users write."""

from __future__ import annotations

import pytest

from connectors.class_names import ClassNames
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.transforms.names import PREDICATES, TRANSFORMS


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.transforms.Cast$Key", "Cast$Key"])
def test_a_variant_is_found_by_its_full_and_its_simple_name(name: str) -> None:
    """The part behind `$` says which."""
    found = TRANSFORMS.find(name)
    assert (found.of.simple, found.side) == ("Cast", "Key")


def test_converters_of_java_are_names_of_ours() -> None:
    """A file of Connect's works as it is."""
    names = ("keyfold.Json", "org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json")
    assert {CONVERTERS.find(name).of.java for name in names} == {"keyfold.Json"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("org.apache.kafka.connect.transforms.Cast", r"\$Key or .*\$Value"),
        ("org.apache.kafka.connect.transforms.TimestampRouter", "one output topic"),
        ("io.debezium.transforms.ByLogicalTableRouter", "one output topic"),
        ("io.confluent.connect.transforms.Filter$Value", "Confluent's own.*Kafka's Filter.*predicate"),
        ("io.confluent.connect.transforms.Filter", "Confluent's own"),
        ("io.debezium.transforms.outbox.EventRouter", "one output topic.*source topics"),
        ("InsertFeild$Value", r'did you mean "InsertField\$Value"'),
    ],
)
def test_what_there_is_not_is_refused_with_why(name: str, said: str) -> None:
    """The message says what to write, or why not."""
    with pytest.raises(ValueError, match=said):
        TRANSFORMS.find(name)


def test_predicates_are_found() -> None:
    """By the simple name as well."""
    assert PREDICATES.find("RecordIsTombstone").of.java.endswith("predicates.RecordIsTombstone")


@pytest.mark.parametrize("names", [CONVERTERS, HEADER_CONVERTERS, TRANSFORMS, PREDICATES], ids=lambda names: names.kind)
def test_every_class_is_there(names: ClassNames) -> None:
    """Each can be loaded, and its settings have sentences."""
    for one in names.known:
        options = one.load().OPTIONS
        assert all(option.doc.endswith(".") for option in options)
        assert len({option.name for option in options}) == len(options)

"""The encodings of texts that StringConverter takes: those of Java by any name that Python knows."""

from __future__ import annotations

import encodings

import pytest

from connectors.converters.primitive_converters import StringConverter
from connectors.options import OptionsError, read


def converter(encoding: str) -> StringConverter:
    return StringConverter(read(StringConverter.OPTIONS, {"encoding": encoding}), is_key=False)


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        *(("UTF-8", b"\xc3\xa4"), ("utf8", b"\xc3\xa4"), ("ISO-8859-1", b"\xe4"), ("latin1", b"\xe4")),
        *(("windows-1252", b"\xe4"), ("Cp1252", b"\xe4"), ("UTF-16BE", b"\x00\xe4"), ("ISO_8859-1:1987", b"\xe4")),
        *(("IBM850", b"\x84"), ("utf--8", b"\xc3\xa4")),
    ],
)
def test_a_text_is_read_and_written_by_any_name_of_its_encoding(encoding: str, data: bytes) -> None:
    """Java's names are among them."""
    schema, value = converter(encoding).to_connect_data("t", [], data)
    assert value == "ä"
    assert converter(encoding).from_connect_data("t", [], schema, value) == data


@pytest.mark.parametrize("encoding", ["utf-9", "idna", "hex", "..", "os", "a\0b", "\ud800", "ä"])
def test_what_is_no_encoding_is_refused(encoding: str) -> None:
    """Nor are forms that Python calls encodings."""
    with pytest.raises(OptionsError, match="encoding"):
        converter(encoding)


def test_python_remembers_no_name_that_it_was_asked_for() -> None:
    """It keeps each for good, known or not: a client of REST may send any number of names of 64 kB."""
    converter("UTF-8")
    before = len(encodings._cache)  # where Python keeps them
    for number in range(20):
        converter(f"utf{'-' * number}8")
        with pytest.raises(OptionsError):
            converter(f"{number}-is-no-encoding")
    assert len(encodings._cache) == before

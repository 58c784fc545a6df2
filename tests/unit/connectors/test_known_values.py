"""What placeholders stood for is found in texts of others: whole, in part, as a URL or as Python writes it."""

from __future__ import annotations

import json

import pytest
import structlog

from compactor.errors import KeyfoldError
from connectors import known_values, logging_setup
from connectors.known_values import hide_all, hide_in, remember
from connectors.placeholders import resolve
from connectors.rejection import shown
from connectors.runtime import status
from tests.support.cli import own_logging

URL = "http://us3r:p4ssw0rt@reg1stry.example:8081/apis/"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("geheim-4711", "refused: geheim-4711!"),
        ("geheim 4711/x", "GET http://h/geheim%204711%2Fx failed"),
        ("geheim\n4711", "'geheim\\n4711' is no number"),
        ("geheim1\ngeheim2", "line geheim2"),
        ("geheim1, geheim2", "no field geheim2"),
        ("user:geheim", "401 for geheim"),
        ("geheim-4711 " * 20, f"{shown('geheim-4711 ' * 20)} is no number"),
        ("geheim-4711 " * 20, f"{'geheim-4711 ' * 20:.100} is no number"),
        (URL, "ConnectTimeout at http://reg1stry.example:8081"),
        (URL, "user us3r"),
    ],
)
def test_a_value_is_hidden_in_what_others_say(value: str, text: str) -> None:
    """In its place stands the placeholder, in lines of the log as in errors of the connector."""
    remember("${env:X}", value)
    assert "${env:X}" in hide_in(text, ["a ${env:X} b"])
    for part in ("geheim", "4711", "us3r", "reg1stry"):
        assert part not in hide_in(text, ["${env:X}"])


def test_the_values_of_others_stay() -> None:
    """In a text about one connector only its own are hidden: another one would tell a guess that is right."""
    remember("${env:MINE}", "my-secret")
    remember("${env:OTHER}", "other-secret")
    text = "my-secret other-secret"
    assert hide_in(text, ["${env:MINE}", "literal"]) == "${env:MINE} other-secret"
    assert hide_all(text) == "${env:MINE} ${env:OTHER}"


def test_a_short_value_is_hidden_as_a_word_and_where_it_belongs() -> None:
    """A digit is in many numbers, and `true` in many lines of the log."""
    remember("${env:N}", "7")
    assert hide_in("7 is greater than 17", ["${env:N}"]) == "${env:N} is greater than 17"
    assert hide_all("7 records") == "7 records"


def test_a_value_that_has_changed_is_hidden_as_it_is_now_and_the_oldest_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is remembered is bounded."""
    monkeypatch.setattr(known_values, "_MOST", 2)
    for name in ("A", "B", "C"):
        remember(f"${{env:{name}}}", f"value-of-{name}")
    remember("${env:C}", "value-of-D")
    assert hide_all("value-of-A value-of-B value-of-C value-of-D") == "value-of-A ${env:B} value-of-C ${env:C}"


def test_no_line_of_the_log_has_it_nor_a_cause_in_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """It is hidden when it has been resolved, in any field."""
    resolve("${env:X}", environ={"X": "geheim-4711"})
    with own_logging():
        logging_setup.configure("info", "json")
        try:
            try:
                int("geheim-4711")
            except ValueError as error:
                raise RuntimeError("no number") from error
        except RuntimeError:
            structlog.get_logger().exception("failed", setting="geheim-4711", inner={"a": ["geheim-4711"]})
    line = json.loads(capsys.readouterr().err)
    assert "geheim" not in str(line)
    assert line["setting"] == "${env:X}"


def test_the_status_of_a_connector_does_not_have_it() -> None:
    """Neither its own nor its worker's: status.json and REST show the error."""
    resolve("${env:X} ${env:W}", environ={"X": "geheim-4711", "W": "geheim-of-worker"})
    error = KeyfoldError("geheim-4711 and geheim-of-worker do not answer")
    shown = status.failed(status.Status(), error, None, {"a": "${env:X}"}, {"b": "${env:W}"})
    assert shown.error == "${env:X} and ${env:W} do not answer"

"""What placeholders stood for is found in texts of others: whole, in part, as a URL or as Python writes it."""

from __future__ import annotations

import base64
import json
import time

import pytest
import structlog

from compactor.errors import KeyfoldError
from compactor.secret_forms import without_spans
from connectors import known_values, logging_setup
from connectors.config.secrets import printable_text
from connectors.known_values import (
    KnownValues,
    forgotten_after,
    hide_all,
    hide_in,
    remember,
    remember_setting,
    without_credentials,
)
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
        ("user:geheim", f"sent {base64.b64encode(b'user:geheim').decode()}"),
        ("user:geheim??>>", f"sent {base64.urlsafe_b64encode(b'user:geheim??>>').decode()}"),
        ("user:geheim??>>", f"sent {base64.b64encode(b'user:geheim??>>').decode()}"),
        ("user:geheim", f"sent {base64.b64encode(b'geheim').decode()}"),
    ],
)
def test_a_value_is_hidden_in_what_others_say(value: str, text: str) -> None:
    """In its place stands the placeholder, in lines of the log as in errors of the connector."""
    remember("${env:X}", value)
    assert "${env:X}" in hide_in(text, ["a ${env:X} b"])
    for part in ("geheim", "4711", "us3r", "reg1stry", "Z2VoZWlt", "dXNlcjpnZWhlaW"):
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
    """What is remembered of REST is bounded."""
    monkeypatch.setattr(known_values, "_known", known_values.KnownValues(most=2))
    for name in ("A", "B", "C"):
        remember(f"${{env:{name}}}", f"value-of-{name}", over_rest=True)
    remember("${env:C}", "value-of-D", over_rest=True)
    assert hide_all("value-of-A value-of-B value-of-C value-of-D") == "value-of-A ${env:B} value-of-C ${env:C}"


@pytest.mark.parametrize("form", ["//x/s.json", "/x/./s.json", "/x//././s.json", "/x/s.json/", "/x/y/../s.json"])
def test_a_placeholder_is_the_same_one_however_its_path_is_written(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one request with many ways to write it would have all others forgotten."""
    monkeypatch.setattr(known_values, "_known", known_values.KnownValues(most=1))
    remember("${file:/x/s.json:k}", "value-of-k", over_rest=True)
    remember(f"${{file:{form}:k}}", "value-of-k", over_rest=True)
    assert hide_in("value-of-k", [f"${{file:{form}:k}}"]) == f"${{file:{form}:k}}"
    assert hide_in("value-of-k", ["${file:/x/s.json:k}"]) == "${file:/x/s.json:k}"
    assert hide_in("value-of-k", ["${file:/x/s.json:j}", "${directory:/x/s.json:k}"]) == "value-of-k"


def test_rest_pushes_out_nothing_of_the_operators() -> None:
    """Neither placeholders nor secrets that are written out in files, however many come over REST."""
    remember("${env:OWN}", "value-of-the-worker")
    remember_setting("Password-of-the-worker-1", is_secret=True, over_rest=False)
    for number in range(2_010):
        remember(f"${{env:R{number}}}", f"value-of-{number}", over_rest=True)
        remember_setting(f"Password-{number}-of-rest", is_secret=True, over_rest=True)
    said = "value-of-the-worker Password-of-the-worker-1 Password-2009-of-rest Password-9-of-rest"
    assert hide_all(said) == "${env:OWN} [hidden] [hidden] Password-9-of-rest"


def test_keystores_leave_passwords_known() -> None:
    """However many lines they have: one that is written out is hidden beside them."""
    remember_setting("Password-of-the-worker-1", is_secret=True, over_rest=False)
    for number in range(250):
        remember(f"${{directory:/secrets:{number}.pem}}", "\n".join(f"{number}-line-{line}" for line in range(90)))
    assert hide_all("Password-of-the-worker-1 249-line-7") == "[hidden] ${directory:/secrets:249.pem}"


def test_what_is_only_checked_is_forgotten() -> None:
    """It is hidden while the check lasts, beside what is known already."""
    remember("${env:OWN}", "value-of-the-worker")
    said = "value-of-the-worker value-of-a-check Password-of-a-check-1"
    with forgotten_after():
        remember("${env:CHECKED}", "value-of-a-check", over_rest=True)
        remember_setting("Password-of-a-check-1", is_secret=True, over_rest=True)
        assert hide_all(said) == "${env:OWN} ${env:CHECKED} [hidden]"
        assert hide_in(said, ["${env:CHECKED}", "${env:OWN}"]) == "${env:OWN} ${env:CHECKED} Password-of-a-check-1"
    assert hide_all(said) == "${env:OWN} value-of-a-check Password-of-a-check-1"
    assert hide_in(said, ["${env:CHECKED}"]) == said


def test_a_long_secret_is_hidden_whole() -> None:
    """A token with many claims has some thousands of characters; of one over REST the log hides the beginning."""
    token = "eyJ" + "Ab1_" * 1_200 + "end"
    assert hide_in(f"it says {token}.", (), [token]) == "it says [hidden]."
    remember_setting(token, is_secret=True, over_rest=False)
    assert hide_all(f"it says {token}.") == "it says [hidden]."


@pytest.mark.parametrize("part", ['":"', "%22:", '"&', "\U0001f600"])
def test_a_short_error_is_not_searched_for_the_forms_of_a_long_secret(part: str) -> None:
    """A setting over REST may have 256 Ki characters: each failure of its connector would take seconds of a core."""
    long = part * (250_000 // len(part))
    secret = f"http://u:{long}@h"
    began = time.thread_time()
    assert hide_in("it failed.", [secret], [f'x password="{long}"']) == "it failed."
    assert time.thread_time() - began < 0.5
    long = long[: 6 << 10]
    assert hide_in(f"it says http://u:{long}@h.", [f"http://u:{long}@h"]) == "it says http://[hidden]@h."


def test_all_values_of_files_are_found() -> None:
    """However many there are, and however many lines each has."""
    for number in range(300):
        remember(f"${{env:N{number}}}", "\n".join(f"{number}-of-{line}" for line in range(100)))
    assert hide_all("299-of-7 0-of-77") == "${env:N299} ${env:N0}"


def test_all_secrets_of_files_are_found_in_no_more_time() -> None:
    """Those of a thousand connectors, each with characters for which there are many forms."""
    secrets = [f'p&"{number}/<w+{number}' for number in range(3_000)]
    for secret in secrets:
        remember_setting(secret, is_secret=True, over_rest=False)
    for secret in (secrets[0], secrets[-1]):
        assert hide_all(f"said {json.dumps(secret)} {secret}!") == 'said "[hidden]" [hidden]!'
    line = "2026-11-26 20:00:00 connector started name=customers topic=orders partition=3 offset=123456 " * 3
    began = time.thread_time()
    for _ in range(50):
        assert hide_all(line) == line
    assert time.thread_time() - began < 50 * 0.005


def test_what_is_sent_over_rest_takes_bounded_memory() -> None:
    """Any number of settings of 256 Ki characters may be sent, and values of placeholders may have as many."""
    known = KnownValues(heaviest=50_000)
    for number in range(9):
        known.remember_setting(8_000 * "x" + f",http://u:Password-{number}@h", is_secret=False, over_rest=True)
        known.remember(f"${{env:N{number}}}", f"value-of-{number}," + 8_000 * "x", over_rest=True)
    said = "Password-2 Password-8 value-of-2 value-of-8"
    assert without_spans(said, known.spans(said)) == "Password-2 [hidden] value-of-2 ${env:N8}"
    late = "http://${env:N8}:Password-9@h," + 8_000 * "x"  # its forms are found later, and count before
    known.remember_setting(late, is_secret=False, over_rest=True)
    assert without_spans(said, known.spans(said)) == "Password-2 Password-8 value-of-2 ${env:N8}"


def test_a_line_of_the_log_is_searched_in_time_whatever_rest_has_sent() -> None:
    """The secrets of a setting with placeholders are found again only once these stand for something else."""
    logins = ",".join(f"http://user:Passw0rd{number}@host" for number in range(7_000))
    for number in range(20):
        remember_setting(f"http://{number}:${{env:WORD}}@h,{logins}", is_secret=False, over_rest=True)
    assert hide_all("Passw0rd0 and word-of-rest") == "[hidden] and word-of-rest"
    began = time.thread_time()
    remember_setting("http://user:Passw0rd-of-rest@host", is_secret=False, over_rest=True)
    assert hide_all("Passw0rd-of-rest") == "[hidden]"
    assert time.thread_time() - began < 2
    remember("${env:WORD}", "word-of-rest", over_rest=True)
    assert "word-of-rest" not in hide_all("Passw0rd0 and word-of-rest")


def test_a_secret_that_is_written_out_is_hidden() -> None:
    """Its password alone too, without the user's name, and what placeholders leave of it; other options stay."""
    jaas = 'a.PlainLoginModule required username="kafka-user" password="${env:X}-l1teral" realm="my-realm-1";'
    for secret in ("kafka-user:geheim4711", jaas):
        remember_setting(secret, is_secret=True, over_rest=False)
    text = f"kafka-user sent geheim4711, {base64.b64encode(b'kafka-user:geheim4711').decode()} in my-realm-1, x-l1teral"
    assert hide_all(text) == "kafka-user sent [hidden], [hidden] in my-realm-1, x[hidden]"
    assert hide_in(text, (), ["kafka-user:geheim4711", jaas]) == hide_all(text)


def test_no_one_hides_words_of_the_log_by_calling_them_a_password() -> None:
    """What was sent over REST is hidden in lines of the log only if it is no word; in its connector's texts always."""
    for word in ("connector.failed", "connector", "2026-11-26", "T1", "Passw0rd-of-mine"):
        remember_setting(word, is_secret=True, over_rest=True)
    text = "2026-11-26 connector.failed T1 Passw0rd-of-mine"
    assert hide_all(text) == "2026-11-26 connector.failed T1 [hidden]"
    assert hide_in(text, (), ["connector.failed"]) == "2026-11-26 [hidden] T1 Passw0rd-of-mine"


CREDENTIAL = base64.b64encode(b"user:geheim").decode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Authorization: Basic {CREDENTIAL} Accept: x", "Authorization: [hidden] Accept: x"),
        (f"{{'authorization': 'Basic {CREDENTIAL}'}}", "{'authorization': '[hidden]'}"),
        (f"(b'Authorization', b'Basic {CREDENTIAL}')", "(b'Authorization', b'[hidden]')"),
        (f"sent basic {CREDENTIAL.rstrip('=')}", "sent basic [hidden]"),
        ("sent Bearer abcdefg.1", "sent Bearer [hidden]"),
        ("Authorization: xyz", "Authorization: [hidden]"),
    ],
)
def test_credentials_of_http_are_hidden_in_any_text(text: str, shown: str) -> None:
    """Whatever they are made of: user and password may come of two settings."""
    assert without_credentials(text) == printable_text(text) == shown
    assert without_credentials(shown) == shown


@pytest.mark.parametrize(
    "text", ["Cluster authorization failed.", "basic authentication failed", "a bearer token; Bearer authentication"]
)
def test_sentences_about_authorization_stay(text: str) -> None:
    """They hold no credential."""
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    "part", ["basic ", "bearer ", "authorization: ", "basic%20", "authorization", "basic" + " " * 99]
)
def test_long_texts_are_searched_in_time(part: str) -> None:
    """Each is read once."""
    before = time.monotonic()
    without_credentials(part * (200_000 // len(part)))
    assert time.monotonic() - before < 2.0


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


def test_the_status_of_a_connector_has_no_password_that_is_written_out() -> None:
    """Its own and its worker's, which the connector's texts hide as its settings do."""
    error = KeyfoldError("geheim-4711 and geheim-of-worker do not answer, c1 does")
    own = {"value.converter.bearer.auth.token": "geheim-4711", "name": "c1"}
    shown = status.failed(
        status.Status(), error, None, own, {"value.converter.basic.auth.user.info": "u:geheim-of-worker"}
    )
    assert shown.error == "[hidden] and [hidden] do not answer, c1 does"

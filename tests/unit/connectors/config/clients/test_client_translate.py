from __future__ import annotations

import pytest

from connectors.config.clients.client_translate import in_lines, to_librdkafka

BODY = "MIIB" + "a" * 80 + "=="
IN_LINES = f"-----BEGIN CERTIFICATE-----\n{BODY[:64]}\n{BODY[64:]}\n-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    "text",
    [
        IN_LINES,
        IN_LINES.replace("\n", " "),
        IN_LINES.replace("\n", "\r\n"),
        f"-----BEGIN CERTIFICATE-----{BODY}-----END CERTIFICATE-----",
        IN_LINES.replace(BODY[10:20], f"{BODY[10:15]} {BODY[15:20]}"),
    ],
)
def test_a_certificate_may_stand_on_one_line(text: str) -> None:
    """Java takes any white space in a PEM text, as a properties file gives it; OpenSSL gets lines."""
    assert in_lines(text).split() == IN_LINES.split()


def test_a_chain_becomes_one_certificate_after_the_other() -> None:
    """Each of several blocks begins on a line of its own."""
    found = in_lines(f"{IN_LINES} {IN_LINES}".replace("\n", " ")).splitlines()
    assert [line for line in found if line.startswith("-----")] == [
        "-----BEGIN CERTIFICATE-----",
        "-----END CERTIFICATE-----",
    ] * 2


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN A-----\nProc-Type: 4,ENCRYPTED\n\nab\n-----END A-----"])
def test_what_is_no_plain_pem_stays(text: str) -> None:
    """OpenSSL's own form with headers, and what is none at all, are for librdkafka to judge."""
    assert in_lines(text) == text


def test_javas_settings_are_brought_into_lines() -> None:
    """The three of Java's settings that hold PEM texts."""
    for name in ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        (found,) = to_librdkafka("admin", name, IN_LINES.replace("\n", " ")).values()
        assert IN_LINES in found

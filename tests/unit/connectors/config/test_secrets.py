"""Secrets: where they come from, and that they are never shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest

from compactor.secret_forms import HIDDEN
from connectors.config.secrets import is_secret, logged_text, masked, printable_text, text_of_connector
from connectors.placeholders import SecretError, has_placeholder, resolve

LONG = 60_000
MOST_S = 0.25


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.properties").write_text("# c\npw = p:w=1\nother=x\\\n   y\n", encoding="utf-8")
    (tmp_path / "s.json").write_text('{"pw": "from json", "n": 1}', encoding="utf-8")
    (tmp_path / "pw").write_text("from file\n", encoding="utf-8")
    (tmp_path / "bad.json").write_text("[top-secret", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        ("plain", "plain"),
        ("${topic}.x", "${topic}.x"),
        ("${env:A}", "a"),
        ("x${env:A}y${env:A}", "xaya"),
        ("${env:B}", "${env:A}"),
        ("${file:DIR/s.properties:pw}", "p:w=1"),
        ("${file:DIR/s.properties:other}", "xy"),
        ("${file:DIR/s.json:pw}", "from json"),
        ("${directory:DIR:pw}", "from file"),
    ],
)
def test_placeholders_are_resolved_once(folder: Path, text: str, resolved: str) -> None:
    """Each placeholder becomes what it stands for, and that is not looked through again."""
    assert resolve(text.replace("DIR", str(folder)), environ={"A": "a", "B": "${env:A}"}) == resolved


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:C}", "${env:C} cannot be resolved: the environment variable C is not set"),
        ("${vault:x:pw}", 'there is no provider "vault"; there are env, file and directory'),
        ("${file:DIR/none.properties:pw}", "No such file"),
        ("${file:DIR/s.properties:nope}", "the file has no key nope"),
        ("${file:DIR/s.properties}", "must have the form ${PROVIDER:PATH:KEY}"),
        ("${file:DIR/bad.json:pw}", "is not a properties (or .json) file"),
        ("${file:DIR/s.json:n}", "must hold one flat object with texts"),
        ("${directory:DIR:../x}", "KEY is the name of a file"),
    ],
)
def test_what_cannot_be_resolved_is_an_error(folder: Path, text: str, said: str) -> None:
    """The error names the placeholder and the reason, and shows nothing of what was found."""
    with pytest.raises(SecretError) as caught:
        resolve(text.replace("DIR", str(folder)), environ={"A": "a"})
    assert said in str(caught.value)
    assert "top-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("consumer.sasl.password", True),
        ("consumer.sasl.jaas.config", True),
        ("producer.override.ssl.key.password", True),
        ("admin.ssl.keystore.key", True),
        ("admin.ssl.key.pem", True),
        ("consumer.sasl.oauthbearer.client.secret", True),
        ("consumer.sasl.oauthbearer.client.credentials.client.secret", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("consumer.sasl.oauthbearer.extensions", True),
        ("consumer.sasl.oauthbearer.assertion.private.key.passphrase", True),
        ("consumer.sasl.oauthbearer.assertion.private.key.file", False),
        ("spark.hadoop.fs.azure.account.key.a.blob.core.windows.net", True),
        ("spark.hadoop.fs.azure.sas.c.a.blob.core.windows.net", True),
        ("spark.ssl.keyPassword", True),
        ("spark.driver.memory", False),
        ("value.converter.basic.auth.user.info", True),
        ("value.converter.bearer.auth.token", True),
        ("value.converter.schema.registry.ssl.key.password", True),
        ("value.converter.basic.auth.credentials.source", False),
        ("consumer.sasl.oauthbearer.client.credentials.client.id", False),
        ("consumer.sasl.oauthbearer.token.endpoint.url", False),
        ("consumer.ssl.key.location", False),
        ("consumer.ssl.keystore.location", False),
        ("iceberg.catalog.token", True),
        ("iceberg.catalog.s3.secret-access-key", True),
        ("iceberg.catalog.header.Cookie", True),
        ("iceberg.catalog.adls.connection-string", True),
        ("iceberg.catalog.uri", False),
        ("topics", False),
    ],
)
def test_secrets_are_known_by_their_keys(key: str, secret: bool) -> None:
    """Passwords, keys, tokens and JAAS entries are secrets; places and names are not."""
    assert is_secret(key) is secret


def test_masked() -> None:
    """A secret that is written out is hidden, also beside a placeholder; a placeholder alone and the rest stay."""
    given = {
        "a.password": "literal",
        "b.password": "${env:PW}",
        "c.jaas": 'x password="literal" y="${env:PW}"',
        "d.password": "${env:PW}literal",
        "url": "https://user:literal@host/x",
        "query": "https://host/token?client_secret=literal&scope=${env:SCOPE}#t=literal",
        "spark.driver.extraJavaOptions": "-Da=b -Djavax.net.ssl.trustStorePassword=literal",
        "topics": "t",
    }
    assert masked(given) == {
        "a.password": "[hidden]",
        "b.password": "${env:PW}",
        "c.jaas": "[hidden]",
        "d.password": "[hidden]",
        "url": "https://[hidden]@host/x",
        "query": "https://host/token?client_secret=[hidden]&scope=${env:SCOPE}#t=[hidden]",
        "spark.driver.extraJavaOptions": "-Da=b -Djavax.net.ssl.trustStorePassword=[hidden]",
        "topics": "t",
    }


@pytest.mark.parametrize(
    "text",
    [
        "refused: sasl.password=literal",
        "{'sasl.oauthbearer.extensions': 'a=literal,b=literal'}",
        '{"consumer.config": "{\\"sasl.password\\": \\"lite ral literal\\"}"}',
        "fs.s3a.access.key=literal",
        "GET https://host/x?a=literal failed",
        "https://user:lit/literal@host refused",
        "kafka://literal@host",
        "{ssl.key.pem=-----BEGIN PRIVATE KEY-----\nliteral\n-----END PRIVATE KEY-----}",
    ],
)
def test_no_text_shows_a_secret(text: str) -> None:
    """What is printed of errors and logs hides secrets by their names, and those inside URLs."""
    assert "literal" not in printable_text(text)
    assert HIDDEN in printable_text(text)


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "a-",
        " ",
        "\n",
        "password",
        "password ",
        "password=${ ",
        "password=' ",
        'password="" "',
        'password=\\"\\" \\"',
        "password=[hidden",
        "://",
        "a://b?c=d#",
        "://a:1/",
        "://a:b",
        "@",
        "${",
        "${a:",
        "${a:}",
        "api-key",
        "-----BEGIN PRIVATE KEY-----",
        "Physical Plan",
    ],
)
@pytest.mark.parametrize("end", ["", "}", "@", "?", ".file"])
def test_no_text_takes_long(part: str, end: str) -> None:
    """Whatever a client sends is read once: a pattern that goes back and forth would hold up every thread."""
    text = part * (LONG // len(part)) + end
    for read in (printable_text, is_secret, has_placeholder, lambda text: masked({"topics": text})):
        began = time.thread_time()
        read(text)
        assert time.thread_time() - began < MOST_S, read


@pytest.mark.parametrize(
    "text",
    [
        *("see https://host/page?", "https://host:9092/a@b", "the password is wrong", "sasl.password=${env:PW}"),
        'storage.s3.secret.access.kye: unknown key; did you mean "storage.s3.secret.access.key"?',
    ],
)
def test_a_text_without_secrets_stays(text: str) -> None:
    """Links, addresses and placeholders stay readable."""
    assert printable_text(text) == text


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b  c ", {"a": "b  c "}),
        ("a:b\r\nc d", {"a": "b", "c": "d"}),
        ("a", {"a": ""}),
        ("#x\n!y\n\n", {}),
        ("a=1\\\n  #2\nb=3", {"a": "1#2", "b": "3"}),
        ("a\\=b=c\\\\", {"a=b": "c\\"}),
        ("k=\\u0041\\t\\q", {"k": "A\tq"}),
        ("k=x\\", {"k": "x"}),
    ],
)
def test_properties_are_read_as_java_does(text: str, entries: dict[str, str]) -> None:
    """Comments, separators, escapes and continued lines are java.util.Properties'."""
    assert javaproperties.loads(text) == entries


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("The registry says: Subject not found..", "The registry says: Subject not found."),
        ('It is "x".. Change it.', 'It is "x". Change it.'),
        ("from 0..5, at /a/.. and so on...", "from 0..5, at /a/.. and so on..."),
    ],
)
def test_a_sentence_ends_with_one_period(text: str, printed: str) -> None:
    """Also one that ends with what another program has said, with its period."""
    assert printable_text(text) == printed


@pytest.mark.parametrize("shows", [logged_text, text_of_connector])
def test_a_text_of_a_server_moves_nothing_on_a_terminal(shows: Callable[[str], str]) -> None:
    """It could hide the lines before it; tabs and ends of lines are text."""
    assert shows("a\x1b[2J\r\x9bb\tc\nd\u00e9\x00") == "a\\x1b[2J\\r\\x9bb\tc\nd\u00e9\\x00"

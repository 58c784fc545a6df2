"""What a client sends is in no text, however its settings are made of parts, and whatever it makes of them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from compactor.secret_forms import HIDDEN, without
from connectors.config.clients.merged import client_config
from connectors.config.files import load_connector, load_worker
from connectors.config.secrets import credentials_of, logged_text, text_of_connector
from connectors.known_values import remember_setting, without_credentials
from tests.support.cli import connector_file, worker_file


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("name", "text", "each"),
    [
        ("sasl.oauthbearer.extensions", "logicalCluster=lkc-4711a,poolId = p-4711b,token=t-4711c", "4711"),
        ("sasl.oauthbearer.extensions", "token=t-4711c,logicalCluster=lkc-4711a", "4711"),
        ("sasl.oauthbearer.config", "principal=4711-me", "4711"),
        (
            "sasl.jaas.config",
            'PlainLoginModule required username="u" password="pass-4711" privateKey="key-4711";',
            "4711",
        ),
        ("sasl.jaas.config", 'OAuthBearerLoginModule required extension_a="x-4711" extension_b="y-4711";', "4711"),
        ("ssl.keystore.key", "-----BEGIN PRIVATE KEY-----\n" + "MIIE4711" * 8 + "\n" + "4711abcd" * 4, "4711"),
    ],
)
def test_each_value_of_a_setting_with_several_is_known_by_itself(name: str, text: str, each: str) -> None:
    """A server repeats one of them, not the whole setting; also of a client's settings."""
    values = re.findall(rf"[\w-]*{each}[\w-]*", text)
    assert values
    given = {f"consumer.override.{name}": text}
    known_by_client = credentials_of({name: text})
    for value in values:
        assert each not in text_of_connector(f"it says {value}.", given)
        assert each not in without(f"it says {value}.", known_by_client)
    remember_setting(text, is_secret=True, over_rest=False)
    assert each not in logged_text(" ".join(values))


def test_each_secret_of_a_key_file_in_a_setting_is_known_by_itself() -> None:
    """Google's is JSON: what a client says of it has the key alone, or a line of it."""
    lines = ["MIIE4711abcdefgh" * 4, "4711/xyz+xyz4711" * 4]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"])
    text = json.dumps({"type": "service_account", "private_key": key, "client_secret": "s-4711", "project_id": "p"})
    given = {"storage.gcs.service.account.key": text}
    for said in (key, json.dumps(key), *lines, "s-4711"):
        assert "4711" not in text_of_connector(f"it says {said}.", given)
    assert text_of_connector("project_id p of a service_account", given) == "project_id p of a service_account"


ID, OWN = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"


def repeated_logins(user: str, password: str) -> list[str]:
    """Returns how a server may repeat a login: in base64, escaped before as OAuth 2 asks for, and in quotes."""
    pairs = [f"{user}:{password}", f"{quote_plus(user)}:{quote_plus(password)}"]
    return [form for pair in pairs for form in (pair, in_base64(pair), json.dumps(pair), quote(pair, safe=""))]


@pytest.mark.parametrize("prefix", ["consumer.override.", "producer.", "admin.override."])
@pytest.mark.parametrize(
    ("user", "own"),
    [
        (ID, OWN),
        (ID.replace("client", "client.credentials.client"), OWN.replace("client", "client.credentials.client")),
        ("sasl.username", "sasl.password"),
    ],
)
def test_what_two_settings_are_sent_as_is_hidden(prefix: str, user: str, own: str) -> None:
    """A server of tokens repeats the header, in which neither stands as the file has it."""
    given = {prefix + user: "4711-id", prefix + own: "s/e+cret-4711"}
    for said in repeated_logins("4711-id", "s/e+cret-4711"):
        for shown in (
            text_of_connector(said, given),
            without(said, credentials_of({user: "4711-id", own: "s/e+cret-4711"})),
        ):
            assert HIDDEN in shown
            assert [part for part in ("4711", said[:8]) if part in shown.replace("4711-id", "")] == []


def test_a_login_of_which_the_halves_stand_in_two_files_is_known(tmp_path: Path) -> None:
    """The worker's file has the client's id, the connector's its secret: only the settings of a client have both."""
    oidc = {"consumer.sasl.mechanism": "OAUTHBEARER", f"consumer.{ID}": "4711-id"}
    worker = load_worker(worker_file(tmp_path, **oidc))
    path = connector_file(tmp_path, **{f"consumer.override.{OWN}": "s/e+cret-4711"})
    client_config("consumer", worker, load_connector(path, worker).config, {})
    for said in repeated_logins("4711-id", "s/e+cret-4711"):
        assert HIDDEN in logged_text(said)


TOKEN = ".".join(in_base64(part).rstrip("=") for part in ('{"alg":"RS256"}', '{"sub":"4711","exp":1}', "signature" * 9))
ASSERTION = f"grant_type=urn:ietf:params:oauth:grant-type:jwt-bearer&assertion={TOKEN}&scope=s"
ANSWER = "Failed to acquire SASL OAUTHBEARER token: "


@pytest.mark.parametrize(
    "said",
    [
        TOKEN,
        f"{ANSWER}{json.dumps({'error': 'invalid_grant', 'error_description': ASSERTION})}",
        f"{ANSWER}{quote(ASSERTION)}",
        f"a\\n{TOKEN}",
        f"{TOKEN[:60]}…",
        in_base64(TOKEN),
        f"{ANSWER}bad: 0f3a4711c0ffee0f3a4711c0ffee",
        f'Failed to retrieve OIDC token from "http://h/": <p>{"ab+/4711cd" * 4}</p> (400)',
    ],
)
def test_a_token_that_was_made_for_one_request_is_hidden(said: str) -> None:
    """Nobody knows it beforehand, and whoever reads it may log in with it for some minutes."""
    for shown in (logged_text(said), text_of_connector(said), without_credentials(said)):
        assert HIDDEN in shown
        assert [part for part in (TOKEN[:20], TOKEN[-20:], in_base64(TOKEN)[:20], "4711") if part in shown] == []
    assert logged_text(f"{ANSWER}invalid_client: Invalid client or credentials (401)").endswith("credentials (401)")

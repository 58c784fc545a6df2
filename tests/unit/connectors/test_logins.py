"""Users and passwords in addresses are read alike by whatever asks, hides or refuses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compactor.secret_forms import HIDDEN
from connectors.config.secrets import masked, printable_text, text_of_connector
from connectors.credentials import is_address, secrets_in
from connectors.options import OptionsError, read
from connectors.registry.settings import OPTIONS
from connectors.rest.client import RestClient
from tests.support.cli import invoke

PASSWORDS = ("ss 4711Pass", "ss\t4711Pass", 'a"4711Pass', "12/4711Pass", "p@4711Pass", "pa?x=4711Pass", "p,4711Pass")
URL = "schema.registry.url"


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_login_ends_at_the_last_at_sign(password: str) -> None:
    """A blank, a quote, a slash or another @ in a password is a part of it: in settings, and in what is said of it."""
    given = {URL: f"http://h:8081,http://us:{password}@h:1,foo"}
    assert masked(given) == {URL: f"http://h:8081,http://{HIDDEN}@h:1,foo"}
    assert password in list(secrets_in(given[URL], is_secret=False))
    assert "4711" not in text_of_connector(f"it says {password}", given)


@pytest.mark.parametrize("password", [password for password in PASSWORDS if not password.startswith("12/")])
def test_a_text_of_anyone_shows_no_login(password: str) -> None:
    """What follows the address stays."""
    assert printable_text(f"http://us:{password}@h:1/x is gone") == f"http://{HIDDEN}@h:1/x is gone"


def test_what_is_behind_a_hidden_login_stays_hidden() -> None:
    """A parameter too, where the password had the question mark."""
    assert masked({"u": "http://us:a?b@h/x&token=4711"}) == {"u": f"http://{HIDDEN}@h/x&token={HIDDEN}"}


@pytest.mark.parametrize(
    "text",
    [
        "http://registry:8081 is asked by bob@example.org",
        "https://host:9092/a@b",
        "see http://host: it says a@b",
        f"http://{HIDDEN}@h:1 has two, bob@b",
    ],
)
def test_a_port_is_no_password(text: str) -> None:
    """A text with an address and somewhere else an @ stays readable."""
    assert printable_text(text) == text


@pytest.mark.parametrize(
    "url",
    [
        *(f"http://us:{password}@h:1" for password in ("ss 4711", "ss\t4711", "12/4711", "pa?4711", "p#4711")),
        *("http:us:ss4711@h", "//us:ss4711@h", "http:/\t/us:ss4711@h:1", "http://h:1/us:ss4711@h", "us:ss4711@h:1"),
        "http://us:4711x/@h:1",
    ],
)
def test_an_address_that_readers_take_differently_is_refused_and_not_shown(url: str) -> None:
    """By the check of a registry's addresses, and by --url: what is not escaped could become a host or a path."""
    with pytest.raises(OptionsError) as caught:
        read([option for option in OPTIONS if option.name == URL], {URL: url})
    assert "is not allowed" in str(caught.value)
    assert "4711" not in str(caught.value)
    done = invoke("connectors", "list", "--url", url)
    assert (done.exit_code, "4711" in done.output) == (2, False), done.output


@pytest.mark.parametrize(
    "url", ["http://h", "https://us:p%40@h:1/x", "http://us:p@q@h", 'http://us:a"b@[::1]:1', "http://T@h"]
)
def test_other_addresses_are_taken(url: str) -> None:
    """Also with a login."""
    assert is_address(url)
    RestClient(url.replace('"', "%22"))


@pytest.mark.parametrize("host", ["prx:Pw4711@127.0.0.1", "h/x@y", "h?4711", "h 4711"])
def test_a_proxy_has_no_login(host: str) -> None:
    """It is refused, as nothing would hide it, and not shown."""
    with pytest.raises(OptionsError, match=r"allowed is a host name") as caught:
        read([option for option in OPTIONS if option.name == "proxy.host"], {"proxy.host": host})
    assert "Pw4711" not in str(caught.value)


def test_a_container_is_no_token(tmp_path: Path) -> None:
    """What stands before the @ of a store's URL names a container; of HTTP's it is a token."""
    assert list(secrets_in(f"abfss://snapshots@acc.dfs.core.windows.net{tmp_path}", is_secret=False)) == []
    assert list(secrets_in("http://some%20token@h", is_secret=False)) == [
        *("some%20token", "some%20token:", "some token", "some token:")
    ]


@pytest.mark.parametrize(
    "text",
    [
        ",".join(f"http://user:Passw0rd{number}@h" for number in range(9_000)),
        ",".join(f"name=Passw0rd{number}" for number in range(9_000)),
        json.dumps({f"password{number}": f"Passw0rd{number}" for number in range(5_000)}),
        " ".join(f'password{number}="Passw0rd{number}"' for number in range(9_000)),
    ],
    ids=["logins", "pairs", "JSON", "JAAS"],
)
def test_a_setting_has_a_bounded_number_of_secrets(text: str) -> None:
    """Each is looked for in many forms, in each text about the connector: 256 Ki characters took seconds and 6 MB."""
    secrets = list(secrets_in(text, is_secret=True))
    assert len(secrets) == 400
    assert "Passw0rd7" in secrets

"""The settings of the schema registry's client, under the names that Confluent's and Apicurio's converters have."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Struct

from compactor.secret_forms import HIDDEN
from connectors.credentials import NOT_SHOWN, is_address, login, without_logins
from connectors.options import REQUIRED, Option, OptionsError, Values
from connectors.placeholders import has_placeholder


def _urls(urls: list[str]) -> str | None:
    if not urls or not all(map(is_address, urls)):
        return (
            "allowed are addresses such as http://registry:8081, several with commas between them; in a user or "
            "password a blank is %20, a comma %2C, a slash %2F, an @ %40."
        )
    return None


def _token(token: str) -> str | None:
    if token.isascii() and token.isprintable():
        return None
    return "allowed is what HTTP can send: printable characters of ASCII."


def _host(host: str) -> str | None:
    if is_address(f"http://{host}") and not set(host) & set("@/?#"):
        return None
    return "allowed is a host name or an address; a proxy is asked without a user and a password."


def _certificates(path: str) -> str | None:
    """Returns why a truststore cannot be used; OpenSSL's words for what is no PEM say little."""
    try:
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        return "it has no certificates in PEM; export a Java keystore (keytool -exportcert -rfc)."
    except OSError as error:
        return f"{error.strerror}."
    return None


USE_ID: Final = "apicurio.registry.use-id"
COMPATIBLE: Final = re.compile(r"/apis/ccompat/v\d+$")
"""How an address of Apicurio's Confluent-compatible interface ends."""

OPTIONS: Final = (
    Option(
        "schema.registry.url",
        "LIST",
        REQUIRED,
        "Where the schema registry answers; of several the next one is asked where one does not answer. Apicurio's is "
        "`http://HOST:8080/apis/ccompat/v7`.",
        check=_urls,
        importance="HIGH",
        of_server=True,
    ),
    Option(
        "basic.auth.credentials.source",
        "STRING",
        "URL",
        "Where user and password are: in the `URL`, or in `USER_INFO`.",
        allowed=("URL", "USER_INFO"),
        any_case=True,
        of_server=True,
    ),
    Option("basic.auth.user.info", "PASSWORD", None, "`USER:PASSWORD`, for `USER_INFO`."),
    Option("bearer.auth.token", "PASSWORD", None, "A token that is sent in place of user and password.", check=_token),
    Option(
        "schema.registry.ssl.truststore.location",
        "STRING",
        None,
        "A file of certificates (PEM) that are trusted.",
        check=_certificates,
        is_file=True,
    ),
    Option(
        "schema.registry.ssl.keystore.location",
        "STRING",
        None,
        "A file of the client's certificate and key (PEM).",
        is_file=True,
    ),
    Option("schema.registry.ssl.key.password", "PASSWORD", None, "The key's password."),
    Option(
        "proxy.host",
        "STRING",
        None,
        "The host of a proxy through which the registry is asked. HTTPS_PROXY and the like have no effect, as in Java.",
        check=_host,
        of_server=True,
    ),
    Option("proxy.port", "INT", None, "That proxy's port.", of_server=True),
)


NO_GLOBAL_ID: Final = (
    "globalId is asked of Apicurio's own interface, which is looked for beside its Confluent-compatible one: "
    "schema.registry.url has to end with /apis/ccompat/v7, or apicurio.registry.url with /apis/registry/v2 or v3."
)


class RegistrySettings(Struct, frozen=True):
    """How a registry is asked. Its repr shows nothing: addresses and tokens may be secret.

    `named` is how messages name each of `urls`: as the file has it if a placeholder stands in it, else without user,
    password and query.
    """

    urls: tuple[str, ...]
    named: tuple[str, ...]
    user: str | None = None
    password: str = ""
    token: str | None = None
    trusted: str | None = None
    certificate: str | None = None
    key_password: str | None = None
    proxy: str | None = None

    def __repr__(self) -> str:
        return "RegistrySettings()"

    @property
    def has_global_ids(self) -> bool:
        """Whether Apicurio's own interface, which alone knows globalId, is next to each of the addresses."""
        return all(COMPATIBLE.search(url) for url in self.urls)

    @property
    def sent(self) -> tuple[str, ...]:
        """What an answer must not be shown with: the password, it with its user's name, and the token."""
        return (*(login(self.user, self.password) if self.user else ()), *((self.token,) if self.token else ()))


def registry_settings(options: Mapping[str, Any]) -> RegistrySettings:
    """Makes the settings of the values of OPTIONS. Raises OptionsError."""
    pairs = [_without_user(url.rstrip("/")) for url in options["schema.registry.url"]]
    user = next((user for _, user in pairs if user), None)
    if options["basic.auth.credentials.source"].upper() == "USER_INFO":
        text = options["basic.auth.user.info"]
        if not text or ":" not in text:
            raise OptionsError([("basic.auth.user.info", "missing; USER_INFO needs it, as USER:PASSWORD.")])
        user = tuple(text.split(":", 1))
    _check_keystore(options)
    if (options["proxy.host"] is None) is not (options["proxy.port"] is None):
        raise OptionsError([("proxy.host", "a proxy is named by proxy.host and proxy.port together.")])
    if options.get(USE_ID) == "globalId" and not all(COMPATIBLE.search(url) for url, _ in pairs):
        raise OptionsError([(USE_ID, NO_GLOBAL_ID)])
    name, password = user or (None, "")
    return RegistrySettings(
        urls=tuple(url for url, _ in pairs),
        named=_named([url for url, _ in pairs], options),
        user=name,
        password=password,
        token=options["bearer.auth.token"],
        trusted=options["schema.registry.ssl.truststore.location"],
        certificate=options["schema.registry.ssl.keystore.location"],
        key_password=options["schema.registry.ssl.key.password"],
        proxy=options["proxy.host"] and f"http://{options['proxy.host']}:{options['proxy.port']}",
    )


def _named(urls: Sequence[str], options: Mapping[str, Any]) -> tuple[str, ...]:
    text = options.written.get("schema.registry.url", "") if isinstance(options, Values) else ""
    written = [without_logins(part.strip().rstrip("/"), HIDDEN).partition("?")[0] for part in text.split(",")]
    if not has_placeholder(text):
        return tuple(url.partition("?")[0] for url in urls)
    return tuple(written) if len(written) == len(urls) else (", ".join(written),) * len(urls)


def _check_keystore(options: Mapping[str, Any]) -> None:
    path = options["schema.registry.ssl.keystore.location"]
    if not path:
        return
    password = options["schema.registry.ssl.key.password"] or ""
    try:  # a password is always given: OpenSSL would ask for it at the terminal
        ssl.create_default_context().load_cert_chain(path, password=password)
    except ssl.SSLError:
        why = "it has no certificate and key in PEM, or schema.registry.ssl.key.password is not the key's."
    except OSError as error:
        why = f"{error.strerror}."
    else:
        return
    raise OptionsError([("schema.registry.ssl.keystore.location", f"{NOT_SHOWN} is not allowed: {why}")])


def _without_user(url: str) -> tuple[str, tuple[str, ...] | None]:
    parts = urlsplit(url)
    if parts.username is None:
        return url, None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host)), (unquote(parts.username), unquote(parts.password or ""))

"""Asks an Iceberg catalog over REST: each answer is bounded in size and time, and what it issues is hidden.

pyiceberg asks with `requests`, which waits without end for an answer that drips, and reads one of any size. Here its
requests are sent by the client that asks schema registries. What an answer says is a catalog's word, not an operator's:
it names no code that is run, no certificate of this machine, no other address to ask, and no file that is the worker's.
"""

from __future__ import annotations

import io
import os
import ssl
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec import Struct
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from requests import PreparedRequest, Response, Session, TooManyRedirects
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse

from compactor.json_types import decoded_as
from connectors.issued_secrets import LONGEST, issued_secrets
from connectors.registry.http_client import HttpAnswer, HttpClient, HttpRequest, NoCookies
from connectors.tables.catalog_files import BoundedFiles, FileBounds
from connectors.tables.metadata_bounds import METADATA_BYTES, check_values
from connectors.tables.stores import names_code
from connectors.tables.time_limit import CALLS_S

MOST_ISSUED: Final = 100
"""How many secrets an answer may issue: a token, and some keys for each of a few prefixes."""
_OF_OPERATOR: Final = frozenset({"auth", "ssl"})
"""Properties that name a class or files of this machine besides those that `names_code` tells."""
_ADDRESSES: Final = frozenset({"uri", "oauth2-server-uri"})
"""Properties that say who is asked. A login goes along, and an answer may stand in an error."""
_IDENTITY: Final = {"Accept-Encoding": "identity"}
"""As the client sends it, and before a request is signed."""

Raw = msgspec.Raw


class _Credentials(Struct):
    """What opens the files below a prefix."""

    config: Raw = Raw(b"")


class _Metadata(Struct):
    """A table's metadata, as far as it may name secrets."""

    properties: Raw = Raw(b"")


class _Answer(Struct, rename={"credentials": "storage-credentials"}):
    """An answer, as far as a secret may be in it. Each part may be anything."""

    access_token: Raw = Raw(b"")
    refresh_token: Raw = Raw(b"")
    id_token: Raw = Raw(b"")
    defaults: Raw = Raw(b"")
    overrides: Raw = Raw(b"")
    config: Raw = Raw(b"")
    metadata: Raw = Raw(b"")
    credentials: Raw = Raw(b"")


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with `properties`, by which its files are bounded too (`FileBounds.of`).

    `is_secret`: whether a property of such a name is a secret. Each request may take `seconds`.
    """

    def __init__(
        self, is_secret: Callable[[str], bool], name: str, properties: Mapping[str, Any], seconds: float = CALLS_S
    ) -> None:
        self._is_secret = is_secret
        # Of what the worker has given alone: the catalog's answers change `properties`.
        self._bounds = FileBounds.of(properties)
        self._seconds = seconds
        self._given = dict(properties)
        # Made with the first request, which says what certificates are trusted.
        self._client: HttpClient | None = None
        super().__init__(name, **properties)

    def answer_to(self, request: HttpRequest, verify: bool | str, cert: Any) -> HttpAnswer:  # noqa: FBT001  # requests'
        """Returns the answer to `request`. Raises httpx.HTTPError, ValueError for what no catalog answers."""
        if self._client is None:
            self._client = HttpClient(httpx.Client(verify=_trust(verify, cert), cookies=NoCookies()), METADATA_BYTES)
            weakref.finalize(self, self._client.close)
        answer = self._client.ask(request, self._seconds)
        check_values(answer.body)
        if httpx.codes.is_redirect(answer.status):
            raise TooManyRedirects(f"it answers {answer.status}, and no redirection is followed")
        return HttpAnswer(answer.status, self._examined(answer))

    def _examined(self, answer: HttpAnswer) -> bytes:
        """Returns the body, and hides its secrets from now on; none of an error that is no object of JSON."""
        try:
            parts = decoded_as(answer.body, _Answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return b"" if httpx.codes.is_error(answer.status) else answer.body
        issued = [value for name, value in _texts(parts) if self._is_secret(name)]
        if len(issued) > MOST_ISSUED or any(len(value) > LONGEST for value in issued):
            raise ValueError(f"it issues more than {MOST_ISSUED} secrets, or one of more than {LONGEST} characters")
        issued_secrets.remember(*issued)
        return answer.body

    def _config_headers(self, session: Session) -> None:
        # Called before a token is asked for.
        super()._config_headers(session)
        session.headers.update(_IDENTITY)
        self._take_over(session)

    def _create_session(self) -> Session:
        session = super()._create_session()
        self._take_over(session)  # what signs requests has come since
        return session

    def _take_over(self, session: Session) -> None:
        for prefix, adapter in list(session.adapters.items()):
            if isinstance(adapter, HTTPAdapter):
                session.mount(prefix, _Adapter(adapter, self.answer_to))

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = {
            name: value
            for name, value in self.properties.items()
            if name in self._given or not (name in _OF_OPERATOR or names_code(name))
        }
        for name in _ADDRESSES & self.properties.keys():
            if _origin(self.properties[name]) != _origin(self._given.get(name, self._given["uri"])):
                self.properties[name] = self._given.get(name)
        self.properties = {name: value for name, value in self.properties.items() if value is not None}
        self.uri = self.properties["uri"]

    def _load_file_io(self, properties: Mapping[str, Any] = {}, location: str | None = None) -> FileIO:
        plain = {name: value for name, value in properties.items() if not names_code(name)}
        return BoundedFiles(super()._load_file_io(plain, location), self._bounds)


class _Adapter(BaseAdapter):
    """Sends what `inner` would send, by `ask`."""

    def __init__(self, inner: HTTPAdapter, ask: Callable[[HttpRequest, bool | str, Any], HttpAnswer]) -> None:
        super().__init__()
        self._inner = inner
        # The catalog has the session that this is of: without a cycle its connections are closed as soon as it goes.
        self._ask = weakref.WeakMethod(ask)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,  # noqa: FBT001,FBT002  # requests'
        timeout: Any = None,
        verify: Any = True,  # noqa: FBT002
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Returns the answer. The proxies of the environment are those of the client."""
        self._inner.add_headers(request, stream=stream, timeout=timeout, verify=verify, cert=cert, proxies=proxies)
        body = request.body.encode() if isinstance(request.body, str) else request.body
        texts = {name: text if isinstance(text, str) else text.decode() for name, text in request.headers.items()}
        asked = HttpRequest(request.method or "GET", request.url or "", texts, body)
        ask = self._ask()
        if ask is None:
            raise ValueError("the catalog is closed")
        answer = ask(asked, verify, cert)
        # With a charset no other is guessed, which takes seconds for a long text.
        headers = {"Content-Type": "application/json; charset=utf-8"}
        raw = HTTPResponse(io.BytesIO(answer.body), headers, answer.status, preload_content=False)
        return self._inner.build_response(request, raw)

    def close(self) -> None:
        """Closes what `inner` has; the client is the catalog's."""
        self._inner.close()


def _texts(parts: _Answer) -> Iterator[tuple[str, str]]:
    """Yields the tokens of an answer, and the texts of its settings and of a table's properties, with their names."""
    tokens = {name: getattr(parts, name) for name in ("access_token", "refresh_token", "id_token")}
    metadata = _decoded(parts.metadata, _Metadata) or _Metadata()
    credentials = _decoded(parts.credentials, list[Raw]) or ()
    settings = [parts.defaults, parts.overrides, parts.config, metadata.properties]
    settings += [(_decoded(each, _Credentials) or _Credentials()).config for each in credentials]
    for members in (tokens, *(_decoded(each, dict[str, Raw]) or {} for each in settings)):
        for name, raw in members.items():
            text = _decoded(raw, str)
            if text is not None:
                yield name, text


def _decoded(raw: Raw, kind: Any) -> Any:
    """Returns `raw` as a `kind`; None if it is another, or is not there."""
    try:
        return decoded_as(raw, kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _origin(address: object) -> tuple[str, str]:
    url = urlsplit(str(address))
    return url.scheme, url.netloc


def _trust(verify: bool | str, cert: Any) -> ssl.SSLContext:  # noqa: FBT001  # requests'
    """Returns what `requests` would trust by these: REQUESTS_CA_BUNDLE, and a client's certificate of the operator."""
    if isinstance(verify, str):
        file, folder = (None, verify) if os.path.isdir(verify) else (verify, None)  # noqa: PTH112  # a text of requests'
        context = ssl.create_default_context(cafile=file, capath=folder)
    else:
        context = httpx.create_ssl_context()
    if cert:
        context.load_cert_chain(*((cert,) if isinstance(cert, str) else cert))
    return context

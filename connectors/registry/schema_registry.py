"""Asks a schema registry, by the REST interface that Confluent's has and Apicurio's has under `/apis/ccompat/v7`.

A schema never changes once it has an id, so it is kept for good. What is not there is an error of the record that names
it; a registry that does not answer is none: it is asked again for a while, and then nothing is known (RegistryError).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import httpx
from msgspec import Struct
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from connectors.errors import DataError, RegistryError
from connectors.registry.settings import RegistrySettings

TRIES: Final = 4
"""How often a registry is asked that does not answer: other connectors may wait for the same process meanwhile."""
FIRST_WAIT_S: Final = 0.1
TIMEOUT_S: Final = 5.0
MISSING_S: Final = 30.0
"""For how long (s) an id that is not there is not asked for again."""
_KIND: Final = "application/vnd.schemaregistry.v1+json"
_UNAUTHORIZED: Final = frozenset({401, 403})
_CONFLICT: Final = 409
_UNPROCESSABLE: Final = 422
_NOT_FOUND: Final = 404
_BUSY: Final = frozenset({408, 429})


class Reference(Struct, frozen=True):
    """A schema that another one names: `name` is how, `subject` and `version` where it is registered."""

    name: str
    subject: str
    version: int


class RegisteredSchema(Struct, frozen=True):
    """A schema's text, its type (AVRO, JSON, PROTOBUF), and what it refers to."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class _NoAnswerError(Exception):
    """A registry did not answer, or said that it cannot now."""


class SchemaRegistry:
    """One registry, at one or several addresses. Used by one thread; `monotonic` is for what is missing."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        transport: httpx.BaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._urls = settings.urls
        self._client = httpx.Client(
            auth=(settings.user, settings.password) if settings.user else None,
            headers={"Accept": _KIND, **({"Authorization": f"Bearer {settings.token}"} if settings.token else {})},
            timeout=TIMEOUT_S,
            verify=_trust(settings),
            transport=transport,
        )
        self._monotonic = monotonic
        self._retrying = Retrying(
            stop=stop_after_attempt(TRIES),
            wait=wait_exponential(FIRST_WAIT_S, max=1.0),
            retry=retry_if_exception_type(_NoAnswerError),
            sleep=sleep,
            reraise=True,
        )
        self._schemas: dict[str, RegisteredSchema] = {}
        self._missing: dict[str, float] = {}

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Returns the schema with an id. Raises DataError where there is none, RegistryError."""
        about = f"?subject={quote(subject, safe='')}" if subject else ""
        return self._kept(f"/schemas/ids/{schema_id}{about}", f"schema {schema_id}")

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Returns a version of a subject. Raises DataError where there is none, RegistryError."""
        return self._kept(f"/subjects/{quote(subject, safe='')}/versions/{version}", f"version {version} of {subject}")

    def register(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Registers `schema` where it is not, and returns its id. Raises DataError where it is refused."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self._id_of(path, subject, schema, normalize=normalize)

    def find(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Returns the id of a schema that is registered. Raises DataError where it is not."""
        return self._id_of(f"/subjects/{quote(subject, safe='')}", subject, schema, normalize=normalize)

    def latest(self, subject: str) -> tuple[int, RegisteredSchema]:
        """Returns the id and schema of a subject's newest version. Raises DataError where there is none."""
        status, body = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        if status != httpx.codes.OK:
            raise DataError(f"The registry has no schema of {subject}: {_said(body)}.", _REGISTER)
        return int(body["id"]), _schema(body)

    def _kept(self, path: str, what: str) -> RegisteredSchema:
        found = self._schemas.get(path)
        if found is not None:
            return found
        now = self._monotonic()
        if now < self._missing.get(path, now):
            raise DataError(f"The registry has no {what}.", _WRITER)
        status, body = self._ask("GET", path)
        if status != httpx.codes.OK:
            self._missing[path] = now + MISSING_S
            raise DataError(f"The registry has no {what}: {_said(body)}.", _WRITER)
        self._schemas[path] = _schema(body)
        return self._schemas[path]

    def _id_of(self, path: str, subject: str, schema: RegisteredSchema, *, normalize: bool) -> int:
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != "AVRO":
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
            ]
        status, found = self._ask("POST", path + ("?normalize=true" if normalize else ""), body)
        if status == _CONFLICT:
            raise DataError(
                f"The registry refuses the schema of {subject} as incompatible with an earlier one: {_said(found)}.",
                "Change the transform so that the schema stays compatible, or the subject's compatibility.",
            )
        if status != httpx.codes.OK:
            raise DataError(f"The registry does not take the schema of {subject}: {_said(found)}.", _REGISTER)
        return int(found["id"])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Asks until there is an answer. Raises RegistryError where there is none, or no right."""
        try:
            return self._retrying(self._ask_each, method, path, body)
        except _NoAnswerError as error:
            raise RegistryError(
                f"The schema registry does not answer: {error}.",
                "It is asked again when the connector is started again; check schema.registry.url.",
            ) from None

    def _ask_each(self, method: str, path: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        """Asks one address after the other."""
        last = _NoAnswerError("no address")
        for url in self._urls:
            try:
                return self._ask_one(method, url + path, body)
            except _NoAnswerError as error:
                last = error
        raise last

    def _ask_one(self, method: str, url: str, body: Mapping[str, Any] | None) -> tuple[int, Any]:
        headers = {"Content-Type": _KIND} if body is not None else {}
        try:
            found = self._client.request(method, url, json=body, headers=headers)
        except httpx.HTTPError as error:
            raise _NoAnswerError(f"{type(error).__name__} at {httpx.URL(url).host}") from None
        if found.status_code in _UNAUTHORIZED:
            raise RegistryError(
                f"The schema registry answers {found.status_code}: it does not let this connector in.",
                "Check basic.auth.user.info or bearer.auth.token, and what that user may do.",
            )
        if found.status_code in _BUSY or found.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise _NoAnswerError(f"{found.status_code} from {httpx.URL(url).host}")
        try:
            return found.status_code, found.json()
        except ValueError:
            raise _NoAnswerError(f"{httpx.URL(url).host} answers what is no JSON") from None


_WRITER: Final = "See which registry the record's writer uses, or let the record go with errors.tolerance=all."
_REGISTER: Final = "Register it, or set auto.register.schemas=true."


def _schema(body: Mapping[str, Any]) -> RegisteredSchema:
    references: Sequence[Mapping[str, Any]] = body.get("references") or ()
    return RegisteredSchema(
        text=body["schema"],
        kind=body.get("schemaType") or "AVRO",
        references=tuple(Reference(one["name"], one["subject"], int(one["version"])) for one in references),
    )


def _said(body: Any) -> str:
    """Returns what a registry says of an error, in one line."""
    text = body.get("message", "") if isinstance(body, dict) else ""
    return " ".join(str(text).split())[:500] or "it says nothing"


def _trust(settings: RegistrySettings) -> ssl.SSLContext | bool:
    if not settings.trusted and not settings.certificate:
        return True
    context = ssl.create_default_context(cafile=settings.trusted)
    if settings.certificate:
        context.load_cert_chain(settings.certificate, password=settings.key_password)
    return context

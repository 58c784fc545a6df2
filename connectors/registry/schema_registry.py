"""Asks a schema registry, by the REST interface that Confluent's has and Apicurio's has under `/apis/ccompat/v7`.

A schema never changes once it has an id, so it is kept for good. What the registry says is not there, or is refused, is
an error of the record that names it. A registry that does not answer is none: it is asked again for a while, and then
nothing is known (RegistryError); nor is any other answer, which comes of an address or a right that is wrong.
"""

from __future__ import annotations

import json
import re
import ssl
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import httpx
from msgspec import Struct

from compactor.secret_forms import forms_of, without
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.data.collector import decoded
from connectors.data.kept import Refusals, weight_of
from connectors.errors import DataError, RegistryError, RegistryRefusedError
from connectors.kept_values import Kept
from connectors.registry.answers import (
    LARGEST_ID,
    RegisteredSchema,
    RegistryAnswer,
    global_id_of,
    id_of,
    schema_of,
    text_of,
)
from connectors.registry.http_client import (
    MAX_BYTES,
    AnswerTooLargeError,
    HttpAnswer,
    HttpClient,
    HttpRequest,
    NoCookies,
)
from connectors.registry.patience import Patience
from connectors.registry.settings import COMPATIBLE, RegistrySettings

WAITS_MS: Final = (100, 200, 400)
"""How long it is waited for before a registry that does not answer is asked again."""
LIMIT_S: Final = 5.0
"""How long (s) one question takes in all, whatever a registry does; a portion's `Patience` may allow less."""
_MOST: Final = 100_000
_HEAVIEST: Final = 64 << 20
"""How many schemas are kept, and how many bytes of them; the oldest are asked for again."""
CORE: Final = "/apis/registry/v2"
"""Apicurio's own interface, which its versions 2 and 3 both have; it alone knows globalId."""
_GUIDS: Final = "/schemas/guids/"
_SCHEMA_PATH: Final = re.compile(rf"{CORE}/ids/globalIds/\d+$")
"""At these paths Apicurio answers with the text of a schema alone."""
_PATH: Final = 300
"""Characters of a path that a message shows: the name of a subject may come from a record, and be of any length."""
_KIND: Final = "application/vnd.schemaregistry.v1+json"
_UNAUTHORIZED: Final = frozenset({401, 403})
_BUSY: Final = frozenset({408, 429})
_OF_REQUEST: Final = frozenset({400, 404, 413, 414, 431})
"""What a server answers to a path that it does not know or cannot read, or that is too long, or to such a body."""
_LONGEST_SUBJECT: Final = 8_000
"""Characters of a subject in a path: Jetty, on which Confluent's registry runs, takes 8 KiB of a request's line and
headers, and httpx makes no address above 64 KiB."""
_TEXTS: Final = {"PROTOBUF": "application/x-protobuf"}
"""The types of content of schemas' texts that are no JSON, as Apicurio's own interface has them."""


class _NoAnswerError(Exception):
    """A registry did not answer, or said that it cannot now."""


class _LargeAnswerError(_NoAnswerError):
    """An answer is larger than it is read: it counts as none unless a registry gives it."""


class _RefusedRequestError(Exception):
    """What answers as a registry does not take one request, or answers it with too much: a record has made it."""


class _Question(Struct, frozen=True):
    """What is asked: `what` is how an error names it. A RegisteredSchema as `body` is sent as its text alone.

    With `is_of_answer` an answer of the registry says what is in the path, not a record.
    """

    method: str
    path: str
    what: str
    body: Any = None
    is_of_answer: bool = False

    @property
    def of_record(self) -> str:
        """What a record says in it."""
        if self.is_of_answer:
            return ""
        text = self.body.text if isinstance(self.body, RegisteredSchema) else json.dumps(self.body)
        return f"{unquote(self.path)} {text}"


class _Address(Struct, frozen=True):
    """An address of a registry, and how messages name it."""

    url: str
    named: str


class SchemaRegistry:
    """One registry, at one or several addresses. Used by one thread.

    `patience` is how long it may be waited for by what asks now; `largest_id` is the largest id of a schema that can be
    written into a record.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
        limit_s: float = LIMIT_S,
    ) -> None:
        self._limit_s = limit_s
        self.patience = Patience()
        self.largest_id = LARGEST_ID
        self._addresses = tuple(map(_Address, settings.urls, settings.named))
        # Credentials that an answer is shown without: a status is seen by others than those who may log in there.
        self._sent = settings.sent
        self._client = HttpClient(
            httpx.Client(
                auth=(settings.user, settings.password) if settings.user else None,
                headers={"Accept": _KIND, **({"Authorization": f"Bearer {settings.token}"} if settings.token else {})},
                verify=_trust(settings),
                proxy=settings.proxy,
                cookies=NoCookies(),
                trust_env=False,  # no proxy of the environment, as in Java: brokers are asked without one as well
                transport=transport,
            )
        )
        self._refusals = Refusals(clock)
        self._clock = clock
        self._schemas: Kept[str, RegisteredSchema] = Kept(_MOST, _HEAVIEST)

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def schema(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Returns the schema with an id. Raises DataError if there is none, RegistryError."""
        about = f"?subject={quote(subject, safe='')}" if subject else ""
        return self._kept(f"/schemas/ids/{schema_id}{about}", f"schema {schema_id}")

    def schema_by_guid(self, guid: str) -> RegisteredSchema:
        """Returns the schema with Confluent's GUID. Raises DataError if there is none, RegistryError."""
        return self._kept(f"{_GUIDS}{guid}", f"schema with GUID {guid}")

    def schema_by_global_id(self, global_id: int, kind: str) -> RegisteredSchema:
        """Returns the schema of type `kind` with Apicurio's globalId; its Confluent-compatible interface has none.

        Raises DataError if there is none, RegistryError.
        """
        return self._kept(f"{CORE}/ids/globalIds/{global_id}", f"schema with globalId {global_id}", kind)

    def global_id(self, subject: str, schema: RegisteredSchema) -> int:
        """Returns the globalId of a schema that is registered. Raises DataError if it is not, RegistryError."""
        path = f"{CORE}/groups/default/artifacts/{_quoted(subject)}/meta?canonical=true"
        return self._refusals.of((path, schema), lambda: self._global_id(path, subject, schema))

    def _global_id(self, path: str, subject: str, schema: RegisteredSchema) -> int:
        answer = self._ask(_Question("POST", path, f"the globalId of a schema of {subject}", schema))
        if answer.has_no_artifact:
            raise DataError(f"The registry has no globalId for the schema of {subject}: {answer.said}.", _REGISTER)
        return answer.read(lambda body: global_id_of(body, self.largest_id))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Returns a version of a subject that a schema refers to. Raises DataError if there is none, RegistryError."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        return self._kept(path, f"version {version} of {self._hidden(subject)}", is_of_answer=True)

    def register(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Registers `schema` if it is not registered, and returns its id. Raises DataError if it is refused."""
        path = f"/subjects/{_quoted(subject)}/versions"
        return self._refusals.of((path, schema), lambda: self._id_of(path, subject, schema, normalize=normalize))

    def find(self, subject: str, schema: RegisteredSchema, *, normalize: bool = False) -> int:
        """Returns the id of a schema that is registered. Raises DataError if it is not."""
        path = f"/subjects/{_quoted(subject)}"
        return self._refusals.of((path, schema), lambda: self._id_of(path, subject, schema, normalize=normalize))

    def _kept(self, path: str, what: str, kind: str = "", *, is_of_answer: bool = False) -> RegisteredSchema:
        """Returns the schema at `path`; `kind` is its type if the registry answers with its text alone."""
        schema = self._schemas.get(path)
        if schema is None:
            question = _Question("GET", path, what, is_of_answer=is_of_answer)
            schema = self._refusals.of(path, lambda: self._asked(question, kind))
            self._schemas.put(path, schema, weight_of(path, schema))
        return schema

    def _asked(self, question: _Question, kind: str) -> RegisteredSchema:
        path, what = question.path, question.what
        answer = self._ask(question)
        if _is_missing(path, answer):
            raise DataError(f"The registry has no {what}: {answer.said}.", _writer(path))
        if not kind:
            return answer.read(schema_of)
        text = answer.read(lambda body: text_of(body if kind == "PROTOBUF" else json.dumps(body)))
        references = self._ask(_Question("GET", f"{path}/references", f"what {what} refers to")).references()
        return RegisteredSchema(text, kind, references)

    def _hidden(self, text: str) -> str:
        """Returns a text of a registry's answer without the credentials that were sent to it."""
        return without(text, forms_of(*self._sent))

    def _id_of(self, path: str, subject: str, schema: RegisteredSchema, *, normalize: bool) -> int:
        if len(schema.text) > MAX_BYTES:  # it could be registered, and never be read; most registries just hang up
            raise DataError(f"The schema of {subject} has more than {MAX_BYTES >> 20} Mi characters.", "Split it.")
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != "AVRO":
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [
                {"name": reference.name, "subject": reference.subject, "version": reference.version}
                for reference in schema.references
            ]
        path += "?normalize=true" if normalize else ""
        answer = self._ask(_Question("POST", path, f"a schema of {subject}", body))
        if answer.status == httpx.codes.CONFLICT:
            raise DataError(
                f"The registry refuses the schema of {subject} as incompatible with an earlier one: "
                f"{answer.conflicts}.",
                "Change the transform so that the schema stays compatible, or the subject's compatibility.",
            )
        if answer.is_missing or answer.status == httpx.codes.UNPROCESSABLE_ENTITY:
            raise DataError(f"The registry does not take the schema of {subject}: {answer.said}.", _REGISTER)
        return answer.read(lambda body: id_of(body, self.largest_id))

    def _ask(self, question: _Question) -> RegistryAnswer:
        """Asks until there is an answer. Raises RegistryError if there is none in `limit_s`, or no right.

        Raises DataError if what answers as a registry otherwise does not take this request, as a record has made it.
        That one question has no answer never makes an error of the record, also if others have theirs: a proxy in front
        of a registry that is away answers what it has kept, and the records of every new schema would be let go.

        Raises PortionLateError if the portion that asks may wait no longer.
        """
        with self.patience.waiting():
            left_s = self.patience.left_s
            end_ms = self._clock.monotonic_ms() + round(min(self._limit_s, left_s) * 1000)
            for wait_ms in (*WAITS_MS, None):
                try:
                    return self._ask_each(question, end_ms)
                except _RefusedRequestError as error:
                    raise DataError(f"The registry {error}.", _writer(question.path)) from None
                except _NoAnswerError as error:
                    last = error
                if wait_ms is None:
                    break
                if self._clock.monotonic_ms() + wait_ms >= end_ms or self.patience.left_s <= 0:
                    if left_s < self._limit_s or self.patience.left_s <= 0:  # it had less time than a question has
                        raise self.patience.late()
                    break
                self._clock.sleep_ms(wait_ms)
        address = address_of(self._addresses[0].named, self._shown_path(question))
        raise RegistryError(
            f"The schema registry does not answer: {last}, asked for {question.what[:_PATH]}.",
            f"It is asked again when the connector is started again. See whether {address} is answered within "
            f"{self._limit_s:g} s, and check schema.registry.url; docs/converters.md says how to pass a record over.",
        )

    def _shown_path(self, question: _Question) -> str:
        return (self._hidden(question.path) if question.is_of_answer else question.path)[:_PATH]

    def _ask_each(self, question: _Question, end_ms: int) -> RegistryAnswer:
        """Asks one address after the other, each for its share of the time until `end_ms`."""
        last = _NoAnswerError("no address")
        for number, address in enumerate(self._addresses):
            left_s = (end_ms - self._clock.monotonic_ms()) / 1000
            if left_s <= 0:
                break
            try:
                return self._ask_of_record(question, address, left_s / (len(self._addresses) - number))
            except _NoAnswerError as error:
                last = error
        raise last

    def _ask_of_record(self, question: _Question, address: _Address, share_s: float) -> RegistryAnswer:
        """Asks one address what a record has made the path or body of, for `share_s` in all.

        A record may name any id, GUID or subject, so that one the registry has no path for must neither make the
        connector wait nor fail, nor must a schema that is too large to be read. If the same address answers as a
        registry does, the refusal is no proxy's, and none of an address that is wrong: it is an error of the record
        alone.
        """
        end_ms = self._clock.monotonic_ms() + round(share_s * 1000)
        what = question.what[:_PATH]
        try:
            answer = self._ask_one(question, address, share_s)
        except _LargeAnswerError as error:
            self._blame(f"answers the request for {what} with {error}", address, end_ms)
            raise
        if answer.status in _OF_REQUEST and not _is_missing(question.path, answer):
            self._blame(f"does not take the request for {what}: {answer.status}, {answer.said}", address, end_ms)
        if not answer.is_json:
            raise _NoAnswerError(f"{answer.asked} is answered with {answer.status} and no JSON")
        return answer

    def _blame(self, said: str, address: _Address, end_ms: int) -> None:
        """Raises _RefusedRequestError if a registry answers at `address`: what it has `said` is about the request."""
        left_s = max(_LEAST_S, (end_ms - self._clock.monotonic_ms()) / 1000)
        if self._is_registry(address, left_s):
            raise _RefusedRequestError(said)

    def _is_registry(self, address: _Address, share_s: float) -> bool:
        """Returns whether what answers at an address lists types of schemas."""
        try:
            answer = self._ask_one(_LIST_TYPES, address, share_s)
        except (RegistryRefusedError, _LargeAnswerError):
            return False
        return answer.status == httpx.codes.OK and isinstance(answer.body, list) and "AVRO" in answer.body

    def _ask_one(self, question: _Question, address: _Address, share_s: float) -> RegistryAnswer:
        method, path, body = question.method, question.path, question.body
        headers = {"Content-Type": _KIND} if body is not None else {}
        if isinstance(body, RegisteredSchema):
            headers = {"Content-Type": _TEXTS.get(body.kind, "application/json")}
            body = body.text.encode()
        if path.startswith(CORE):  # Apicurio's own interface: it gives plain JSON, or a schema's text
            headers["Accept"] = "*/*"
        request = HttpRequest(method, address_of(address.url, path), headers, body)
        asked = f"{method} {address_of(address.named, self._shown_path(question))}"
        try:
            response = self._client.ask(request, share_s, lambda: self.patience.left_s <= 0)
        except httpx.HTTPError as error:
            raise _no_answer(error, address) from None
        if response.status in _UNAUTHORIZED:
            raise RegistryRefusedError(
                f"The schema registry answers {asked} with {response.status}: it does not let this user in.",
                "Check basic.auth.user.info or bearer.auth.token, and what that user may do.",
            )
        if _is_busy(response.status):
            raise _NoAnswerError(f"{response.status} from {address.named}")
        try:
            content, is_json = _content_of(path, response), True
        except (ValueError, RecursionError):
            content, is_json = None, False
        return RegistryAnswer(asked, response.status, content, self._sent, question.of_record, is_json)


_LEAST_S: Final = 0.001
"""What is left (s) of a question's time at least: what cannot be asked in it is no answer, and asked again."""
_LIST_TYPES: Final = _Question("GET", "/schemas/types", "the types of schemas")
"""What Confluent's and Apicurio's registries answer alike, AVRO, JSON and PROTOBUF, and no proxy's page does."""
_WRITER: Final = "See which registry the record's writer uses, or let the record go with errors.tolerance=all."
_BY_CONTENT: Final = (
    "It was asked for by Confluent's id, which is Apicurio's contentId; if the writer sends globalId, set "
    f"apicurio.registry.use-id=globalId. {_WRITER}"
)
_BY_GLOBAL: Final = (
    "It was asked for by Apicurio's globalId; if the writer sends contentId, set apicurio.registry.use-id=contentId. "
    f"{_WRITER}"
)
_BY_GUID: Final = f"Apicurio's does not know schemas by GUID, nor do older ones of Confluent's. {_WRITER}"
_SUBJECT: Final = "Give the schema another name, or set the subject.name.strategy to TopicNameStrategy."
_REGISTER: Final = "Register it, or set auto.register.schemas=true."


def _no_answer(error: httpx.HTTPError, address: _Address) -> _NoAnswerError:
    if not isinstance(error, AnswerTooLargeError):
        return _NoAnswerError(f"{type(error).__name__} at {address.named}")
    kind = _NoAnswerError if error.status in _UNAUTHORIZED or _is_busy(error.status) else _LargeAnswerError
    return kind(f"{error.status} and more than {MAX_BYTES >> 20} MiB")


def _is_busy(status: int) -> bool:
    return status in _BUSY or status >= httpx.codes.INTERNAL_SERVER_ERROR


def _content_of(path: str, response: HttpAnswer) -> Any:
    """Returns what an answer holds: JSON, or the text of a file of Protobuf, which no page of a proxy is taken for.

    Raises ValueError, RecursionError.
    """
    try:
        return decoded(json.loads, response.body)
    except ValueError:
        text = response.body.decode()
        if response.status != httpx.codes.OK or not _SCHEMA_PATH.search(path) or text.lstrip().startswith("<"):
            raise
        return text


def _is_missing(path: str, answer: RegistryAnswer) -> bool:
    """Returns whether a registry says that there is no schema at `path`."""
    if path.startswith(CORE):
        return answer.has_no_artifact
    return answer.is_missing


def _writer(path: str) -> str:
    """Returns what to do if there is no schema at `path`: which kind of id was asked for, and what decides it."""
    if path.startswith(CORE):
        return _BY_GLOBAL
    if path.startswith(_GUIDS):
        return _BY_GUID
    if path.startswith("/schemas/ids/"):
        return _BY_CONTENT
    return _WRITER


def _quoted(subject: str) -> str:
    """Returns a subject as a path has it. Raises DataError for one that makes another path, or none."""
    try:
        quoted = quote(subject, safe="")
    except UnicodeEncodeError:
        raise DataError("The subject of a schema has half of a surrogate pair.", _SUBJECT) from None
    if quoted in {"", ".", ".."} or len(quoted) > _LONGEST_SUBJECT:
        raise DataError(
            f"No path can have the subject of a schema: it is empty, . or .., or of more than {_LONGEST_SUBJECT:,} "
            f"characters ({len(quoted)}).",
            _SUBJECT,
        )
    return quoted


def address_of(url: str, path: str) -> str:
    """Returns the address of `path` at the registry `url`: Apicurio's own interface is next to its compatible one."""
    return COMPATIBLE.sub("", url) + path if path.startswith(CORE) else url + path


def _trust(settings: RegistrySettings) -> ssl.SSLContext | bool:
    if not any(urlsplit(url).scheme == "https" for url in settings.urls):
        return False  # nothing is asked over TLS, as redirections are not followed: no certificates are loaded
    if not settings.trusted and not settings.certificate:
        try:
            return httpx.create_ssl_context()
        except OSError as error:
            raise ValueError(f"SSL_CERT_FILE of the environment cannot be read: {error.strerror}.") from error
    context = ssl.create_default_context(cafile=settings.trusted)
    if settings.certificate:
        context.load_cert_chain(settings.certificate, password=settings.key_password)
    return context

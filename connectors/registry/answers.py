"""Reads the answers of a schema registry: each is checked by type and range before anything is made of it.

What answers may be any server. An answer that is none of a registry's is never an error of the record: it is a
RegistryRefusedError, as records would else be let go under errors.tolerance=all because a proxy is in the way.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final, NamedTuple, TypeVar

import httpx
from msgspec import Struct

from compactor.secret_forms import forms, forms_of, without
from connectors.errors import DataError, RegistryRefusedError
from connectors.known_values import without_credentials

Result = TypeVar("Result")

LARGEST_ID: Final = (1 << 31) - 1
"""The largest id (Java's int) that Confluent's wire format and its registry have."""
LARGEST_LONG_ID: Final = (1 << 63) - 1
"""The largest id (Java's long) that Apicurio has, in a header or in 8 bytes before the data."""
_LARGEST_VERSION: Final = (1 << 31) - 1
_NOT_FOUND: Final = frozenset({40401, 40402, 40403})
"""The error codes that say that a subject, a version or a schema is not there."""
_NO_ARTIFACT_CODE: Final = 404
"""The error code of Apicurio's own interface for all that is missing."""
_NO_ARTIFACT: Final = "NotFoundException"
"""How the name of an error of Apicurio's ends that says what is not there; alone it is that of a path."""
_DEFAULT_GROUP: Final = "default"
"""The group of Apicurio's artifacts that its Confluent-compatible interface has as subjects."""
_SAID: Final = 500
"""Characters that are shown of what a registry says: its own messages have 200 at most, apart from schemas in them."""
_NAMED: Final = 100
"""Characters of a name that a registry has, in a message."""
_GROUP: Final = "Only the group `default` is read; register what it refers to there."
_CONFLICT: Final = re.compile(r"\b[A-Z]{2,30}(?:_[A-Z]{2,30}){1,8}\b")
"""A kind of error of Avro's, JSON Schema's or Protobuf's checks, such as READER_FIELD_MISSING_DEFAULT_VALUE."""
_PLACE: Final = re.compile(r"(?<![\w/:])(?:/(?:[a-z]{1,20}|\d{1,6})){1,20}(?![\w/])")
"""The place of an error in the new schema, such as /fields/1."""
_MOST_CONFLICTS: Final = 10
_ESCAPE: Final = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL
)
"""A character as JSON and Protobuf escape it."""
_READ: Final = 10_000
"""Characters of it that are searched for words before credentials: an answer may have 4 MiB."""
_TYPES: Final = frozenset(
    ("AVRO", "JSON", "PROTOBUF", "ASYNCAPI", "GRAPHQL", "KCONNECT", "OPENAPI", "WSDL", "XML", "XSD")
)
"""Types of schemas that Confluent's and Apicurio's registries have."""


class IdKind(Enum):
    """By what a schema is asked for; the value is how an error names it."""

    ID = "id"
    """Confluent's id, which for Apicurio is the contentId, as its Confluent-compatible interface has it."""
    GLOBAL_ID = "globalId"
    """Apicurio's id of a version of an artifact."""
    GUID = "GUID"
    """Confluent's id of a schema in every registry."""


class SchemaId(NamedTuple):
    """Names a schema of a registry: a number, or the text of a GUID."""

    kind: IdKind
    value: int | str

    def __str__(self) -> str:
        return str(self.value) if self.kind is IdKind.ID else f"with {self.kind.value} {self.value}"

    @property
    def encoding(self) -> str:
        """The id in a key's encoding (`record.RUN`): what is kept has to be told from then on."""
        return f"g{self.value}" if self.kind is IdKind.GLOBAL_ID else str(self.value)


class Reference(Struct, frozen=True):
    """A schema that another one names as `name`; it is registered as `version` of `subject`."""

    name: str
    subject: str
    version: int


class RegisteredSchema(Struct, frozen=True):
    """A schema's text, its type (AVRO, JSON, PROTOBUF, another of `_TYPES`, or `unknown`), and what it refers to."""

    text: str
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


class RegistryAnswer(Struct, frozen=True):
    """What a registry has answered: `asked` is the method and the address, `body` what its JSON says.

    `sent` are the credentials that were sent: an answer may repeat the request's headers. `of_record` is what was sent
    besides, path and body: records say what is in them. Without `is_json` it is a page, and has no body.
    """

    asked: str
    status: int
    body: Any
    sent: tuple[str, ...] = ()
    of_record: str = ""
    is_json: bool = True

    @property
    def is_missing(self) -> bool:
        """Whether it says that a subject, a version or a schema is not there."""
        code = self._part("error_code")
        return self.status == httpx.codes.NOT_FOUND and type(code) is int and code in _NOT_FOUND

    @property
    def has_no_artifact(self) -> bool:
        """Whether Apicurio's own interface says that an artifact, or a version of it, is not there."""
        code, name = self._part("error_code"), self._part("name")
        is_said = isinstance(name, str) and name.endswith(_NO_ARTIFACT) and name != _NO_ARTIFACT
        is_missing = self.status == httpx.codes.NOT_FOUND and type(code) is int and code == _NO_ARTIFACT_CODE
        return is_missing and is_said

    @property
    def said(self) -> str:
        """What it says of an error, in one line, without what was sent as credentials."""
        return self._shown(self._message, _SAID) or "it says nothing"

    @property
    def conflicts(self) -> str:
        """What it says of a schema that is incompatible: the kinds of error, and their places in the schema.

        No more is shown of that: it quotes names of an earlier schema, which anyone may have registered.
        """
        text = without(self._message, forms_of(*self._withheld(self._message)))[:_READ]  # words may be a password
        said = [*_CONFLICT.findall(text), *_PLACE.findall(text)]
        return ", ".join(list(dict.fromkeys(said))[:_MOST_CONFLICTS]) or "it gives no kind of error"

    @property
    def _message(self) -> str:
        message = self._part("message")
        return message.encode("utf-8", "replace").decode() if isinstance(message, str) else ""

    def references(self) -> tuple[Reference, ...]:
        """Reads what a schema refers to, as Apicurio lists it. Raises as `read`; DataError for another group."""
        return self.read(lambda body: tuple(map(self._artifact, body)))

    def _artifact(self, reference: Mapping[str, Any]) -> Reference:
        name, artifact = text_of(reference["name"]), text_of(reference["artifactId"])
        if (group := reference.get("groupId")) not in {None, _DEFAULT_GROUP}:
            named, place = self._shown(artifact, _NAMED), self._shown(text_of(group), _NAMED)
            raise DataError(f"The schema refers to {named} in Apicurio's group {place}.", _GROUP)
        return Reference(name, artifact, _whole(int(text_of(reference["version"])), 1, _LARGEST_VERSION))

    def _shown(self, text: str, most: int) -> str:
        """Returns at most `most` characters of a text of the answer in one line, without what was sent as credentials.

        They are hidden in the whole text: of one that is cut first, a part could be shown.
        """
        hidden = without(text, forms_of(*self._withheld(text)))[:_READ]
        return without_credentials(" ".join(hidden.split()))[:most]

    def _withheld(self, said: str) -> Iterator[str]:
        """Yields the credentials that are hidden in a text of the answer.

        One that was also asked with is not among them: a record has brought it, and an answer repeats what is asked. If
        it were hidden, who writes the record would learn that a guess of it is right.
        """
        repeated = [secret for secret in self.sent if any(form in said for form in forms(secret))]
        asked = [form for text in _readings(self.of_record) for form in forms(text)] if repeated else []
        for secret in repeated:
            if not any(form in text for form in forms(secret) for text in asked):
                yield secret

    def read(self, of: Callable[[Any], Result]) -> Result:
        """Returns what `of` makes of the body of a success. Raises RegistryRefusedError for any other answer."""
        if self.status == httpx.codes.OK:
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                return of(self.body)
        raise RegistryRefusedError(
            f"What answers {self.asked} with {self.status} is no schema registry, or refuses the request: {self.said}.",
            "Check that schema.registry.url is where its REST interface begins (Apicurio's: http://HOST:8080/apis/ccompat/v7).",
        )

    def _part(self, name: str) -> Any:
        return self.body.get(name) if isinstance(self.body, dict) else None


def schema_of(body: Mapping[str, Any]) -> RegisteredSchema:
    """Reads a schema. Raises KeyError, TypeError, ValueError, AttributeError for a body that has none.

    A type that no registry has is not quoted by errors of records: it may repeat what was sent as credentials.
    """
    kind = text_of(body.get("schemaType") or "AVRO")
    return RegisteredSchema(
        text=text_of(body["schema"]),
        kind=kind if kind in _TYPES else "unknown",
        references=tuple(map(_reference, body.get("references") or ())),
    )


def global_id_of(body: Mapping[str, Any], largest: int) -> int:
    """Reads the globalId of an artifact's version, up to `largest`. Raises as `id_of`."""
    return _whole(body["globalId"], 0, largest)


def id_of(body: Mapping[str, Any], largest: int) -> int:
    """Reads the id of a schema, up to `largest`. Raises KeyError, TypeError, ValueError for a body that has none."""
    return _whole(body["id"], 0, largest)


def _readings(text: str) -> tuple[str, str, str]:
    """Returns a request's text as it is, and as its reader reads it: a default may be JSON in a text of JSON."""
    once = _ESCAPE.sub(_character, text)
    return text, once, _ESCAPE.sub(_character, once)


def _character(escape: re.Match[str]) -> str:
    four, eight, two, octal, plain = escape.groups()
    if plain is not None:
        return str(plain)
    code = int(octal, 8) if octal else int(four or eight or two, 16)
    return chr(code) if code <= sys.maxunicode else escape[0]


def _reference(reference: Mapping[str, Any]) -> Reference:
    version = _whole(reference["version"], 1, _LARGEST_VERSION)
    return Reference(text_of(reference["name"]), text_of(reference["subject"]), version)


def text_of(value: Any) -> str:
    """Returns a text. Raises ValueError for one that UTF-8 cannot write: JSON may hold half of a surrogate pair."""
    if not isinstance(value, str):
        raise TypeError(type(value))
    value.encode()
    return value


def _whole(value: Any, least: int, largest: int) -> int:
    """Returns a whole number in its range: JSON's 1e400 is infinite, and true is 1 in Python."""
    if type(value) is not int or not least <= value <= largest:
        raise ValueError(type(value))
    return value

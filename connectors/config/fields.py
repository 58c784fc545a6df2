"""Defines the types of settings: how the text of a file becomes a value, and what is allowed.

Every value of a file is text first, as in Kafka Connect (1 and "1", true and "true" are the same), and blanks around it
do not count (Kafka's ConfigDef). A validator raises ValueError for a text that is not allowed; a message of its own
goes before the words of `Allowed` for what is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import msgspec
from annotated_types import Ge, Le
from pydantic import BeforeValidator, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from connectors.config.topics import is_internal, is_topic_name
from connectors.placeholders import UNLIMITED, Limits, resolve

CONNECTOR_CLASS: Final = "keyfold.CompactedTopic"
# The bounds of Java's short, int and long, which Kafka's own settings have.
SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_MOST_TASKS: Final = 10_000
"""As many transactional ids as a committed position names (`compactor.model.position.MOST_BUCKETS`), one a task."""
_MOST_EXCLUDED: Final = 50
"""Patterns of `topics.exclude`: each is matched against every topic of the cluster that `topics.regex` matches, some
2 µs each, which is 1 s for 10,000 topics. Fewer would be too few for a database's own topics of every kind."""
_WHOLE = re.compile(r"\+?\d{1,19}|-(?!0\d)\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_CONNECTOR_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(?<!\.)", re.ASCII)
_MASTER = re.compile(
    r"local|local\[(\*|0*[1-9]\d*)(\s*,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s/,]+:\d{1,5}(,[^\s/,]+:\d{1,5})*|k8s://\S+|yarn",
    re.ASCII,
)
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]+):(\d{1,5})")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}", re.ASCII)
_LISTENER = re.compile(r"(https?)://(\[[0-9A-Fa-f:.%]+\]|[^\s:,/\[\]]*):(\d{1,5})/?", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Bytes of a header's name; each commit of the catalog's state has it.
_MOST_NAME = 249
# Characters of a path: Linux's PATH_MAX without the NUL that ends it.
_PATH_MAX = 4_095


class Listener(msgspec.Struct, frozen=True):
    """An address that REST is served on; port 0 takes any that is free."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")

    def __str__(self) -> str:
        return (
            f"{self.scheme}://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.scheme}://{self.host}:{self.port}"
        )


class RefusalError(ValueError):
    """A value is refused with a whole sentence, to which neither the value nor what is allowed is added."""


class Allowed(msgspec.Struct, frozen=True):
    """What a type allows, in words, and Connect's name of it; "": INT or LONG, by its greatest number."""

    words: str
    type: str = "STRING"


class Folder(msgspec.Struct, frozen=True):
    """The setting names a folder; `optional`: or `none`."""

    optional: bool = False


class OrMinusOne(Allowed, frozen=True):
    """-1, which has a meaning of its own, or a number from `least` on."""

    least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def _checked(self, value: int) -> int:
        if value != -1 and value < self.least:
            raise ValueError
        return value


def or_minus_one(meaning: str, least: int = 0) -> OrMinusOne:
    """Allows -1 for `meaning`, or a number from `least` on."""
    return OrMinusOne(f"-1 ({meaning}) or a whole number, {least} or more", "", least)


def text_of(raw: object, limits: Limits = UNLIMITED) -> str:
    """Returns the text of a value of a file, placeholders resolved, blanks around it removed. Raises ValueError."""
    if isinstance(raw, RefusalError):
        raise raw
    return resolve(str(raw), limits, is_shown=True).strip()


def limits_of(info: ValidationInfo) -> Limits:
    """Returns what placeholders may read in the settings that are validated: the context of the validation says it."""
    return info.context if isinstance(info.context, Limits) else UNLIMITED


def as_text(raw: object) -> str | RefusalError:
    """Returns the text of a JSON value as it is kept and shown; a refusal of all but texts, numbers, true and false."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str | int | float):
        return RefusalError("a text with NUL (\\u0000) in it is not allowed.") if "\0" in str(raw) else str(raw)
    if raw is None:
        return RefusalError("null is not allowed; leave the key out for its default.")
    if isinstance(raw, list):
        return RefusalError('a list is not allowed; write one text with commas: "a,b".')
    return RefusalError("an object is not allowed; a value is a text, a number, true or false.")


def check_topic(name: str) -> str:
    """Returns `name` if Kafka allows such a topic; raises ValueError."""
    if not is_topic_name(name):
        raise ValueError(f'"{name}" is no topic name: letters, digits, ".", "_" and "-", at most 249, not "." or ".."')
    return name


def _written_topic(name: str) -> str:
    """Returns `name` if it is a topic that keyfold may write to; raises ValueError."""
    if is_internal(check_topic(name)):
        raise ValueError(f'"{name}" begins with "__", as internal topics do; keyfold never writes to one')
    return name


def is_connector_name(name: str) -> bool:
    """Returns whether a connector may be called `name`: it becomes part of paths, ids and a group's name."""
    return bool(_CONNECTOR_NAME.fullmatch(name))


def local_path(text: str) -> Path:
    """Returns the folder that a path or a `file:` URL names; a relative path stays relative.

    Raises ValueError, with the reason, for an empty text, another scheme, a URL with a host, or a name that is none.
    """
    if not text.strip():
        raise ValueError("no folder is named")
    scheme = _SCHEME.match(text)
    path = _path_of_url(text, scheme[1].lower()) if scheme else Path(text)
    if "\0" in str(path) or len(text) > _PATH_MAX:
        raise ValueError(f"no folder can have that name: at most {_PATH_MAX} characters, and no NUL")
    try:
        return path if scheme else path.expanduser()
    except RuntimeError:
        raise ValueError("there is no such user, or it has no home folder") from None


def _path_of_url(text: str, scheme: str) -> Path:
    if scheme != "file":
        raise ValueError(f"{scheme}: names no folder of this machine; name a path or a file: URL")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"a file: URL has no host ({parts.hostname}); write file:///folder")
    if not parts.path:
        raise ValueError("no folder is named")
    return Path(unquote(parts.path))


def _of_text(parse: Callable[[str], Any]) -> BeforeValidator:
    def read(raw: object, info: ValidationInfo) -> Any:
        return parse(text_of(raw, limits_of(info)))

    return BeforeValidator(read)


def _whole(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError
    return int(text)


def _unlimited(text: str) -> int | None:
    return None if text.lower() == "unlimited" else _whole(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return float(text)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _listed(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise ValueError("has an empty element")
    doubled = sorted(part for part, times in Counter(parts).items() if times > 1)
    if doubled:
        raise ValueError(f"names {', '.join(doubled)} more than once")
    return parts


def _words(text: str) -> frozenset[str]:
    return frozenset(_listed(text.lower()))


def _words_or_none(text: str) -> frozenset[str]:
    return frozenset() if text.lower() == "none" else _words(text)


def _topics(text: str) -> tuple[str, ...]:
    return tuple(check_topic(part) for part in _listed(text))


def _paths(text: str) -> tuple[str, ...]:
    paths = _listed(text)
    for path in paths:
        if not Path(path).is_absolute():
            raise ValueError(f'"{path}" is no absolute path')
    return paths


def _locations(text: str) -> tuple[str, ...]:
    locations = _listed(text)
    for location in locations:
        if is_folder(location) and not Path(store_location(location)).is_absolute():
            raise ValueError(f'"{location}" is no absolute path')
        store_location(location)
    return locations


def _java_regex(text: str) -> str:
    from connectors.java_pattern import java_pattern

    java_pattern(text)
    return text


def _topic_patterns(text: str) -> tuple[str, ...]:
    patterns = _listed(text)
    if len(patterns) > _MOST_EXCLUDED:
        raise ValueError(f"names {len(patterns)} patterns, and {_MOST_EXCLUDED} are the most; join some by |")
    for pattern in patterns:
        try:
            _java_regex(pattern)
        except ValueError as error:
            raise ValueError(f'"{pattern}": {error}; commas stand between patterns') from None
    return patterns


def _output_topic(text: str) -> str:
    """Returns `text` if it is `none`, a topic name, or one with `${topic}` in it."""
    if text.lower() == "none":
        return "none"
    _written_topic(text.replace("${topic}", "t"))
    return text


def _class(text: str) -> str:
    if text not in (CONNECTOR_CLASS, CONNECTOR_CLASS.rpartition(".")[2]):
        raise ValueError
    return CONNECTOR_CLASS


def store_location(text: str) -> str:
    """Returns a location as `open_storage` takes it: of a folder the path, of an object store the URL as it is.

    Raises ValueError, with the reason, if it names neither.
    """
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return str(local_path(text))
    from compactor.storage.locations import location_fault

    if (fault := location_fault(text)) is not None:
        raise ValueError(fault)
    return text


def is_folder(text: str) -> bool:
    """Returns whether a location is that of a folder, not of an object store."""
    scheme = _SCHEME.match(text)
    return scheme is None or scheme[1].lower() == "file"


def _location(text: str) -> str:
    store_location(text)
    return text


def _location_or_none(text: str) -> str | None:
    return None if text.lower() == "none" else _location(text)


def _folder_or_none(text: str) -> str | None:
    if text.lower() == "none":
        return None
    local_path(text)
    return text


def _file(text: str) -> Path:
    if not text:
        raise ValueError("no file is named")
    return Path(text).expanduser()


def _servers(text: str) -> str:
    for part in _listed(text):
        match = _SERVER.fullmatch(part)
        if not match or not 0 < int(match[2]) < 65536:
            raise ValueError(f'"{part}" is not HOST:PORT')
    return text


def _listeners(text: str) -> tuple[Listener, ...]:
    return tuple(_listener(part) for part in _listed(text)) if text else ()


def _listener(text: str) -> Listener:
    match = _LISTENER.fullmatch(text)
    if not match or int(match[3]) > 65535:
        raise ValueError(f'"{text}" is not http://HOST:PORT or https://HOST:PORT')
    return Listener(match[1].lower(), match[2].strip("[]") or "0.0.0.0", int(match[3]))  # noqa: S104  # as in Connect


def _matching(pattern: re.Pattern[str]) -> BeforeValidator:
    def parse(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError
        return text

    return _of_text(parse)


def _order(text: str) -> str:
    """Returns the text of an order as a catalog has it: its word in lower case, a name as it is. Raises ValueError."""
    word, colon, name = text.partition(":")
    word = word.strip().lower()
    if colon:
        if word not in ("header", "field") or not name or (word == "field" and not all(name.split("."))):
            raise ValueError
        if len(name.encode()) > _MOST_NAME:
            raise ValueError(f"a {word}'s name of more than {_MOST_NAME} bytes is not taken")
        return f"{word}:{name}"
    if word not in ("offset", "timestamp"):
        raise ValueError
    return word


ANY_CASE: Final = _of_text(str.lower)
"""For a Literal of words in lower case."""
WORDS: Final = _of_text(_words)
"""For a frozenset of a Literal: its words in any order and case, with commas between them."""
WORDS_OR_NONE: Final = _of_text(_words_or_none)
"""For a frozenset of a Literal: as WORDS, or `none` for the empty set."""

Short = Annotated[int, Le(SHORT_MAX), _of_text(_whole)]
Int = Annotated[int, Le(INT_MAX), _of_text(_whole)]
Long = Annotated[int, Le(LONG_MAX), _of_text(_whole)]
Tasks = Annotated[int, Le(_MOST_TASKS), _of_text(_whole)]
LongOrUnlimited = Annotated[
    Annotated[int, Ge(1), Le(LONG_MAX)] | None,
    _of_text(_unlimited),
    Allowed('a whole number, 1 or more, or "unlimited"', "LONG"),
]
Order = Annotated[str, _of_text(_order), Allowed("offset, timestamp, header: with its name, or field: with its path")]
Identity = Annotated[Literal["bytes", "json", "avro"], ANY_CASE]
Filling = Annotated[Literal["none", "unavailable"], ANY_CASE]
Ratio = Annotated[float, Ge(0), Le(1), _of_text(_number), Allowed("a number from 0 to 1", "DOUBLE")]
Flag = Annotated[bool, _of_text(_flag), Allowed("true or false", "BOOLEAN")]
WrittenTopic = Annotated[str, _of_text(_written_topic), Allowed("a topic name that does not begin with __")]
TopicNames = Annotated[tuple[str, ...], _of_text(_topics), Allowed("topic names with commas between them", "LIST")]
TopicRegex = Annotated[str, _of_text(_java_regex), Allowed("a Java regular expression for whole topic names")]
TopicPatterns = Annotated[
    tuple[str, ...],
    _of_text(_topic_patterns),
    Allowed("Java regular expressions for whole topic names, with commas between them", "LIST"),
]
OutputTopic = Annotated[
    str,
    _of_text(_output_topic),
    Allowed("a topic name, with ${topic} where the source's name goes, or none"),
]
ConnectorClass = Annotated[str, _of_text(_class), Allowed(f"{CONNECTOR_CLASS} or CompactedTopic", "CLASS")]
ConnectorName = Annotated[
    str,
    _matching(_CONNECTOR_NAME),
    Allowed(
        'letters, digits, ".", "_" and "-", at most 200, beginning with a letter, digit or "_", not ending in "."'
        " (it names a folder, a group and transactional ids)"
    ),
]
JavaRegex = Annotated[str, _of_text(_java_regex), Allowed("a Java regular expression")]
Paths = Annotated[
    tuple[str, ...], _of_text(_paths), Allowed("absolute paths of files or folders with commas between them", "LIST")
]
Locations = Annotated[
    tuple[str, ...],
    _of_text(_locations),
    Allowed("absolute paths or file: URLs of folders, or prefixes of object stores, with commas between them", "LIST"),
]
FilePath = Annotated[Path, _of_text(_file), Folder(), Allowed("a file's path")]
Text = Annotated[str, _of_text(str), Allowed("a text")]
HostName = Annotated[str, _matching(_HOST), Allowed("a host name or an address")]
FolderNameOrNone = Annotated[
    str | None, _of_text(_folder_or_none), Folder(optional=True), Allowed("a folder: a path or a file: URL, or none")
]
_LOCATIONS = "a folder (a path or a file: URL), or s3://, gs://, az:// or abfss:// with a bucket and a prefix"
Location = Annotated[str, _of_text(_location), Folder(), Allowed(_LOCATIONS)]
LocationOrNone = Annotated[
    str | None, _of_text(_location_or_none), Folder(optional=True), Allowed(f"{_LOCATIONS}; or none")
]
Listeners = Annotated[
    tuple[Listener, ...],
    _of_text(_listeners),
    Allowed("URLs http://HOST:PORT or https://HOST:PORT with commas between them, or nothing", "LIST"),
]
Servers = Annotated[str, _of_text(_servers), Allowed("HOST:PORT, several with commas between them", "LIST")]
SparkMaster = Annotated[
    str,
    _matching(_MASTER),
    Allowed(
        "local, local[N], local[*], local[N,FAILURES], local-cluster[WORKERS,CORES,MEMORY], spark://HOST:PORT, "
        "k8s://URL or yarn"
    ),
]

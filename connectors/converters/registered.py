"""What the converters with a schema registry have in common: settings, and the subjects that schemas are under."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from connectors.converters.converter import Converter
from connectors.converters.wire_format import LONG_IDS, USE_ID_OPTION, WireFormat
from connectors.data.bounds import DEEPEST_SCHEMA, LONGEST_SCHEMA, MOST_REFERENCES
from connectors.data.kept import Refusals, weight_of
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.options import Option
from connectors.registry.answers import IdKind, Reference, RegisteredSchema, SchemaId
from connectors.registry.patience import Patience
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import OPTIONS, USE_ID, registry_settings

_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")

MOST_IDS: Final = 10_000
"""How many ids a converter knows; the oldest are asked for again."""
PARSED: Final = 12
"""About how many bytes a character of a schema takes once it is parsed."""


def _check_strategy(name: str) -> str | None:
    known = name.rpartition(".")[2] in _STRATEGIES
    return None if known else f"allowed are {', '.join(_STRATEGIES)}, with or without their package."


def _check_latest(value: bool) -> str | None:  # noqa: FBT001
    if not value:
        return None
    return (
        "what a transform has made is written with its own schema, which the subject's newest version need not fit; "
        "register that schema with auto.register.schemas=true, or by hand, and leave this out."
    )


def _strategy(side: str) -> Option:
    return Option(
        f"{side}.subject.name.strategy",
        "CLASS",
        "TopicNameStrategy",
        f"Under which subject the schemas of {side}s are: `TOPIC-{side}`, the record's name, or both.",
        check=_check_strategy,
    )


REGISTERED: Final[tuple[Option, ...]] = (
    *OPTIONS,
    Option(
        "auto.register.schemas",
        "BOOLEAN",
        default=True,
        doc="Register the schema of what a transform has made. `false`: it has to be there.",
    ),
    Option(
        "use.latest.version",
        "BOOLEAN",
        default=False,
        doc="`true` is not supported: what a transform has made is written with its own schema.",
        check=_check_latest,
    ),
    Option("normalize.schemas", "BOOLEAN", default=False, doc="Let the registry bring schemas into one form first."),
    _strategy("key"),
    _strategy("value"),
    LONG_IDS,
    USE_ID_OPTION,
)


class _References:
    """Collects the schemas that one of `size` characters refers to, which `ask` returns by subject and version."""

    def __init__(self, ask: Callable[[str, int], RegisteredSchema], size: int) -> None:
        # What was collected, in the order of use: a schema comes after all that it refers to.
        self.texts: dict[Reference, str] = {}
        self._ask = ask
        self._size = size  # of all texts that were collected
        # References that were asked for, so that each is asked for once; MOST_REFERENCES bounds it.
        self._seen: set[Reference] = set()

    def add(self, registered: RegisteredSchema, depth: int = 1) -> None:
        """Adds what a schema refers to. Raises DataError for what is beyond the bounds."""
        for reference in registered.references:
            if reference in self._seen:
                continue
            self._seen.add(reference)
            if len(self._seen) > MOST_REFERENCES or depth > DEEPEST_SCHEMA:
                raise DataError(
                    f"The schema refers to more than {MOST_REFERENCES} others, or more than {DEEPEST_SCHEMA} deep.",
                    "Put them into fewer subjects.",
                )
            inner = self._ask(reference.subject, reference.version)
            self._size += _size(inner)
            if self._size > LONGEST_SCHEMA:
                raise DataError(
                    f"The schema has more than {LONGEST_SCHEMA} characters, with all that it refers to.", "Split it."
                )
            self.add(inner, depth + 1)
            self.texts[reference] = inner.text


def _size(registered: RegisteredSchema) -> int:
    """Returns the characters of a schema's text and of the names in its references, each of which has a name."""
    return len(registered.text) + sum(len(each.name) + len(each.subject) + 1 for each in registered.references)


class RegisteredConverter(Converter):
    """A converter with schemas in a registry. `registry` is one that tests give."""

    OPTIONS: ClassVar[tuple[Option, ...]] = REGISTERED
    READS_HEADERS = True
    KIND = "AVRO"

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        super().__init__(options, is_key=is_key)
        settings = registry_settings(options)
        self.wire = WireFormat(
            options[LONG_IDS.name], options[USE_ID], has_global_ids=settings.has_global_ids, is_key=is_key
        )
        self.registry = SchemaRegistry(settings)
        self.registry.largest_id = self.wire.largest_id
        self.refusals = Refusals()
        side = "key" if is_key else "value"
        self._side = side
        self._strategy: str = options[f"{side}.subject.name.strategy"].rpartition(".")[2]
        self._ids: Kept[tuple[str, str, str | None], int] = Kept(MOST_IDS)

    def wait_with(self, patience: Patience) -> None:
        """See `Converter.wait_with`."""
        self.registry.patience = patience

    def close(self) -> None:
        """See `Converter.close`."""
        self.registry.close()

    def written_like(self, data: bytes, value: Any) -> bytes | None:  # noqa: ARG002  # most write no JSON
        """See `Converter.written_like`."""
        return None

    def registered(self, schema_id: SchemaId) -> RegisteredSchema:
        """Returns a schema by the kind of id that it has. Raises DataError if there is none, RegistryError."""
        if schema_id.kind is IdKind.GUID:
            return self.registry.schema_by_guid(str(schema_id.value))
        if schema_id.kind is IdKind.GLOBAL_ID:
            return self.registry.schema_by_global_id(int(schema_id.value), self.KIND)
        return self.registry.schema(int(schema_id.value))

    def referenced(self, registered: RegisteredSchema) -> dict[Reference, str]:
        """Returns the texts of the schemas that one refers to, and of those that they refer to, these first.

        Raises DataError if they are more, deeper or longer than `bounds` allows: a registry's answers may refer to
        ever new ones.
        """
        references = _References(self.registry.version, _size(registered))
        references.add(registered)
        return references.texts

    def known_id(self, topic: str, text: str, name: str | None) -> int | None:
        """Returns what `id_of` has returned before, if it is kept."""
        return self._ids.get((topic, text, name))

    def id_of(self, topic: str, text: str, name: str | None) -> int:
        """Returns the id of a schema for records of `topic`: registers it, or finds it. Raises DataError."""
        schema_id = self.known_id(topic, text, name)
        if schema_id is None:
            subject = self.subject(topic, name)
            asked = RegisteredSchema(text, self.KIND)
            normalize = self.options["normalize.schemas"]
            if self.options["auto.register.schemas"]:
                schema_id = self.registry.register(subject, asked, normalize=normalize)
            else:
                schema_id = self.registry.find(subject, asked, normalize=normalize)
            if self.wire.kind is IdKind.GLOBAL_ID:
                schema_id = self.registry.global_id(subject, asked)
            self._ids.put((topic, text, name), schema_id, weight_of(topic, text))
        return schema_id

    def subject(self, topic: str, name: str | None) -> str:
        """Returns the subject of a schema with the record name `name`. Raises DataError if it needs one."""
        if self._strategy == "TopicNameStrategy":
            return f"{topic}-{self._side}"
        if name is None:
            raise DataError(f"{self._strategy} needs a schema with a name.", "Give it one with SetSchemaMetadata.")
        return name if self._strategy == "RecordNameStrategy" else f"{topic}-{name}"

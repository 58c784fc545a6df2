"""Makes the document itself of MongoDB's change events (Debezium's `ExtractNewDocumentState`).

A change event of MongoDB has its documents as texts of Extended JSON: `before` and `after`, and of an update
`updateDescription.updatedFields`. The key, a text of Extended JSON too, becomes a struct with the field `id`. Records
with another key, and values that are no event, pass as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import structlog
from msgspec.structs import replace

from connectors.data.documents import ARRAY, DOCUMENT, Documents
from connectors.data.extended_json import decode_document, decode_text
from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import STRING, Field, Schema
from connectors.data.unwrapping import ENVELOPE
from connectors.errors import DataError
from connectors.options import Option
from connectors.rejection import shown
from connectors.transforms.extract_new_record_state import (
    EventFields,
    ExtractNewRecordState,
    FieldPlace,
    added_fields,
    check_no_route,
    places_of,
    value_at,
)
from connectors.transforms.flatten import Flatten
from connectors.transforms.transform import Side, Transform
from connectors.transforms.values import require_struct, with_fields

_log = structlog.get_logger()
_PURPOSE: Final = "taking the document out of a change event"
_DELETED: Final = "__deleted"
_KEY: Final = ".Key"
_ADDED: Final = 800
"""About how many bytes an added field takes in what is kept of a schema."""
_SHARED: Final = (
    "delete.tombstone.handling.mode",
    *("add.fields", "add.fields.prefix", "add.headers", "add.headers.prefix", "route.by.field"),
)
"""Settings that are those of ExtractNewRecordState."""


class ExtractNewDocumentState(Transform):
    """A delete becomes a tombstone, unless `delete.tombstone.handling.mode` says otherwise."""

    OPTIONS = (
        *(option for option in ExtractNewRecordState.OPTIONS if option.name in _SHARED),
        Option(
            "delete.tombstone.handling.mode.rewrite-with-id",
            "BOOLEAN",
            default=False,
            doc="With `rewrite`: a document without `_id` gets that of the key.",
            importance="LOW",
        ),
        Option(
            "array.encoding",
            "STRING",
            ARRAY,
            "`array`: an array is a list, its elements have one type. `document`: it is a struct with the fields `_0`, "
            "`_1`, and so on.",
            allowed=(ARRAY, DOCUMENT),
            any_case=True,
        ),
        Option(
            "flatten.struct",
            "BOOLEAN",
            default=False,
            doc="Fields of documents within the document come to its top, with their path as name.",
            importance="LOW",
        ),
        Option("flatten.struct.delimiter", "STRING", "_", "What stands between the names of a path.", importance="LOW"),
    )
    READS = frozenset({Side.KEY, Side.VALUE})

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        check_no_route(options)
        self._mode: str = options["delete.tombstone.handling.mode"]
        self._rewrites: Final = self._mode.startswith("rewrite")
        self._with_id: bool = options["delete.tombstone.handling.mode.rewrite-with-id"]
        self._added = added_fields("add.fields", options)
        self._headers = added_fields("add.headers", options)
        self._documents = Documents(options["array.encoding"].lower())
        self._delimiter: str = options["flatten.struct.delimiter"]
        flattens = options["flatten.struct"]
        self._flatten = Flatten({"delimiter": self._delimiter}, Side.VALUE) if flattens else None
        self._places = OfSchema(self._find, own=_ADDED * (len(self._added) + len(self._headers)))
        # Whether a partial update was warned of; each of them would write the same line.
        self._has_warned = False

    @property
    def copies(self) -> int:
        """See `Transform.copies`: a field of the event may be added under several names, and is in the document."""
        return 2 + max(Counter((field.parent, field.name) for field in self._added).values(), default=0)

    @property
    def added(self) -> int:
        """See `Transform.added`: names are as long as their path."""
        return super().added if self._flatten is None else self._flatten.added

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """See `Transform`."""
        if record.key_schema is None or not (record.key_schema.name or "").endswith(_KEY):
            return record
        schema, value = record.value_schema, record.value
        if value is None:
            dropped = self._mode != "rewrite-with-tombstone"
            return None if dropped else self._with_tombstone_header(self._with_key(record, self._key_of(record)))
        if schema is None or not (schema.name or "").endswith(ENVELOPE):
            return record
        key = self._key_of(record)
        event = require_struct(schema, value, _PURPOSE)
        is_delete = event.get("after") is None and event.get("updateDescription") is None
        if is_delete and self._mode == "drop":
            return None
        document = self._deleted(event, key) if is_delete else self._changed(record, event, key)
        return self._with_document(self._with_key(record, key), schema, event, document)

    def _key_of(self, record: ConnectRecord) -> Any:
        """Returns the document's id, decoded Extended JSON, of the text in the key."""
        assert record.key_schema is not None  # `apply` has looked
        text = require_struct(record.key_schema, record.key, _PURPOSE).get("id")
        if not isinstance(text, str):
            raise DataError("The key of a MongoDB event has no text in its field id.")
        return decode_text(text)

    def _with_key(self, record: ConnectRecord, key: Any) -> ConnectRecord:
        schema, value = self._documents.struct(None, {"id": key})
        return replace(record, key_schema=schema, key=value, value_schema=None, value=None)

    def _deleted(self, event: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """Returns what a delete leaves: nothing, or with `rewrite` the document as it was, if the event has it."""
        if not self._rewrites:
            return {}
        before = event.get("before")
        return self._rewritten({} if before is None else decode_document(_text(before)), key, deleted=True)

    def _changed(self, record: ConnectRecord, event: Mapping[str, Any], key: Any) -> dict[str, Any]:
        after = event.get("after")
        document = self._updated(record, event, key) if after is None else decode_document(_text(after))
        return self._rewritten(document, key, deleted=False) if self._rewrites else document

    def _rewritten(self, document: dict[str, Any], key: Any, *, deleted: bool) -> dict[str, Any]:
        """Adds what says whether the document was deleted, as Debezium's class does: a truth value here."""
        made = {**document, _DELETED: deleted}
        return {**made, "_id": key} if self._with_id and "_id" not in made else made

    def _updated(self, record: ConnectRecord, event: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """Returns the fields that an update has changed, with the id: the event has no whole document."""
        self._warn_once(record.topic)
        update = event["updateDescription"]
        updated, removed = update.get("updatedFields"), update.get("removedFields") or ()
        document = {} if updated is None else decode_document(_text(updated))
        document = {name: node for name, node in document.items() if name not in removed}
        document.setdefault("_id", key)
        if self._flatten is None:
            return document
        return {name.replace(".", self._delimiter): node for name, node in document.items()}

    def _warn_once(self, topic: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "an update of MongoDB has the changed fields alone, which take the place of the document",
                topic=topic,
                action="set Debezium's capture.mode to change_streams_update_full",
            )

    def _with_document(
        self, record: ConnectRecord, schema: Schema, event: Mapping[str, Any], document: Mapping[str, Any]
    ) -> ConnectRecord:
        """Makes the value of `document`, null if that is empty, with the fields and headers of the event."""
        fields, headers = self._places(schema)
        new = (Header(name, value_at(event, place), own, is_new=True) for name, place, own in headers)
        made = replace(record, headers=(*record.headers, *new)) if headers else record
        if not document:
            return made
        assert schema.name is not None  # it ends with ENVELOPE
        own, value = self._documents.struct(schema.name.removesuffix(ENVELOPE), document)
        if fields:
            own = with_fields(own, (*own.fields, *(Field(name, added) for name, _, added in fields)))
            value |= {name: value_at(event, place) for name, place, _ in fields}
        made = replace(made, value_schema=own, value=value)
        return made if self._flatten is None else self._flatten.apply(made)

    def _with_tombstone_header(self, record: ConnectRecord) -> ConnectRecord:
        """Adds `op` as a header of a tombstone, if that is among those to add: it is a delete."""
        new = (Header(field.added_as, "d", STRING, is_new=True) for field in self._headers if field.name == "op")
        return replace(record, headers=(*record.headers, *new))

    def _find(self, schema: Schema) -> tuple[list[FieldPlace], list[FieldPlace]]:
        """Returns name, place and schema of each field and each header that an event of `schema` has to add."""
        event = EventFields(schema)
        return places_of(self._added, event), places_of(self._headers, event)


def _text(document: Any) -> str:
    if isinstance(document, str):
        return document
    raise DataError(f"A document in an event of MongoDB is a text in JSON, and this is {shown(document)}.")

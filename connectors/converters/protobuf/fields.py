"""The fields of a Protobuf message, as protobuf itself has them (`connectors.converters.written_fields`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Self

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from connectors.converters.written_fields import ENVELOPE, WrittenFields

_TEXTS: Final = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})
_WRAPPERS: Final = frozenset({"google.protobuf.StringValue", "google.protobuf.BytesValue"})
"""Messages that stand for a text or bytes that may be null."""


class ProtobufFields(WrittenFields):
    """The fields of `message`, in front of which a record has `head`."""

    def __init__(self, head: bytes, message: Message) -> None:
        self._head = head
        self._message = message
        # The row, which is the message itself or one in it; None: there is none.
        self._row: Message | None = message
        fields = message.DESCRIPTOR.fields_by_name
        if all(name in fields for name in ENVELOPE) and fields["after"].message_type is not None:
            self._row = getattr(message, ENVELOPE[1]) if message.HasField("after") else None

    def names(self) -> Iterable[str]:
        """See WrittenFields."""
        return () if self._row is None else tuple(self._row.DESCRIPTOR.fields_by_name)

    def get(self, name: str, longest: int) -> Any:
        """See WrittenFields."""
        if self._row is None:
            return None
        field, value = self._row.DESCRIPTOR.fields_by_name[name], getattr(self._row, name)
        if field.is_repeated:
            if len(value) > longest:
                return None
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            return dict(value) if is_map else list(value)
        if field.message_type is not None:
            value = value.value if field.message_type.full_name in _WRAPPERS else None
        elif field.type not in _TEXTS:
            return None
        return value if value is not None and len(value) <= longest else None

    def take(self, name: str, other: Self) -> bool:
        """See WrittenFields. What protobuf takes for absent is absent then: it is the default of its type."""
        if self._row is None or other._row is None:
            return False
        mine = self._row.DESCRIPTOR.fields_by_name[name]
        theirs = other._row.DESCRIPTOR.fields_by_name.get(name)
        if theirs is None or _of_value(mine) != _of_value(theirs):
            return False
        only = _with_one(other._row, theirs)
        self._row.ClearField(name)
        self._row.MergeFromString(only.SerializePartialToString())
        return True

    def data(self) -> bytes:
        """See WrittenFields."""
        return self._head + self._message.SerializeToString(deterministic=True)


def _with_one(row: Message, field: Any) -> Message:
    """Returns a message of the type of `row` with nothing but what `row` has in `field`.

    The rest of `row` is not copied: each of thousands of fields may be taken, of a row of megabytes. Nor are bytes that
    its schema does not know: each field that is taken would add them once more.
    """
    only, name = type(row)(), field.name
    if field.is_repeated:
        getattr(only, name).MergeFrom(getattr(row, name))
    elif field.has_presence and not row.HasField(name):
        return only
    elif field.message_type is not None:
        getattr(only, name).CopyFrom(getattr(row, name))
        getattr(only, name).SetInParent()  # one without fields is there, too
    else:
        setattr(only, name, getattr(row, name))
    return only


def _of_value(field: Any) -> tuple[Any, ...]:
    kind = None if field.message_type is None else field.message_type.full_name
    return field.number, field.type, field.is_repeated, kind

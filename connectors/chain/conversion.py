"""Reads and writes the keys or values of a chain's records, and says why one is rejected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from compactor.errors import KeyfoldError
from connectors.chain import quoted_settings
from connectors.chain.hidden_values import NOT_SHOWN, places_of
from connectors.chain.quoted_settings import Names
from connectors.chain.spec import ChainSpec, Resolve, made_converter
from connectors.converters.converter import Converter
from connectors.data.bounds import check_size
from connectors.data.growth import Room, most_written, too_long
from connectors.data.record import Header
from connectors.errors import MachineError, PortionLateError, RegistryError
from connectors.machine_errors import refuse_machine
from connectors.registry.patience import Patience
from connectors.rejection import Rejection, Stage, unexpected
from connectors.transforms.transform import Side

_LONGEST: Final = 2_000
"""Characters that are kept of what is said to be wrong: a converter may quote a whole record."""
_NOT_WRITTEN: Final = "The schema registry did not answer, or refuses to, as a record was to be written"
_WRITE_OUT: Final = "Write them out in the connector's file to see it."


class RejectedError(Exception):
    """A record cannot be converted or transformed; `rejection` says at which stage, and why.

    Why is not shown if settings with placeholders are among what may be quoted (`quoted_settings.py`): `unseen` has
    their names. The text is not searched for secrets, as it quotes a record.
    """

    def __init__(self, stage: Stage, class_name: str, error: Exception, unseen: Names = ()) -> None:
        super().__init__(stage, class_name, error)
        self._stage = stage
        self._class_name = class_name
        self._error = error
        self._unseen = unseen

    @property
    def rejection(self) -> Rejection:
        """Why the record is rejected."""
        error = self._error
        if self._unseen:
            said, action = f"The record is not taken: {NOT_SHOWN} {places_of(self._unseen)}", _WRITE_OUT
        else:
            said, action = (error.message, error.action) if isinstance(error, KeyfoldError) else unexpected(error)
        message = f"{said[:_LONGEST]} {action[:_LONGEST]}".rstrip()
        # A text that was read may hold half of a pair of surrogates, which UTF-8 cannot.
        message = message.encode("utf-8", "replace").decode()
        return Rejection(self._stage, self._class_name, type(error).__name__, message)


class Conversion(Struct):
    """The converters of a record's keys or values; `reads`: whether anything looks at them; `most`: bytes of one.

    `writer` is `converter` itself, unless the output has a converter that differs from it; then `rewrites` is true.
    `unseen` and `unseen_written` are the settings for which an error of the one, or the other, is not shown.
    """

    name: str
    converter: Converter
    writer_name: str
    writer: Converter
    stage: Stage
    reads: bool
    most: int
    unseen: Names = ()
    unseen_written: Names = ()

    @property
    def rewrites(self) -> bool:
        """Whether all is written again, as the output has another form than the source."""
        return self.writer is not self.converter

    @property
    def converters(self) -> tuple[Converter, ...]:
        """What reads, and what writes if that is another one."""
        return (self.converter, self.writer) if self.rewrites else (self.converter,)

    def wait_with(self, patience: Patience) -> None:
        """See `Converter.wait_with`."""
        for each in self.converters:
            each.wait_with(patience)

    def close(self) -> None:
        """Closes its converters."""
        for each in self.converters:
            each.close()

    def read(self, topic: str, headers: list[Header], data: bytes | None) -> tuple[Any, Any]:
        """Returns schema and value of `data`, or `data` itself if no step looks at it.

        Raises RejectedError, RegistryError.
        """
        if not self.reads:
            return None, data
        try:
            check_size(len(data or b""), self.most)
            return self.converter.to_connect_data(topic, headers, data)
        except RegistryError:
            raise
        except Exception as error:
            refuse_machine(error)
            raise RejectedError(self.stage, self.name, error, self.unseen) from error

    def is_null(self, headers: Sequence[Header], data: bytes) -> bool:
        """Returns whether the converter reads `data` as null; what it cannot read is none. Raises RegistryError."""
        try:
            check_size(len(data), self.most)
            return self.converter.to_connect_data("", list(headers), data)[1] is None
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)
            return False

    def write(self, topic: str, headers: list[Header], schema: Any, value: Any, room: Room, size: int) -> bytes | None:
        """Returns the bytes of `value`, for which there is `room` in what a record of `size` bytes may become.

        What the output's own converter writes of a null is a tombstone, whatever schema the null has. Raises
        RejectedError, RegistryError.
        """
        if value is None and self.rewrites:
            return None
        try:
            room.check(size, schema, value)
            data = self.writer.from_connect_data(topic, headers, schema, value)
            if self.rewrites and len(data or b"") > most_written(size):  # a schema that the source's form has not
                raise too_long(size)
        except RegistryError as error:
            may_quote = not isinstance(error, PortionLateError | MachineError)
            if self.unseen_written and may_quote:  # it may name what is registered
                raise type(error)(f"{_NOT_WRITTEN}: {NOT_SHOWN} {places_of(self.unseen_written)}", _WRITE_OUT) from None
            raise
        except Exception as error:
            refuse_machine(error)
            raise RejectedError(self.stage, self.writer_name, error, self.unseen_written) from error
        return data


def conversion_of(spec: ChainSpec, side: Side, resolve: Resolve, *, reads: bool) -> Conversion:
    """Makes the conversion of keys or values; `reads`: a step looks at them. Raises ValueError, OptionsError."""
    is_key = side is Side.KEY
    own, written = (spec.key, spec.output_key) if is_key else (spec.value, spec.output_value)
    stage = Stage.KEY_CONVERTER if is_key else Stage.VALUE_CONVERTER
    converter = made_converter(own, resolve, is_key=is_key)
    writer = converter if written is None else made_converter(written, resolve, is_key=is_key)
    if writer is not converter and type(writer) is type(converter) and writer.options == converter.options:
        writer.close()
        writer = converter
    rewrites = writer is not converter
    writer_name = written.name if written is not None and rewrites else own.name
    return Conversion(
        own.name,
        converter,
        writer_name,
        writer,
        stage,
        reads or rewrites,
        spec.most_read,
        quoted_settings.of_reading(spec, side),
        quoted_settings.of_writing(spec, side),
    )

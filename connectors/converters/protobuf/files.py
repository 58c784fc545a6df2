"""Compiles schemas of Protobuf as a registry has them, with protoc, and finds their messages. No code is generated."""

from __future__ import annotations

import base64
import binascii
import errno
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError
from msgspec import Struct

from connectors.clock import Deadline
from connectors.data.bounds import LONGEST_SCHEMA, MOST_REFERENCES, Extent
from connectors.data.pace import ask_limit
from connectors.errors import CompilerError, DataError
from connectors.rejection import reason_of

COMPILED_S: Final = 20
"""How long (s) protoc may work. It takes 0.05 s for most schemas. A portion that others wait for has less time, and is
read apart (`pace.py`)."""
WAITED_S: Final = 120.0
"""How long (s) protoc is waited for in all: what works no longer than it may, and has not ended by then, waits for a
core or a disk of a machine that is overloaded."""
_LOOK_S: Final = 0.1
"""How often (s) the limit of the portion is asked meanwhile."""
_SAID: Final = 10_000
"""Characters that are read of what protoc says: it may have a line for each of a schema's."""
_ADDRESSES: Final = 512 << 20
"""Bytes of addresses that protoc may take. It takes 200 MiB in any case, and some 30 for the longest schemas."""
PROTOC: Final = (
    "import resource, runpy; "
    f"resource.setrlimit(resource.RLIMIT_AS, ({_ADDRESSES}, {_ADDRESSES})); "
    f"resource.setrlimit(resource.RLIMIT_CPU, ({COMPILED_S}, {COMPILED_S + 1})); "
    "runpy.run_module('grpc_tools.protoc', run_name='__main__', alter_sys=True)"
)
"""What the process of protoc runs: its memory and its time are limited before protoc is loaded."""
_ENDED_BY_OTHERS: Final = frozenset({-signal.SIGKILL, -signal.SIGTERM})
"""Exit codes of a protoc that the kernel has ended, as the machine has no memory left, or that somebody has."""
_OF_NAMES: Final = frozenset(
    {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.EILSEQ}
)
"""Errors of the operating system that come of the names that a schema imports."""
_PLAIN: Final = 'syntax = "proto3"; message M {}'
"""A schema that protoc compiles wherever it can be run."""
_MEND: Final = (
    "Make room in the folder of TMPDIR, or give the worker more memory or processes. No record is let go for it: the "
    "records are read again when the connector is started again."
)
_COMPILED: Final = 4 * LONGEST_SCHEMA
"""Bytes of a compiled schema with all that it imports. It names a type in full at each use."""
_MAIN: Final = "main.proto"
_POOL: Final = 8 << 10
_UNFOLDED: Final = 30
"""About how many bytes a compiled file takes: so many in any case, and so many for each byte of its descriptor."""
_NOISE: Final = re.compile(r"[WI]\d{4} |WARNING: All log messages before")
"""What protoc logs, and is no error."""
_KNOWN: Final = {
    "google/type/date.proto": (
        'syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }'
    ),
    "google/type/timeofday.proto": (
        'syntax = "proto3"; package google.type; '
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; '
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto"; '
        "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; } "
        "extend google.protobuf.FileOptions { Meta file_meta = 1088; } "
        "extend google.protobuf.MessageOptions { Meta message_meta = 1088; } "
        "extend google.protobuf.FieldOptions { Meta field_meta = 1088; } "
        "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; } "
        "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"
    ),
}
"""Files that registries take for known, in addition to those that protoc brings."""


class Protoc(Struct, frozen=True):
    """How protoc is run; a test runs something else.

    `code` is what its process of Python's runs, None for PROTOC; `waited_s` is WAITED_S; its files are made in
    `folder`, None for that of TMPDIR.
    """

    code: str | None = None
    waited_s: float = WAITED_S
    folder: str | None = None


_PROTOC: Final = Protoc()


class CompiledFile:
    """A schema that was compiled, with everything that it imports; `weight` is about how many bytes it takes.

    `synthetic` has the full names of the oneofs that protoc makes of the word `optional`. Extensions are left out: no
    schema of Connect's has them, and each would take memory for the messages of a record that are of its type.
    """

    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        self.weight = _POOL
        self.synthetic: set[str] = set()
        names = Extent()
        for file in files:
            _drop_extensions(file, file.message_type)
            _add_names(names, len(file.package), file.message_type, file.enum_type)
            self.synthetic.update(_synthetic_oneofs(file.package, file.message_type))
            self._file = file
            data = file.SerializeToString()
            self._pool.AddSerializedFile(data)
            self.weight += _UNFOLDED * len(data)

    def message(self, path: Sequence[int]) -> Any:
        """Returns the descriptor of the message at `path`: its place in the file, then in the message around it."""
        names, inside = [self._file.package] if self._file.package else [], list(self._file.message_type)
        for at in path:
            if not 0 <= at < len(inside):
                raise DataError(f"The schema has no message {list(path)}.")
            names.append(inside[at].name)
            inside = [nested for nested in inside[at].nested_type if not nested.options.map_entry]
        return self._pool.FindMessageTypeByName(".".join(names))


def _add_names(names: Extent, prefix: int, messages: Iterable[Any], enums: Iterable[Any]) -> None:
    """Adds the full names of messages, of enums, and of all in them, which a pool makes; `prefix`: the length around.

    Raises DataError for names that are too long together: a package stands in each of them.
    """
    for enum in enums:
        names.add_text(prefix + len(enum.name))
        names.add_text(prefix + 1, len(enum.value))
    for message in messages:
        inner = prefix + 1 + len(message.name)
        names.add_text(inner)
        names.add_text(inner + 1, len(message.field) + len(message.oneof_decl))
        _add_names(names, inner, message.nested_type, message.enum_type)


def _drop_extensions(holder: Any, messages: Iterable[Any]) -> None:
    """Takes the extensions that `holder` declares out of it, and out of the messages in it."""
    del holder.extension[:]
    for message in messages:
        _drop_extensions(message, message.nested_type)


def _synthetic_oneofs(prefix: str, messages: Iterable[Any]) -> Iterator[str]:
    """Yields the full names of oneofs of `optional` fields, of which a descriptor in a pool says nothing any more."""
    for message in messages:
        name = f"{prefix}.{message.name}" if prefix else message.name
        if message.oneof_decl:
            made = (field.oneof_index for field in message.field if field.proto3_optional)
            yield from (f"{name}.{message.oneof_decl[at].name}" for at in made)
        yield from _synthetic_oneofs(name, message.nested_type)


def compiled(text: str, imports: Mapping[str, str], protoc: Protoc = _PROTOC) -> CompiledFile:
    """Compiles a schema, which is a .proto file or, in base64, its descriptor; `imports` are others, by name.

    Raises DataError if it is none, CompilerError if `protoc` cannot be run.
    """
    descriptor = _descriptor(text)
    try:
        return CompiledFile(
            _from_text(text, imports, protoc) if descriptor is None else _ordered(descriptor, imports, protoc)
        )
    except (TypeError, KeyError, ValueError, RecursionError) as error:  # what is wrong between files
        raise DataError(f"The schema cannot be used: {reason_of(error)}.") from None


def _descriptor(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Returns the descriptor that `text` is in base64, as Python's serializer registers it; None if it is none."""
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _ordered(
    root: descriptor_pb2.FileDescriptorProto, imports: Mapping[str, str], protoc: Protoc
) -> list[descriptor_pb2.FileDescriptorProto]:
    """Returns the files that `root` needs, each before those that need it, and `root` last.

    Those that are text come first, compiled all at once: none of them can need one that is in base64.
    """
    seen: set[str] = set()
    encoded: list[descriptor_pb2.FileDescriptorProto] = []
    texts: list[str] = []

    def collect(file: descriptor_pb2.FileDescriptorProto) -> None:
        for name in file.dependency:
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > MOST_REFERENCES:
                raise DataError(f"The schema imports more than {MOST_REFERENCES} files.", "Put them into fewer.")
            inner = _descriptor(imports[name]) if name in imports else None
            if inner is None:
                texts.append(name)
            else:
                inner.name = name
                collect(inner)
        encoded.append(file)

    collect(root)
    main = "".join(f'import "{name}";' for name in texts)
    return [*(_from_text(f'syntax = "proto3"; {main}', imports, protoc)[:-1] if texts else []), *encoded]


def _from_text(text: str, imports: Mapping[str, str], protoc: Protoc) -> list[descriptor_pb2.FileDescriptorProto]:
    """Compiles a .proto file; returns its descriptor after those of its imports.

    Raises DataError for what protoc refuses, CompilerError if it cannot be run.
    """
    try:
        return _compiled(text, imports, protoc)
    except OSError as error:
        if error.errno in _OF_NAMES:
            raise DataError(f"The schema imports what has no name of a file: {error.strerror}.") from None
        raise _unable(error.strerror or str(error)) from error


def _unable(reason: str) -> CompilerError:
    return CompilerError(f"Protoc cannot be run on this machine: {reason}.", _MEND)


def _compiled(text: str, imports: Mapping[str, str], protoc: Protoc) -> list[descriptor_pb2.FileDescriptorProto]:
    """See `_from_text`; a refusal counts only if another schema is compiled then. Raises OSError, too."""
    with tempfile.TemporaryDirectory(prefix="keyfold-", dir=protoc.folder) as folder:
        sources = Path(folder, "sources")  # apart from what is written next to them: a registry names these files
        for name, content in {**_KNOWN, **imports, _MAIN: text}.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name:
                raise DataError(f"The schema imports {name!r}, which is no name of a file below another.")
            file = Path(sources, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        out, said = Path(folder, "out"), Path(folder, "said")
        command = [sys.executable, "-c", protoc.code or PROTOC, "-I", str(sources), "--include_imports"]
        if code := _exit_code([*command, "--descriptor_set_out", str(out), _MAIN], said, protoc.waited_s):
            if not (out.exists() or text == _PLAIN or code < 0):
                _from_text(_PLAIN, {}, protoc)
            raise _refusal(code, text, out, said)
        if out.stat().st_size > _COMPILED:
            raise DataError(f"The schema takes more than {_COMPILED} bytes once it is compiled.", "Shorten its names.")
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _refusal(code: int, text: str, out: Path, said: Path) -> DataError | CompilerError:
    """Returns what the exit code `code` of protoc means for a schema, if it compiles the plain one."""
    if code in _ENDED_BY_OTHERS:
        return _unable(f"it was ended by signal {-code}")
    if code == -signal.SIGXCPU:
        return DataError(f"The schema takes protoc more than {COMPILED_S} s.", "Make it smaller.")
    if out.exists():  # it is made once all is understood
        return _unable("what it has compiled cannot be written")
    if text == _PLAIN:
        return _unable("it refuses any schema")
    with said.open(encoding="utf-8", errors="replace") as errors:
        lines = errors.read(_SAID).replace(f"{said.parent}/sources", "").splitlines()
    lines = [line for line in lines if not _NOISE.match(line)]
    return DataError(f"The schema is no Protobuf: {' '.join(' '.join(lines).split())[:300]}")


def _exit_code(command: Sequence[str], said: Path, waited_s: float) -> int:
    """Runs protoc; returns its exit code, and leaves what it says in the file `said`.

    Raises CompilerError if it is not over in time, what the limit of the portion raises, if that is sooner, OSError.
    """
    deadline = Deadline(waited_s)
    with said.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=file)
        try:
            while not deadline.has_passed:
                with suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_S)
                ask_limit()
        finally:
            process.kill()
            process.wait()
    raise _unable(f"it was not over within {waited_s:g} s")

"""Makes the archive with which a Spark executor has keyfold: its packages and those that its tasks import.

    keyfold/lib is what the executors' PYTHONPATH names; nothing else has to be there but Python and Spark itself

An archive of packages on PYTHONPATH goes with any Python of the same minor version, system and processor; an
environment that is packed as a whole goes only with an interpreter in the same place (docs/decisions/).
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import marshal
import os
import re
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source, find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple

from connectors.errors import ConfigError
from connectors.jvm.cache import cache_with
from connectors.spark import archive_cache

FOLDER: Final = "lib"
"""The archive's one folder: a name that a checkout of keyfold does not have, as `./keyfold` may be one elsewhere."""
_OWN: Final = ("compactor", "connectors")
_NAME: Final = "keyfold"
_NOT_IN_TASKS: Final = frozenset({
    *("pyspark", "py4j"),  # an executor's Spark has them
    *("bcrypt", "fastapi", "prometheus-client", "uvicorn", "watchfiles"),  # the worker's REST interface and its files
    "cryptography",  # signs receipts of erasures
    *("humanize", "jinja2", "rich", "typer"),  # what people see
    *("grpcio", "setuptools"),  # of grpcio-tools, of which tasks use the compiler for Protobuf alone
})  # fmt: skip
"""Distributions that no task imports. What is new is taken along until it stands here."""
_LEFT_OUT: Final = re.compile(
    r"(^|/)(tests?|testing/tests|include|_include)/|\.(a|lib|h|hpp|c|cpp|pyi|pyx|pxd|pxi)$|(^|/)(RECORD|INSTALLER|REQUESTED)$"
    # an eighth of the bytes: pyarrow's own ways to S3 and to other programs, without which it goes on
    r"|^pyarrow/(libarrow_|libarrow_python_|_)(flight|s3|s3fs)\b"
)
"""Files of a distribution that no task imports."""
_UNCHECKED: Final = (1).to_bytes(4, "little") + bytes(8)
"""The head of a compiled module that is never held against its source (PEP 552)."""
_REQUIRED: Final = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_GZIPPED: Final = (".tar.gz", ".tgz")
_LEVEL: Final = 1
"""Of gzip: others take longer to make and as long to unpack."""


class ArchiveFile(NamedTuple):
    """A file of the archive: its name there, below FOLDER, and its path on this machine."""

    name: str
    source: Path


class ExecutorArchive(NamedTuple):
    """An archive that is there: its file, what it holds by distribution and version, and its size in bytes."""

    file: Path
    contents: dict[str, str]
    size: int


def ensure_archive(cache: Path | None = None) -> ExecutorArchive:
    """Returns the archive of this environment in the user's cache, made now if it is not there.

    Its name has a digest of what it holds: another version of anything is another file. It stays while this process
    lives; others that none has used for a week are removed when one is made. Raises ConfigError.
    """
    packages = distributions()
    name = Path("executors", f"{_NAME}-{_tag()}-{_digest(packages)}.tar")
    file = (cache or cache_with(str(name))) / name
    if archive_cache.hold(file, time.time()):
        return ExecutorArchive(file, versions(packages), file.stat().st_size)
    made = make_archive(file)
    archive_cache.hold(file, time.time())
    archive_cache.remove_unused(file.parent, f"{_NAME}-*.tar", time.time())
    return made


def make_archive(file: Path) -> ExecutorArchive:
    """Writes the archive of this environment to `file`, whole or not at all; gzipped if its name says so.

    Raises ConfigError.
    """
    packages = distributions()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=".making-", dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as raw, _writing(raw, gzipped=file.name.endswith(_GZIPPED)) as archive:
                _add(archive, files(packages))
            Path(scratch).chmod(0o644)
            Path(scratch).replace(file)
        finally:
            Path(scratch).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The archive for Spark's executors could not be written to {file}: {error.strerror or error}.",
            "Name a file where this account may write and 400 MB are free: keyfold package FILE.tar.gz.",
        ) from error
    return ExecutorArchive(file, versions(packages), file.stat().st_size)


def _writing(raw: IO[bytes], *, gzipped: bool) -> tarfile.TarFile:
    """Returns an archive to write to `raw`.

    Spark unpacks one that is not gzipped in half the time or less, for more than twice the bytes on the network.
    """
    if gzipped:
        return tarfile.open(fileobj=raw, mode="w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT)
    return tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT)


def distributions() -> list[Distribution]:
    """Returns keyfold's distribution and those that its tasks need, by name. Raises ConfigError."""
    needed: dict[str, Distribution] = {}
    waiting = [_NAME]
    while waiting:
        name = waiting.pop()
        if name in needed or name in _NOT_IN_TASKS:
            continue
        try:
            needed[name] = distribution(name)
        except PackageNotFoundError:
            if name == _NAME:
                raise ConfigError(
                    "keyfold is not installed in the Python that runs it, so it is not known what executors need.",
                    "Install it: pip install . in its folder, or make setup.",
                ) from None
            continue  # asked for on another system only, or by an extra
        waiting += [_normal(each) for each in needed[name].requires or () if "extra ==" not in each]
    return [needed[name] for name in sorted(needed)]


def versions(packages: Iterable[Distribution]) -> dict[str, str]:
    """Returns the version of each distribution of `packages` by its name."""
    return {_normal(each.metadata["Name"]): each.version for each in packages}


def files(packages: Iterable[Distribution]) -> Iterator[ArchiveFile]:
    """Yields what the archive of the distributions `packages` holds, by name."""
    for each in packages:
        if _normal(each.metadata["Name"]) == _NAME:
            yield from _own_files(each)
            continue
        for file in each.files or ():
            name = PurePosixPath(file)
            if ".." in name.parts or name.is_absolute() or _LEFT_OUT.search(str(name)):
                continue  # a script, which belongs to this environment alone
            if (source := Path(str(file.locate()))).is_file():
                yield ArchiveFile(str(name), source)


def _own_files(own: Distribution) -> Iterator[ArchiveFile]:
    """Yields keyfold's own, which may be installed from a checkout, and what says its version."""
    for package in _OWN:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        root = Path(spec.origin).parent
        for source in sorted(root.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                yield ArchiveFile(f"{package}/{source.relative_to(root).as_posix()}", source)
    metadata = next(file for file in own.files or () if file.name == "METADATA")
    yield ArchiveFile(f"{_NAME}-{own.version}.dist-info/METADATA", Path(str(metadata.locate())))


def _add(archive: tarfile.TarFile, wanted: Iterable[ArchiveFile]) -> None:
    """Adds files with the right to read for every account; compiled modules go by their sources' times.

    keyfold's own modules are compiled here: executors would do so each time that they unpack them.
    """
    for each in sorted(wanted):
        info = archive.gettarinfo(each.source, f"{FOLDER}/{each.name}")
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.mode & 0o100 else 0o644
        info.type, info.linkname = tarfile.REGTYPE, ""  # a second link to one file is a file of its own
        with each.source.open("rb") as content:
            info.size = os.fstat(content.fileno()).st_size
            archive.addfile(info, content)
        if each.name.startswith(_OWN) and each.name.endswith(".py"):
            _add_compiled(archive, each, info)


def _add_compiled(archive: tarfile.TarFile, module: ArchiveFile, source: tarfile.TarInfo) -> None:
    """Adds what Python makes of a module of keyfold's, which it then takes without a look at the source."""
    name = PurePosixPath(source.name)
    code = compile(module.source.read_bytes(), module.name, "exec", dont_inherit=True)
    content = importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(code)
    info = tarfile.TarInfo(cache_from_source(str(name)))
    info.size, info.mtime, info.mode = len(content), source.mtime, source.mode
    archive.addfile(info, io.BytesIO(content))


def _digest(packages: Iterable[Distribution]) -> str:
    """Returns what tells this environment's archive from another's: versions, and keyfold's files as they are."""
    digest = hashlib.sha256(repr(sorted(versions(packages).items())).encode())
    for each in packages:
        if _normal(each.metadata["Name"]) == _NAME:
            for file in _own_files(each):
                digest.update(f"{file.name}\0".encode() + file.source.read_bytes())
    return digest.hexdigest()[:12]


def _tag() -> str:
    """Returns the Python, system and processor that the archive goes with: `py311-linux-x86_64`."""
    return f"py{sys.version_info.major}{sys.version_info.minor}-{sysconfig.get_platform()}"


def _normal(requirement: str) -> str:
    """Returns the distribution that a requirement names, as PEP 503 writes it."""
    match = _REQUIRED.match(requirement)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""

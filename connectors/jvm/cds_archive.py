"""Makes archives of Java's classes, which a JVM maps instead of reading and checking thousands of classes again.

    python -m connectors.jvm.cds_archive   makes those for Spark and the embedded broker, once, in the user's cache

Java calls it class data sharing (JEP 350). An archive belongs to one Java and one class path: it lies next to the JARs
that it was made from, and its name is made of both. Whatever else does not fit, the JVM finds out itself and goes
without it, silently; so does one that finds none.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from connectors.jvm.artifacts import KAFKA_VERSION, say
from connectors.jvm.cache import default_cache
from connectors.jvm.java import which_java

SPARK: Final = "spark"
KAFKA: Final = "kafka"
# How long (s) a training run may take. It takes half a minute; a busy machine needs more, and a JVM that hangs must not
# hold up `make setup` for ever.
_TRAINING_S: Final = 300.0


def archive_of(jars: Path) -> Path | None:
    """Returns the file that is, or would be, the archive of the folder `jars` for the Java that will run them."""
    java = which_java()
    if java is None or not jars.is_dir():
        return None
    key = hashlib.sha256(f"{_identity(java.resolve())}\n{_identity(*jars.iterdir())}".encode()).hexdigest()
    return jars.with_name(f"{_stem(jars)}{key[:12]}.jsa")


def _identity(*files: Path) -> list[tuple[str, int, int]]:
    """Returns what the JVM compares of each JAR; the same of Java itself, which updates replace."""
    return sorted((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def sharing(jars: Path) -> list[str]:
    """Returns the options with which a JVM takes the archive of `jars`; none if it is not there."""
    archive = archive_of(jars)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive is not None and archive.is_file() else []


def ensure_archive(jars: Path, what: str) -> bool:
    """Makes the archive of `jars` by a training run of `what` if it is not there; returns whether it is there then.

    Says on stderr what it is doing when it has to be made. Older ones are removed then.
    """
    archive = archive_of(jars)
    if archive is None or archive.is_file():
        return archive is not None
    say(f"making an archive of the Java classes of {what} once, which takes half a minute or more: {archive}")
    for old in archive.parent.glob(f"{_stem(jars)}*.jsa"):
        old.unlink(missing_ok=True)
    trouble = _train(what, archive)
    if trouble:
        say(f"the archive was not made, {trouble}; {what} starts without it, `make setup` tries it again")
    return archive.is_file()


def _train(what: str, archive: Path) -> str | None:
    """Makes the archive under another name first, so that it is found whole; returns what went wrong, if anything."""
    with tempfile.TemporaryDirectory(prefix=".training-", dir=archive.parent) as scratch:
        made = Path(scratch, archive.name)
        command = [sys.executable, "-m", "connectors.dev.cds_training", what, str(made)]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=_TRAINING_S)
            _keep(made)
            made.replace(archive)
        except subprocess.TimeoutExpired:
            return f"it took longer than {_TRAINING_S:.0f} s on a machine that is busy"
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines()
            return f"its training run ended with {error.returncode}: {said[-1] if said else 'it said nothing'}"
        except OSError as error:
            return str(error)
    return None


def _keep(made: Path) -> None:
    """Writes it to the disk: a JVM crashes on an archive that is not whole."""
    with made.open("rb") as file:
        os.fsync(file)


def _stem(jars: Path) -> str:
    return f"{jars.name}-classes-"


def main() -> None:
    """Makes what is missing, the broker's only if its JARs have been fetched; homes of a Spark that is gone go."""
    from connectors.jvm.spark_home import JARS, ensure_home

    cache = default_cache()
    home = ensure_home(cache=cache)
    if home is not None:
        ensure_archive(home / JARS, SPARK)
    if (cache / f"kafka-{KAFKA_VERSION}").is_dir():
        ensure_archive(cache / f"kafka-{KAFKA_VERSION}", KAFKA)
    for other in cache.glob("spark-*"):
        if not (other / JARS).exists():
            shutil.rmtree(other, ignore_errors=True)


if __name__ == "__main__":
    main()

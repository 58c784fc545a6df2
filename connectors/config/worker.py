"""The worker file, and the environment over it, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from connectors.config import client_names, refused
from connectors.config.environment import EnvironmentSource
from connectors.config.faults import Fault, FaultyConfigError
from connectors.config.keys import CONNECTOR_KEYS, WORKER_KEYS, WORKER_PREFIXES
from connectors.config.librdkafka import ClientKind
from connectors.config.locations import local_path
from connectors.config.parse import Parsed, Schema, parse
from connectors.config.secrets import SecretError, masked, resolve
from connectors.config.spark_settings import PINNED
from connectors.config.texts import as_texts, effective

_CLIENTS: tuple[ClientKind, ...] = ("consumer", "producer", "admin")


def _hint(name: str) -> str | None:
    if name in CONNECTOR_KEYS:
        return "is a key of the connector file, not of the worker file; move it there."
    if (why := refused.reason(name)) is not None:
        return f"cannot be set: {why}."
    if client_names.is_client_setting(name):
        return f"a client's setting; write consumer.{name}, producer.{name} and admin.{name}."
    return None


SCHEMA = Schema(WORKER_KEYS, WORKER_PREFIXES, _hint)


def _key(name: str) -> Any:
    return Field(alias=name, description=WORKER_KEYS[name].doc)


class WorkerConfig(BaseSettings):
    """Every setting of a worker, checked. Times in ms.

    `WorkerConfig(**mapping)` takes the flat mapping of a worker file; variables `KEYFOLD_…` of the environment win
    over it. Raises ConfigError with all faults. `consumer`, `producer`, `admin` and `spark` hold placeholders until
    they are used; `given` is everything as texts.
    """

    model_config = SettingsConfigDict(frozen=True, strict=True, extra="forbid")

    bootstrap_servers: str = _key("bootstrap.servers")
    storage_location: str = _key("storage.location")
    spark_master: str = _key("spark.master")
    log_level: str = _key("log.level")
    log_format: str = _key("log.format")
    log_cleaner_backoff_ms: int = _key("log.cleaner.backoff.ms")
    log_cleaner_initial_delay_ms: int = _key("log.cleaner.initial.delay.ms")
    task_shutdown_graceful_timeout_ms: int = _key("task.shutdown.graceful.timeout.ms")
    spark: dict[str, str] = Field(alias="spark.", repr=False)
    consumer: dict[str, str] = Field(alias="consumer.", repr=False)
    producer: dict[str, str] = Field(alias="producer.", repr=False)
    admin: dict[str, str] = Field(alias="admin.", repr=False)
    given: dict[str, str] = Field(repr=False)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # named by pydantic-settings, as the next two
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment first, then what the constructor was given."""
        return EnvironmentSource(settings_cls), init_settings

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: Any) -> dict[str, Any]:
        given, faults = as_texts(raw)
        parsed = parse(SCHEMA, given).without(faults)
        found = (*faults, *parsed.faults, *_client_faults(parsed), *_spark_faults(parsed))
        if found:
            raise FaultyConfigError("worker", found)
        return {**parsed.values, **parsed.families, "given": given}

    @property
    def storage_path(self) -> Path:
        """The folder of `storage.location`."""
        return local_path(self.storage_location)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings to pass on to Spark beside `spark.master`, under their full names, secrets resolved: do not log."""
        return {f"spark.{name}": resolve(text) for name, text in self.spark.items()}

    def effective(self) -> dict[str, str | None]:
        """All settings as texts, defaults included, as they may be printed: secrets hidden."""
        return effective(WORKER_KEYS, masked(self.given))


def _client_faults(parsed: Parsed) -> tuple[Fault, ...]:
    return tuple(
        Fault(f"{kind}.{fault.key}", fault.text)
        for kind in _CLIENTS
        for fault in client_names.name_faults(kind, parsed.families[f"{kind}."])
    )


def _spark_faults(parsed: Parsed) -> tuple[Fault, ...]:
    settings = {f"spark.{name}": text for name, text in parsed.families["spark."].items()}
    return tuple(fault for name, text in settings.items() for fault in _spark_fault(name, text))


def _spark_fault(name: str, text: str) -> Iterator[Fault]:
    try:
        value = resolve(text)
    except SecretError as error:
        yield Fault(name, str(error))
        return
    pinned, why = PINNED.get(name, (value, ""))
    if value != pinned:
        yield Fault(name, f'is always "{pinned}": {why}; remove it.')

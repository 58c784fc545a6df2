"""Declares the shapes of answers, as Kafka Connect's clients parse them and `/openapi.json` describes them.

They have the names of Connect's entities (`org.apache.kafka.connect.runtime.rest.entities`), but for two names that
other classes of keyfold have: its WorkerStatus is WorkerHealth here, its ConnectorState ConnectorStateEntity.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]


class ErrorMessage(BaseModel):
    """What is wrong, and what to do next."""

    error_code: int
    message: str


class ServerInfo(BaseModel):
    """The worker's version, and the id of its Kafka cluster; "" if that has not been asked yet."""

    version: str
    commit: str
    kafka_cluster_id: str


class WorkerHealth(BaseModel):
    """How the worker is (KIP-1017)."""

    status: Literal["starting", "healthy", "unhealthy"]
    message: str


class ConnectorTaskId(BaseModel):
    """A task of a connector."""

    connector: str
    task: int


class TaskInfo(BaseModel):
    """A task and its config."""

    id: ConnectorTaskId
    config: dict[str, str]


class ConnectorInfo(BaseModel):
    """A connector, its config with placeholders unresolved and secrets hidden, and its tasks."""

    name: str
    config: dict[str, str]
    tasks: list[ConnectorTaskId]
    type: Literal["sink"] = "sink"


class ConnectorStateEntity(BaseModel):
    """The state of a connector."""

    state: State
    worker_id: str
    version: str
    trace: str | None = None


class TaskState(BaseModel):
    """The state of a task."""

    id: int
    state: State
    worker_id: str
    version: str
    trace: str | None = None


class ConnectorStateInfo(BaseModel):
    """The states of a connector and its tasks."""

    name: str
    connector: ConnectorStateEntity
    tasks: list[TaskState]
    type: Literal["sink"] = "sink"


class Expanded(BaseModel):
    """What `expand` asks for of one connector."""

    info: ConnectorInfo | None = None
    status: ConnectorStateInfo | None = None


class ActiveTopicsInfo(BaseModel):
    """The topics that a connector has used."""

    topics: list[str]


class SourcePartition(BaseModel):
    """A partition of a source topic."""

    kafka_topic: str
    kafka_partition: int


class SourceOffset(BaseModel):
    """The next offset to be published."""

    kafka_offset: int


class ConnectorOffset(BaseModel):
    """The position in one partition."""

    partition: SourcePartition
    offset: SourceOffset


class ConnectorOffsets(BaseModel):
    """The positions of a connector."""

    offsets: list[ConnectorOffset]


class Message(BaseModel):
    """What was done."""

    message: str


class PluginInfo(BaseModel):
    """A class that a config can name."""

    model_config = ConfigDict(populate_by_name=True)

    class_: str = Field(alias="class")
    type: Literal["sink", "source", "transformation", "predicate", "converter", "header_converter"]
    version: str


class ConfigKeyInfo(BaseModel):
    """What is known of a key."""

    name: str
    type: Literal["BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"]
    required: bool
    default_value: str | None
    importance: Literal["LOW", "MEDIUM", "HIGH"]
    documentation: str
    group: str
    width: Literal["NONE", "SHORT", "MEDIUM", "LONG"]
    display_name: str
    dependents: list[str]
    order_in_group: int


class ConfigValueInfo(BaseModel):
    """What a key is set to, and what is wrong with that."""

    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class ConfigInfo(BaseModel):
    """A key and its value."""

    definition: ConfigKeyInfo
    value: ConfigValueInfo


class ConfigInfos(BaseModel):
    """What is wrong with a config, key by key."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[ConfigInfo]


class LoggerLevel(BaseModel):
    """The level of a logger, and when REST has last set it, in ms; None: never."""

    level: str
    last_modified: int | None


def to_json(value: BaseModel) -> bytes:
    """Returns the JSON of an answer without fields that have no value: clients look whether `trace` is there."""
    return value.model_dump_json(exclude_none=True, by_alias=True).encode()


Bytes = str | dict[str, str] | None
"""Bytes as base64, or as text; with `text=true` those that are no text as `{"base64": …}`."""


class KeptRecordEntity(BaseModel):
    """The latest record that a partition keeps of a key; times in ms, as `keyfold get` shows them."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: Bytes
    value: Bytes
    headers: list[tuple[str, Bytes]]
    delete_horizon: int | None
    published: bool


class LookUpAnswer(BaseModel):
    """The records of some keys; `ends`, by topic and partition: the answer holds below these source offsets."""

    records: list[KeptRecordEntity]
    ends: dict[str, dict[str, int]]

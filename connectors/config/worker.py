"""The worker file, and the environment over it, as a value."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from connectors.chain.spec import chain_faults
from connectors.config import errors, flat_file
from connectors.config.clients.client_translate import name_faults
from connectors.config.connector import ClassSettings
from connectors.config.definitions import definitions, family, family_of, setting
from connectors.config.errors import Fault, SeveralFaultsError
from connectors.config.fields import (
    ANY_CASE,
    FilePath,
    Flag,
    FolderNameOrNone,
    HostName,
    Int,
    JavaRegex,
    Listeners,
    Location,
    Locations,
    Long,
    Paths,
    Servers,
    SparkMaster,
    Text,
    local_path,
)
from connectors.config.first_look import (
    DEFAULT_LOG_FORMAT,
    DEFAULT_LOG_LEVEL,
    DEFAULT_MASTER,
    DEFAULT_PACKAGE,
    PINNED,
    LogFormat,
    LogLevel,
)
from connectors.config.flat_file import family_texts
from connectors.placeholders import DIRECTORIES, FILES, VARIABLES, Limits, SecretError, resolve

PREFIX: Final = "KEYFOLD_"
OTHERS: Final = frozenset(
    {
        *("KEYFOLD_FAILPOINTS", "KEYFOLD_IVY_SETTINGS", "KEYFOLD_REST_PASSWORD", "KEYFOLD_REST_URL"),
        "KEYFOLD_SPARK_WITHOUT",
    }
)
"""Variables of keyfold that are no settings of a worker."""
POLICY: Final = "connector.client.config.override.policy"
OverridePolicy = Literal["all", "principal", "none"]
ALLOWED: Final = "snapshot.location.allowed.prefixes"
_KUBERNETES: Final = re.compile(
    r"KEYFOLD_(\w+_)?(SERVICE_HOST=.*|SERVICE_PORT(_\w+)?=\d*|PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*"
    r"|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)
"""What Kubernetes sets in each container for a service that is named `keyfold` or `keyfold-…`, with its value."""
_worker: Final = partial(setting, group="The worker")
_secrets: Final = partial(setting, group="What placeholders of connectors may read", importance="medium")
_bounds: Final = partial(setting, group="What connectors may set", importance="medium")
_rest: Final = partial(setting, group="REST")
_converters: Final = partial(setting, group="Converters")
_stores: Final = partial(setting, group="Object stores", importance="medium")


def _spark_faults(settings: Mapping[str, str]) -> Iterator[Fault]:
    for name, text in settings.items():
        try:
            value = resolve(text)
        except SecretError as error:
            yield Fault(name, str(error))
            continue
        pinned, why = PINNED.get(f"spark.{name}", (value, ""))
        if value != pinned:
            yield Fault(name, f'is always "{pinned}": {why}; remove it.')


class EnvironmentSource(PydanticBaseSettingsSource):
    """The settings in the environment: `KEYFOLD_BOOTSTRAP_SERVERS` is `bootstrap.servers`."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002  # theirs
        """Returns nothing: variables are not looked up by field, as those of families have no field of their own."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Returns the settings of this process's environment, under their names in the file."""
        return settings_of(os.environ)


@flat_file.model_of("worker")
class WorkerConfig(BaseSettings):
    """Every setting of a worker, checked. Times in ms.

    `WorkerConfig(**mapping)` takes the flat mapping of a worker file; variables `KEYFOLD_…` of the environment win
    over it. Raises ConfigError with all faults. `consumer`, `producer`, `admin` and `spark` hold placeholders until
    they are used; `given` is everything as texts.
    """

    model_config = SettingsConfigDict(
        frozen=True, strict=True, extra="forbid", hide_input_in_errors=True, env_prefix=PREFIX
    )

    bootstrap_servers: Servers = _worker("bootstrap.servers", ..., importance="high")
    """The brokers to begin with."""
    storage_location: Location = _worker("storage.location", "keyfold-data", importance="high")
    """Where the runs and catalogs of all connectors are kept: a folder, or an object store
    ([stores.md](stores.md)); a relative path counts from the folder of the worker file."""
    spark_master: SparkMaster = _worker("spark.master", DEFAULT_MASTER, importance="high")
    """Where Spark runs: `local[N]`, `spark://HOST:PORT`, `k8s://…`, `yarn`."""
    executors_package: Annotated[Literal["auto", "ship", "installed"], ANY_CASE] = _worker(
        "executors.package", DEFAULT_PACKAGE, importance="medium"
    )
    """How executors of a Spark cluster get keyfold and its packages ([scaling.md](scaling.md)).

    `ship` sends them an archive of this environment. `installed` says that they have it. `auto` sends an archive unless
    `spark.archives` or an image for Kubernetes is set."""
    erasure_key_file: FilePath | None = _worker("erasure.key.file", None, importance="low")
    """The private key (Ed25519, PEM) that signs receipts of `keyfold erase` ([erasure.md](erasure.md)); made if absent.
    Not set: `keyfold/erasure-key.pem` in the account's `XDG_CONFIG_HOME`, else in `~/.config`."""
    log_level: Annotated[LogLevel, ANY_CASE] = _worker("log.level", DEFAULT_LOG_LEVEL, importance="medium")
    """Least level of what is logged."""
    log_format: Annotated[LogFormat, ANY_CASE] = _worker("log.format", DEFAULT_LOG_FORMAT, importance="low")
    """`console` for people, `json` for machines, `auto` is `console`, coloured only on a terminal."""
    log_cleaner_backoff_ms: Long = _worker("log.cleaner.backoff.ms", "15000", ge=0, unit="ms", importance="medium")
    """How long the cleaner sleeps when there is nothing to fold."""
    log_cleaner_initial_delay_ms: Long = _worker(
        "log.cleaner.initial.delay.ms", "60000", ge=0, unit="ms", importance="low"
    )
    """How long after its start a worker waits before the first fold of the cleaner."""
    task_shutdown_graceful_timeout_ms: Long = _worker(
        "task.shutdown.graceful.timeout.ms", "10000", ge=0, unit="ms", importance="medium"
    )
    """How long the connectors and Spark may take to end after SIGTERM.

    A micro-batch that is under way may end in the first part of this time; then it is broken off. What does not end at
    all is left, and nothing is lost by that. A JVM, a store or a client of REST that hangs adds up to ten seconds."""
    connectors_dir: FolderNameOrNone = _worker("connectors.dir", "none", importance="medium")
    """Folder of more connector files than those on the command line: every `*.json` in it is a connector.

    What is added, changed or removed there takes effect on SIGHUP. A faulty file is logged and harms no other."""
    connectors_watch: Flag = _worker("connectors.watch", "false", importance="low")
    """Whether changes in `connectors.dir` take effect by themselves, without SIGHUP."""
    connectors_max: Int | None = _worker("connectors.max", None, ge=0, importance="medium")
    """How many connectors the worker may have. Beyond this number none is made over REST (409).

    Connectors of files count, and are never refused: a warning says that there are more. Not set: as many as the
    process's limit of open files (`ulimit -n`) has room for, with 33 files each and 512 for the worker itself; 10 at
    least and 1000 at most."""
    listeners: Listeners = _rest("listeners", "http://127.0.0.1:8083", importance="high")
    """Where the worker answers requests over REST ([rest.md](rest.md)); nothing: nowhere. Never under `--once`."""
    admin_listeners: Listeners | None = _rest("admin.listeners", None, importance="low")
    """Where `/admin` is answered, in place of `listeners`. Not set: there too; nothing: nowhere."""
    rest_advertised_host_name: HostName | None = _rest("rest.advertised.host.name", None, importance="low")
    """The host in the worker's id (`worker_id`) and in `Location`. Not set: the first listener's, or this machine's
    name where that listens on all addresses."""
    rest_advertised_port: Int | None = _rest("rest.advertised.port", None, ge=1, importance="low")
    """The port there. Not set: the first listener's."""
    rest_advertised_listener: Annotated[Literal["http", "https"], ANY_CASE] | None = _rest(
        "rest.advertised.listener", None, importance="low"
    )
    """The scheme there. Not set: the first listener's."""
    rest_auth: Annotated[Literal["none", "basic"], ANY_CASE] | None = _rest("rest.auth", None, importance="high")
    """`basic` asks for one of the users of `rest.auth.users.file`. A listener that other machines can reach needs this
    to be set, to `none` where really everyone may change connectors."""
    rest_auth_users_file: FilePath | None = _rest("rest.auth.users.file", None, importance="medium")
    """The users: lines `NAME:HASH:ROLE`, HASH from `htpasswd -nB NAME` (bcrypt), ROLE `viewer` (reads only) or
    `admin`. It is read again when it has changed."""
    listeners_ssl_certificate: FilePath | None = _rest(
        "listeners.https.ssl.certificate.location", None, importance="low"
    )
    """The certificate (PEM, with those that it was signed by) of listeners with `https`."""
    listeners_ssl_key: FilePath | None = _rest("listeners.https.ssl.key.location", None, importance="low")
    """Its private key (PEM, not encrypted)."""
    listeners_ssl_ca: FilePath | None = _rest("listeners.https.ssl.ca.location", None, importance="low")
    """The certificates (PEM) that have to have signed those of clients."""
    ssl_client_auth: Annotated[Literal["none", "requested", "required"], ANY_CASE] = _rest(
        "ssl.client.auth", "none", importance="low"
    )
    """Whether clients of `https` listeners show a certificate."""
    access_control_allow_origin: Text | None = _rest("access.control.allow.origin", None, importance="low")
    """The web origins whose pages may ask, with commas between them, or `*`. Not set: none."""
    access_control_allow_methods: Text = _rest("access.control.allow.methods", "GET,POST,HEAD", importance="low")
    """The methods that they may use."""
    health_max_lag_ms: Long | None = _rest("health.max.lag.ms", None, ge=1, unit="ms", importance="medium")
    """`/health?strict=true` fails while a connector is further behind than this. Not set: however far."""
    metrics_names: Annotated[Literal["strimzi", "confluent"], ANY_CASE] = _rest(
        "metrics.names", "strimzi", importance="low"
    )
    """Which names Kafka Connect's metrics have at `/metrics`: those of Strimzi's exporter, or of Confluent's."""
    metrics_partitions: Flag = _rest("metrics.partitions", "false", importance="low")
    """Whether `/metrics` also has values for each partition."""
    ui_enable: Flag = _rest("ui.enable", "true", importance="low")
    """Whether `listeners` answer the worker's page for people too ([page.md](page.md)): `/ui`, and `/` for browsers."""
    topic_tracking_enable: Flag = _rest("topic.tracking.enable", "true", importance="low")
    """Whether `/connectors/NAME/topics` tells which topics a connector has used."""
    topic_tracking_allow_reset: Flag = _rest("topic.tracking.allow.reset", "true", importance="low")
    """Whether `/connectors/NAME/topics/reset` is allowed."""
    storage_s3_endpoint: Text | None = _stores("storage.s3.endpoint", None)
    """The URL of a store that speaks S3's protocol. Not set: Amazon's of the region."""
    storage_s3_region: Text | None = _stores("storage.s3.region", None)
    """The region. Not set here and below: as the environment says (`AWS_REGION`, `AWS_ACCESS_KEY_ID` and so on), or the
    role of the machine, pod or task."""
    storage_s3_access_key_id: Text | None = _stores("storage.s3.access.key.id", None)
    """The access key."""
    storage_s3_secret_access_key: Text | None = _stores("storage.s3.secret.access.key", None)
    """Its secret."""
    storage_s3_session_token: Text | None = _stores("storage.s3.session.token", None)
    """The session's token, of credentials that end."""
    storage_s3_role_arn: Text | None = _stores("storage.s3.role.arn", None)
    """The role to take, with the token of `AWS_WEB_IDENTITY_TOKEN_FILE`."""
    storage_s3_path_style: Flag = _stores("storage.s3.path.style", "true")
    """Whether the bucket stands in the path of a URL, not in the name of the host."""
    storage_s3_allow_http: Flag = _stores("storage.s3.allow.http", "false")
    """Whether `storage.s3.endpoint` may be without TLS."""
    storage_azure_account_name: Text | None = _stores("storage.azure.account.name", None)
    """The storage account. Not set here and below: as the environment says (`AZURE_STORAGE_ACCOUNT_NAME` and so on)."""
    storage_azure_account_key: Text | None = _stores("storage.azure.account.key", None)
    """Its key."""
    storage_azure_sas_token: Text | None = _stores("storage.azure.sas.token", None)
    """A shared access signature, in place of the key."""
    storage_azure_client_id: Text | None = _stores("storage.azure.client.id", None)
    """The application, in place of a key."""
    storage_azure_client_secret: Text | None = _stores("storage.azure.client.secret", None)
    """Its secret."""
    storage_azure_tenant_id: Text | None = _stores("storage.azure.tenant.id", None)
    """The tenant of the application."""
    storage_azure_endpoint: Text | None = _stores("storage.azure.endpoint", None)
    """The URL of the account. Not set: Azure's public one."""
    storage_azure_allow_http: Flag = _stores("storage.azure.allow.http", "false")
    """Whether that may be without TLS."""
    storage_gcs_service_account_file: FilePath | None = _stores("storage.gcs.service.account.file", None)
    """The JSON file of a service account. Not set, nor its key: as the environment says
    (`GOOGLE_APPLICATION_CREDENTIALS`), or the account of the machine or pod."""
    storage_gcs_service_account_key: Text | None = _stores("storage.gcs.service.account.key", None)
    """The content of that file."""
    storage_gcs_endpoint: Text | None = _stores("storage.gcs.endpoint", None)
    """The URL of the store. Not set: Google's."""
    storage_gcs_allow_http: Flag = _stores("storage.gcs.allow.http", "false")
    """Whether that may be without TLS."""
    file_paths: Paths | None = _secrets(FILES, None)
    """The files, and folders with all below them, that `${file:…}` may read in settings of connectors.

    Clients and registries of connectors made over REST may read the same files. Not set: in connectors of files any,
    in those made over REST none."""
    directory_paths: Paths | None = _secrets(DIRECTORIES, None)
    """The same for `${directory:…}`."""
    variables_pattern: JavaRegex | None = _secrets(VARIABLES, None)
    """A Java regular expression for the whole names of the variables that `${env:…}` may read in settings of
    connectors.

    Not set: in connectors of files any, in those made over REST none."""
    override_policy: Annotated[OverridePolicy, ANY_CASE] = _bounds(POLICY, "All")
    """Which `*.override.*` a connector may have, as in Kafka Connect: all, none, or with `Principal` those of a login.

    Those of a login are `sasl.jaas.config`, `sasl.mechanism`, `security.protocol`, and librdkafka's `sasl.username` and
    `sasl.password`."""
    snapshot_prefixes: Locations | None = _bounds(ALLOWED, None)
    """The folders and prefixes of object stores below which connectors made over REST may have their
    `snapshot.location`.

    Not set: anywhere that the worker may write, but in no other account of Azure than its own. A place in or around
    `storage.location` and the snapshots of another connector is refused in any case."""
    key_converter: Text | None = _converters("key.converter", None, importance="medium")
    """The class that reads and writes keys, for connectors that name none ([converters.md](converters.md)). Not set:
    `keyfold.Bytes`."""
    value_converter: Text | None = _converters("value.converter", None, importance="medium")
    """The same for values, for connectors that name none."""
    header_converter: Text | None = _converters("header.converter", None, importance="low")
    """The class that writes headers which a transform adds, for connectors that name none. Not set: Connect's
    SimpleHeaderConverter."""
    given: dict[str, str] = Field(repr=False)
    key_converter_settings: ClassSettings = family("key.converter.")
    """A setting of `key.converter`, for connectors that name no converter of their own."""
    value_converter_settings: ClassSettings = family("value.converter.")
    """A setting of `value.converter`."""
    header_converter_settings: ClassSettings = family("header.converter.")
    """A setting of `header.converter`."""
    spark: Annotated[dict[str, str], family_texts(_spark_faults)] = family("spark.")
    """Passed on to Spark as it is: `spark.driver.memory`.

    It goes to Spark's JVM in a file that only the worker's account can read. Options of the JVM
    (`spark.driver.extraJavaOptions`), though, show on its command line."""
    consumer: Annotated[dict[str, str], family_texts(partial(name_faults, "consumer"))] = family("consumer.")
    """A setting of all consumers of all connectors, under Java's or librdkafka's name: `consumer.fetch.min.bytes`."""
    producer: Annotated[dict[str, str], family_texts(partial(name_faults, "producer"))] = family("producer.")
    """The same for all producers."""
    admin: Annotated[dict[str, str], family_texts(partial(name_faults, "admin"))] = family("admin.")
    """The same for all admin clients."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # named by pydantic-settings, as the next two
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Orders the sources: the environment wins over what the constructor was given, the file's settings."""
        return EnvironmentSource(settings_cls), init_settings

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        clients = "consumer.{0}, producer.{0} and admin.{0}"
        return flat_file.read(cls, raw, handler, lambda _: "worker", clients)

    @field_validator("given")
    @classmethod
    def _fit_together(cls, given: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        """Checks the converters, and whether stores may be reached as their endpoints say."""
        faults = [Fault(key, text) for key, text in chain_faults(given, resolve)]
        faults += [Fault(f"storage.{store}.endpoint", text) for store, text in _open_endpoints(info.data)]
        if faults:
            raise SeveralFaultsError(faults)
        return given

    def limits(self, *, over_rest: bool) -> Limits:
        """Returns what placeholders of connectors may read; without settings those made over REST nothing."""
        unset: tuple[()] | None = () if over_rest else None
        return Limits(
            files=unset if self.file_paths is None else self.file_paths,
            directories=unset if self.directory_paths is None else self.directory_paths,
            variables=("" if over_rest else None) if self.variables_pattern is None else self.variables_pattern,
            over_rest=over_rest,
        )

    @property
    def storage_path(self) -> Path:
        """The folder of `storage.location`. Raises ValueError if that is an object store."""
        return local_path(self.storage_location)

    @property
    def connectors_path(self) -> Path | None:
        """The folder of `connectors.dir`."""
        return None if self.connectors_dir is None else local_path(self.connectors_dir)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings for Spark in addition to `spark.master`, under their full names, secrets resolved: do not log."""
        return {f"spark.{name}": resolve(text) for name, text in self.spark.items()}

    def effective(self) -> dict[str, str | None]:
        """Returns all settings as texts, defaults included, as they may be printed: secrets hidden."""
        return flat_file.effective(type(self), self.given)


def _open_endpoints(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields each kind of store that has an endpoint without TLS, which nothing allows, and what to do about it."""
    for store in ("s3", "azure", "gcs"):
        endpoint = values.get(f"storage_{store}_endpoint") or ""
        if endpoint.lower().startswith("http://") and not values.get(f"storage_{store}_allow_http"):
            yield store, f"is without TLS; write https://, or set storage.{store}.allow.http to true."


def variable(name: str) -> str:
    """Returns the variable of the setting `name`."""
    return PREFIX + name.replace(".", "_").upper()


def settings_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings among `environ`, under their names in the file.

    An underscore of a variable is a dot of the name, so names with capitals or underscores (some of Spark's) can only
    stand in the file. Other variables that begin with `KEYFOLD_` set nothing.
    """
    return {key: text for name, text in environ.items() if (key := _setting(name, text))}


def strange(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a sentence for each variable that begins with `KEYFOLD_` and is none of keyfold's, perhaps misspelt.

    Those that Kubernetes sets for its services are left out: no person set them.
    """
    known = (*OTHERS, *map(variable, definitions(WorkerConfig)))
    return tuple(
        f"{name}: {errors.unknown(name, known, 'variable')} It sets nothing."
        for name, text in sorted(environ.items())
        if name.startswith(PREFIX)
        and name not in OTHERS
        and not _setting(name, text)
        and not _of_kubernetes(name, text)
    )


def _setting(name: str, text: str) -> str | None:
    """Returns the setting that the variable `name` with the value `text` is."""
    if not name.startswith(PREFIX) or name in OTHERS:
        return None
    key = name.removeprefix(PREFIX).lower().replace("_", ".")
    if key in definitions(WorkerConfig):
        return key
    return key if family_of(WorkerConfig, key) and not _of_kubernetes(name, text) else None


def _of_kubernetes(name: str, text: str) -> bool:
    return _KUBERNETES.fullmatch(f"{name}={text}") is not None

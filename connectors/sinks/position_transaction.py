"""Commits positions of a group in a transaction that stays undecided while older owners are shut out.

While it is undecided, the positions in it block step 7 of every publish, which waits for pending ones. So a publish
that may still commit one of them has a producer of before, and `init_transactions` of its transactional id ends that:
it is shut out, or has committed. No process moves the positions from then until the decision (steps R4 to R6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition

from compactor.model.position import Position, encode
from compactor.model.record import TopicPartition
from connectors.clock import Deadline
from connectors.errors import BrokerRefusedError
from connectors.kafka import groups, producers
from connectors.kafka.admin import chunks
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.errors import FENCED, NOT_ALLOWED, UNFIT, cause, typed

_ABORT_S: Final = 2.0
"""How long (s) an abort is waited for: the next producer of the id, or the coordinator, ends the transaction anyway."""
_TIMEOUT: Final = "transaction.timeout.ms"
_DEFAULT_MS: Final = 60_000
"""librdkafka's default of transaction.timeout.ms."""
LONGEST_MS: Final = 900_000
"""Brokers' default of transaction.max.timeout.ms: they refuse a producer that asks for more."""

_log = structlog.get_logger()


def timeout_ms(config: Mapping[str, Setting], needed_s: float) -> int:
    """Returns the transaction.timeout.ms of a transaction that is undecided for up to `needed_s`, at most LONGEST_MS.

    It is the one of `config`, a connector's producer settings, if that is longer. What it is raised to has the time of
    a step with a producer on top, for its own requests.
    """
    needed_ms = int((needed_s + producers.DEADLINE_S) * 1000)
    return max(int(config.get(_TIMEOUT, _DEFAULT_MS)), min(needed_ms, LONGEST_MS))


def longest_lived(
    config: Mapping[str, Setting],
    name: str,
    needed_s: float,
    initialise: Callable[[Mapping[str, Setting]], Producer] = producers.initialised,
) -> tuple[Producer, int]:
    """Returns a producer of the transactional id `name`, initialised, and its transaction.timeout.ms.

    It is `timeout_ms`; the one of `config` if the brokers allow no longer one (transaction.max.timeout.ms). Then the
    steps that it is for may still be done in time. Raises UnreachableError, NotAllowedError, BrokerRefusedError.
    """
    settings = producers.settings(config, name, producers.LARGEST_BATCH)
    own, longest = int(config.get(_TIMEOUT, _DEFAULT_MS)), timeout_ms(config, needed_s)
    try:
        return initialise({**settings, _TIMEOUT: longest}), longest
    except BrokerRefusedError as error:
        refused = error.__cause__
        too_long = (
            isinstance(refused, KafkaException) and cause(refused).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
        )
        if longest == own or not too_long:
            raise
    _log.warning("brokers refuse a longer transaction.timeout.ms", asked_ms=longest, used_ms=own)
    return initialise({**settings, _TIMEOUT: own}), own


class PositionTransaction:
    """A transaction of the transactional id `name` for positions of `group`; its producer shuts out all earlier ones.

    It may stay undecided for `needed_s` before the coordinator aborts it, or for less if the brokers do not allow that.
    Raises UnreachableError, NotAllowedError, BrokerRefusedError.
    """

    def __init__(self, clients: ClientSettings, name: str, group: str, needed_s: float) -> None:
        config = clients.producer()
        self._producer, self.timeout_ms = longest_lived(config, name, needed_s)
        # When the coordinator may end the transaction by itself; set as it begins.
        self._timeout = Deadline(0)
        self._member = groups.member(clients.admin(), group)
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._group = group

    def put(self, positions: Mapping[TopicPartition, Position]) -> bool:
        """Begins the transaction with `positions`; returns False if a newer producer has shut this one out."""
        metadata = self._member.consumer_group_metadata()
        offsets = [Partition(*tp, position.group_offset, encode(position)) for tp, position in positions.items()]
        self._timeout = Deadline(self.timeout_ms / 1000)
        try:
            self._producer.begin_transaction()
            for part in chunks(offsets):
                self._call(partial(self._producer.send_offsets_to_transaction, list(part), metadata))
        except KafkaException as error:
            return self._shut_out(cause(error))
        return True

    def commit(self) -> bool:
        """Commits; returns False if nothing was, as a newer producer, or the coordinator, had ended the transaction.

        Raises UnreachableError if the answer is lost: then the positions tell.
        """
        try:
            self._call(self._producer.commit_transaction)
        except KafkaException as error:
            return self._shut_out(cause(error))
        return True

    @property
    def has_timed_out(self) -> bool:
        """Whether the coordinator may have ended the transaction, as it was undecided for longer than its time-out.

        Its answer to a producer is then the same as if a newer producer had ended it.
        """
        return self._timeout.has_passed

    def abort(self) -> None:
        """Aborts, if that takes at most _ABORT_S."""
        with suppress(KafkaException):
            self._producer.abort_transaction(_ABORT_S)

    def close(self) -> None:
        """Closes the connections; a transaction that is undecided stays so until its time-out."""
        self._member.close()

    @staticmethod
    def _call(ask: Callable[[float], object]) -> None:
        producers.call_until_answered(ask, producers.DEADLINE_S, lambda: False)

    def _shut_out(self, error: KafkaError) -> bool:
        """Returns False if another producer has ended the transaction; raises what else `error` is."""
        if error.code() not in NOT_ALLOWED and error.code() not in UNFIT and (error.code() in FENCED or error.fatal()):
            return False
        right = f"Read on group {self._group}" if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED else None
        raise typed(error, f"Positions of group {self._group} cannot be committed", self._bootstrap, right)

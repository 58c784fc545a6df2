"""A resync that applies another identity, scope, order or fill, and dies at a step, in a command or in a worker."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pytest

from connectors.errors import EXIT_FENCED, EXIT_OK
from tests.faults.cases import Case, Cases
from tests.faults.observe import newest
from tests.faults.scenario import CALM, Scenario
from tests.faults.strikes import ASLEEP, frozen_at
from tests.faults.worker_process import TIMEOUT_S
from tests.support.generations import numbers

pytestmark = pytest.mark.timeout(600)


class Rule(NamedTuple):
    """A setting that a resync changes from `one` to `other` and back, and the settings of its scenario."""

    setting: str
    one: str
    other: str
    scenario: Mapping[str, Any]


def _rule(setting: str, one: str, other: str, **more: object) -> Rule:
    return Rule(setting, one, other, {**CALM, setting: one, **{key.replace("_", "."): more[key] for key in more}})


RULES: Final = {
    "identity": _rule("compaction.key.identity", "bytes", "json"),
    "scope": _rule("compaction.scope", "partition", "topic"),
    "order": _rule("compaction.order", "offset", "timestamp"),
    "fill": _rule(
        *("compaction.fill", "none", "unavailable"),
        value_converter="keyfold.Json",
        value_converter_schemas_enable="false",
    ),
}
CHANGING: Final = (
    *("takeover.epoch", "takeover.fence", "generation.read", "generation.write"),
    *("generation.before-commit", "generation.after-commit", "generation.position"),
)
CHANGED: Final = ("generation.after-commit", "generation.position")
"""The steps at which the catalog has the other rule."""
FIRST_FOLD: Final = (
    *("ingest.after-commit", "publish.begin", "publish.sent", "publish.offsets"),
    *("publish.committed", "publish.before-commit"),
)
EVERY: Final = [
    *(("identity", step) for step in CHANGING),
    *((rule, step) for rule in ("scope", "order", "fill") for step in CHANGING[3:]),
]
IN_THE_FIRST_FOLD: Final = [
    *(("identity", step) for step in (*FIRST_FOLD, "publish.retired")),
    *((rule, "publish.sent") for rule in ("scope", "order", "fill")),
]
"""`publish.retired` is reached only where another identity comes: cases take turns."""


def turns(scenario: Scenario, rule: Rule) -> str:
    """Kills the worker once it publishes, and gives the next one the other value of `rule`, which it returns."""
    scenario.running().kill()
    return turned(scenario, rule)


def turned(scenario: Scenario, rule: Rule) -> str:
    """Gives the processes that start from now on the other value of `rule`, and returns it."""
    settings = scenario.deployment.settings
    value = rule.one if settings[rule.setting] == rule.other else rule.other
    settings[rule.setting] = value
    return value


def applied(scenario: Scenario, rule: Rule) -> str:
    """Returns what the catalog says of `rule`."""
    state = scenario.deployment.state()
    said = {"compaction.key.identity": state.key_identity or "bytes", "compaction.scope": state.scope}
    said |= {"compaction.order": state.order, "compaction.fill": state.winners.fill}
    return said[rule.setting]


def resync(scenario: Scenario) -> None:
    """Applies the file's rules by the command, to its end."""
    command = scenario.command("resync")
    assert command.wait(TIMEOUT_S) == EXIT_OK, command.tail()


def goes_on(case: Case, rule: Rule, value: str) -> None:
    """Waits until the worker has published by the rule `value` and taken a snapshot by it, and checks everything."""
    scenario = case.scenario
    case.recovers()
    assert applied(scenario, rule) == value

    def is_of_now() -> bool:
        taken = newest(scenario.deployment)
        said = {} if taken is None else taken.manifest.generations or {}
        return list(said.values()) == numbers(scenario.deployment.state())

    scenario.until(is_of_now, "a snapshot is of the newest generations")
    assert case.violations() == []
    case.outcome = f"went on by {value}"


@pytest.mark.parametrize(("name", "step"), EVERY)
def test_a_resync_that_applies_another_rule_is_killed_at_a_step(cases: Cases, name: str, step: str) -> None:
    """The command dies: all logs have the rule before, or all have the other; what was not done is asked for again."""
    rule = RULES[name]
    with cases.case(f"SIGKILL of a resync, another {name}", step, rule.scenario) as case:
        scenario = case.scenario
        value = turns(scenario, rule)
        scenario.arm(step, ASLEEP)
        command = scenario.command("resync")
        command.until_met(step)
        case.strikes()
        command.kill()
        assert (applied(scenario, rule) == value) == (step in CHANGED)
        if step not in CHANGED:
            resync(scenario)
        scenario.start()
        goes_on(case, rule, value)


@pytest.mark.parametrize("step", CHANGING[2:])
def test_a_worker_that_applies_another_identity_is_killed_at_a_step(cases: Cases, step: str) -> None:
    """It was asked to: the next worker does that again, whether it was done or not."""
    rule = RULES["identity"]
    with cases.case("SIGKILL of a worker that applies another identity", step, rule.scenario) as case:
        scenario = case.scenario
        value = turns(scenario, rule)
        scenario.ask_resync()
        scenario.arm(step, ASLEEP)
        worker = scenario.start()
        worker.until_met(step)
        case.strikes()
        worker.kill()
        assert (applied(scenario, rule) == value) == (step in CHANGED)
        scenario.start()
        goes_on(case, rule, value)


@pytest.mark.parametrize(("name", "step"), IN_THE_FIRST_FOLD)
def test_a_worker_killed_in_the_first_fold_by_another_rule(cases: Cases, name: str, step: str) -> None:
    """The next one sends what is missing, once, by the rule that the catalog has by now."""
    rule = RULES[name]
    with cases.case(f"SIGKILL in the first fold by another {name}", step, rule.scenario) as case:
        scenario = case.scenario
        if turns(scenario, rule) == rule.one and step == "publish.retired":  # by bytes nothing is retired
            resync(scenario)
            scenario.start()
            turns(scenario, rule)
        resync(scenario)
        scenario.arm(step, ASLEEP)
        worker = scenario.start()
        worker.until_met(step)
        case.strikes()
        worker.kill()
        scenario.start()
        goes_on(case, rule, scenario.deployment.settings[rule.setting])


@pytest.mark.parametrize("step", ["ingest.before-commit", "publish.sent", "publish.committed"])
def test_a_frozen_worker_wakes_up_under_another_identity(cases: Cases, step: str) -> None:
    """A worker that started after it has applied the other one: the sleeper changes nothing, and ends with 5."""
    rule = RULES["identity"]
    with cases.case("frozen, another identity", step, rule.scenario) as case:
        scenario = case.scenario
        sleeper = frozen_at(scenario, step)
        case.strikes()
        value = turned(scenario, rule)
        scenario.ask_resync()
        scenario.start()
        case.recovers()
        sleeper.signal_all(signal.SIGCONT)
        assert sleeper.wait(TIMEOUT_S) == EXIT_FENCED, sleeper.tail()
        goes_on(case, rule, value)

"""docs/failures.md tells every reason with the grace that the code has, and names only what there is."""

from __future__ import annotations

import re

from copilot import config
from copilot.model import FailureReason
from copilot.plan import Policy, What
from tests.unit.documents import read, table, words

TEXT = read("docs/failures.md")


def test_every_reason_is_told_once() -> None:
    assert sorted(words(row[0])[0] for row in table(TEXT, "reason")) == sorted(FailureReason)


def test_a_grace_is_a_setting_and_a_field_of_the_policy() -> None:
    named = {word for row in table(TEXT, "reason") for word in words(row[2])}
    assert named - {"scale_up_grace"} <= {row.name for row in config.TABLE} & set(Policy.__dataclass_fields__)


def test_the_policy_and_the_settings_have_the_same_defaults() -> None:
    settings, policy = config.Settings(), Policy()
    shared = [name for name in Policy.__dataclass_fields__ if hasattr(settings, name)]
    assert len(shared) > 15
    assert {name: getattr(settings, name) for name in shared} == {name: getattr(policy, name) for name in shared}


def test_every_event_of_the_log_that_is_named_exists() -> None:
    events = {what.value for what in What} | {"breaker_open", "breaker_half_open", "breaker_closed"}
    named = set(re.findall(r"`((?:node|breaker|orphan|missed)_[a-z_]+)`", TEXT))
    settings = {row.name for row in config.TABLE}
    assert {"node_failed", "node_cannot_start", "breaker_open"} <= named - settings <= events

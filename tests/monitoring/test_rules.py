"""The alerts: valid, the same for both kinds of Prometheus, each with its page in the runbook, each shown to fire and not to fire."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from copilot.telemetry import Metrics
from tests.lab.prometheus import promtool
from tests.monitoring.conftest import COMPONENT, RULES, Rule, rules
from tests.unit.documents import anchor, read

CASES = Path(__file__).with_name("rules_test.yaml")


def test_the_rules_are_valid() -> None:
    assert f"SUCCESS: {len(rules())} rules found" in promtool("check", "rules", RULES)


def test_both_kinds_of_prometheus_get_the_same_rules() -> None:
    operator = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text())
    assert operator["spec"] == yaml.safe_load(RULES.read_text())


def test_every_alert_fires_and_does_not_as_the_cases_say(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES.read_text().replace("RULES", str(RULES)))
    assert "SUCCESS" in promtool("test", "rules", cases)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    asked = [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]
    for fires in (True, False):
        assert {case["alertname"] for case in asked if bool(case.get("exp_alerts")) is fires} == {
            rule["alert"] for rule in rules()
        }


def test_every_alert_has_a_page_in_the_runbook_and_the_reverse() -> None:
    headings = re.findall(r"^## (SlurmCopilot\w+)$", read("docs/runbook.md"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{anchor(rule['alert'])}"


def test_every_alert_says_how_serious_it_is_and_what_it_means() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}


def metrics_of(rule: Rule) -> set[str]:
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bslurm_copilot_\w+", rule["expr"])}


def test_the_alerts_ask_for_metrics_that_exist() -> None:
    families = list(Metrics().registry.collect())
    there = {family.name + {"counter": "_total", "info": "_info"}.get(family.type, "") for family in families}
    asked = set().union(*map(metrics_of, rules()))
    assert asked
    assert asked <= there

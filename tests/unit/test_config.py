"""Settings: where they come from, what is allowed, and that every bad one is named at once."""

from __future__ import annotations

import argparse
import dataclasses
import pwd
import re
from pathlib import Path

import pytest

from copilot import config
from copilot.config import Address, ConfigError, Settings, load
from copilot.model import Kind

ROOT = {"COPILOT_SLURM_USER": "root"}  # a user whom every machine knows


def flags_of(*argv: str) -> dict[str, str | None]:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return vars(parser.parse_args(argv))


def test_nothing_needs_to_be_set() -> None:
    assert load({}, ROOT) == Settings(slurm_user="root")


def test_a_flag_wins_over_the_environment_which_wins_over_the_default() -> None:
    environ = ROOT | {"COPILOT_POLL_QUIET": "40", "COPILOT_COALESCE": "0.5"}
    settings = load(flags_of("--poll-quiet", "50"), environ)
    assert (settings.poll_quiet, settings.coalesce, settings.retry_max) == (50, 0.5, 30)


def test_an_empty_variable_counts_as_not_given() -> None:
    assert load({}, ROOT | {"COPILOT_NAMESPACE": "", "COPILOT_POLL_QUIET": ""}) == load({}, ROOT)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("socket_mode", "0666", 0o666),
        ("listen", "off", None),
        ("listen", "[::]:80", Address("::", 80)),
        ("namespace", "hpc-1", "hpc-1"),
        ("targets", "kruise, StatefulSet,kruise", ("kruise", "statefulset")),
        ("worker_label", "example.org/role=worker", "example.org/role=worker"),
        ("worker_label", "slurmd", "slurmd"),
        ("scontrol", "chroot /srv/slurm scontrol", ("chroot", "/srv/slurm", "scontrol")),
        ("free_early", "No", False),
        ("log_level", "DEBUG", "debug"),
        ("slurm_user", "64030", "64030"),
        ("poll_share", "0.5", 0.5),
    ],
)
def test_good_values(name: str, text: str, value: object) -> None:
    assert getattr(load({name: text}, ROOT), name) == value


BAD = {
    "socket": ["run/copilot.sock", "/" + "x" * 107],
    "socket_mode": ["rw", "0060", "7777", "999"],
    "slurm_user": ["no such user", "a:b", "nobody-knows-me"],
    "listen": ["9817", "localhost:9817", "0.0.0.0", "0.0.0.0:65536", "0.0.0.0:-1"],
    "hooks_listen": ["0.0.0.0:9818", "10.0.0.1:9818", "on"],
    "hooks_token_file": ["/nonexistent/token"],
    "namespace": ["Upper", "-a", "a" * 64, "a/b"],
    "kubeconfig": ["/nonexistent/config"],
    "targets": ["pods", "statefulset,", "all"],
    "worker_label": ["=x", "a=b=c", "a b"],
    "scontrol": ["'unclosed", " "],
    "slurm_conf": ["slurm.conf"],
    "poll_quiet": ["0", "nan", "inf", "1e9", "soon"],
    "max_nodes": ["0", "1.5", "1000001", "0x10"],
    "free_early": ["maybe", "2"],
    "log_level": ["loud"],
    "log_format": ["xml"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_bad_value_is_named_with_where_it_stands_and_what_is_allowed(name: str, text: str) -> None:
    (row,) = [row for row in config.TABLE if row.name == name]
    with pytest.raises(ConfigError) as by_flag:
        load({name: text}, ROOT if name != "slurm_user" else {})
    with pytest.raises(ConfigError) as by_variable:
        load({}, {**ROOT, row.variable: text})
    if name == "slurm_user" and re.fullmatch(r"[a-z-]+", text):
        assert "slurm_user='nobody-knows-me': this machine knows no such user" in str(by_flag.value)
    else:
        assert f"{row.flag}={text!r}: must be {row.check.allowed}" in str(by_flag.value)
        assert f"{row.variable}={text!r}: must be {row.check.allowed}" in str(by_variable.value)


def test_all_bad_values_are_named_at_once_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"poll_fast": "x", "targets": "y"}, ROOT | {"COPILOT_LISTEN": "z", "COPILOT_HOOKS_LISTEN": "127.0.0.1:1"})
    text = str(caught.value)
    assert text.startswith("4 bad settings: ")
    assert "\n" not in text
    for part in ("--poll-fast='x'", "--targets='y'", "COPILOT_LISTEN='z'", "needs hooks_token_file"):
        assert part in text


def test_polls_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="poll_fast, poll_active and poll_quiet"):
        load({"poll_fast": "2"}, ROOT)


def test_foreign_variables_are_obeyed_last(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.touch()
    theirs.touch()
    outside = ROOT | {"SLURM_CONF": "/etc/slurm/slurm.conf", "KUBECONFIG": str(theirs)}
    assert load({}, outside).slurm_conf == "/etc/slurm/slurm.conf"
    assert load({}, outside).kubeconfig == theirs
    assert load({}, outside | {"COPILOT_KUBECONFIG": str(ours)}).kubeconfig == ours
    in_pod = outside | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert load({}, in_pod).kubeconfig is None, "in a pod its service account comes before KUBECONFIG"
    assert load({"kubeconfig": str(ours)}, in_pod).kubeconfig == ours


def test_slurm_user_by_name_or_number() -> None:
    assert Settings(slurm_user="nobody").slurm_uid == pwd.getpwnam("nobody").pw_uid
    assert Settings(slurm_user="12345").slurm_uid == 12345


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().poll_quiet = 1  # type: ignore[misc]


def test_help_and_reference_tell_every_setting_completely() -> None:
    parser = argparse.ArgumentParser(formatter_class=lambda prog: argparse.HelpFormatter(prog, width=1000))
    config.add_arguments(parser)
    told = parser.format_help()
    lines = config.reference().splitlines()
    assert len(lines) == 2 + len(config.TABLE)
    for row, line in zip(config.TABLE, lines[2:], strict=True):
        assert f"{row.help} ({row.check.allowed}) [{row.variable}; default " in told
        assert line.startswith(f"| {row.name} | `{row.flag}` | `{row.variable}` | ")
        assert line.endswith(f"| {row.check.allowed} | {row.help} |")


def test_misspelt_variables_are_found_and_those_of_a_service_are_not() -> None:
    environ = {
        "COPILOT_SOKET": "1",
        "COPILOT_PORT": "tcp://10.0.0.1:9817",
        "COPILOT_SERVICE_HOST": "10.0.0.1",
        "COPILOT_SOCKET": "/s",
    }
    assert config.misspelt(environ) == {"COPILOT_SOKET": "COPILOT_SOCKET"}


def test_targets_are_the_kinds_of_the_model() -> None:
    assert set(config.TARGETS) == set(Kind)

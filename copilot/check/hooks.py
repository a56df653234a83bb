"""The hooks: whether slurmctld will run them, and whether they will reach the copilot."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from copilot.check.finding import Finding, error, ok, warning
from copilot.check.slurm_conf import value_of
from copilot.config import Settings
from copilot.unixhttp import ask

PROGRAMS = ("ResumeProgram", "SuspendProgram", "ResumeFailProgram", "PrologSlurmctld")
# Hooks have no PATH; their shell falls back to a usual one.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Who:
    """SlurmUser: its number and all of its groups."""

    uid: int
    gid: int
    groups: frozenset[int]


def slurm_user(settings: Settings) -> Who:
    """Groups are those that this machine knows; a bare number has none but itself."""
    uid = settings.slurm_uid
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Who(uid, uid, frozenset({uid}))
    return Who(uid, entry.pw_gid, frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid)))


def judge(conf: Mapping[str, str], settings: Settings) -> list[Finding]:
    """Files, curl, socket, and one round trip that changes nothing."""
    who = slurm_user(settings)
    files = {value.split()[0] for key in PROGRAMS if (value := value_of(conf, key))}
    found = [file(Path(path), who) for path in sorted(files)]
    curl = shutil.which("curl", path=_PATH)
    cure = "install curl in the image of slurmctld"
    found.append(ok("curl", curl) if curl else error("curl", f"no curl in {_PATH}", "the hooks cannot post anything", cure))
    return [*found, round_trip(settings.socket, who)]


def file(path: Path, who: Who) -> Finding:
    """slurmctld turns power saving off for a hook that it may not run, or that others may write."""
    name = "hook_file"
    try:
        mode = path.stat()
    except OSError as problem:
        why = "slurmctld turns power saving off; it may be in another container's file system only"
        return warning(name, f"{path}: {problem.strerror}", why, "run this check in slurmctld's container, or correct the path")
    if mode.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "slurmctld turns power saving off for a program that others may write"
        return error(
            name,
            f"{path} has mode {stat.S_IMODE(mode.st_mode):04o}",
            why,
            f"chmod go-w {path} (of a ConfigMap: defaultMode: 0555)",
        )
    if not _may(mode, who, 0o5):
        why = "SlurmUser cannot run it, so power saving is off"
        return error(name, f"{path} has mode {stat.S_IMODE(mode.st_mode):04o}", why, f"chmod a+rx {path}")
    for folder in path.parents:
        if not _may(folder.stat(), who, 0o1):
            return error(
                name, f"{folder} is closed to SlurmUser", f"it cannot run {path}, so power saving is off", f"chmod a+x {folder}"
            )
    return ok(name, f"{path} can be run by SlurmUser, and written by its owner only")


def _may(mode: os.stat_result, who: Who, wanted: int) -> bool:
    """`wanted` are the bits of one digit of a mode: 4 to read, 1 to run or to pass through."""
    if who.uid == 0:
        return stat.S_ISDIR(mode.st_mode) or bool(mode.st_mode & 0o111)
    shift = 6 if mode.st_uid == who.uid else 3 if mode.st_gid in who.groups else 0
    return (mode.st_mode >> shift) & wanted == wanted


def round_trip(socket: Path, who: Who) -> Finding:
    """Asks as SlurmUser, where this process is root and may; the answer shows that the hooks will be obeyed."""
    name = "hook_socket"
    why = "the hooks' requests are lost; the copilot then finds the nodes only at its next look at Slurm"
    try:
        with _as_user(who):
            code, body = ask(str(socket), "/v1/nodes")
    except (OSError, ValueError) as problem:
        return error(
            name, f"{socket}: {problem}", why, "start the copilot; mount the socket's folder into slurmctld's container too"
        )
    if code != 200:
        return error(
            name,
            f"{socket} answers {code}: {body.get('error', '')}",
            why,
            f"give the copilot the SlurmUser of slurm.conf (uid {who.uid})",
        )
    return ok(name, f"{socket} answers SlurmUser ({_user_name(who.uid)})")


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@contextmanager
def _as_user(who: Who) -> Iterator[None]:
    """The socket's server sees the effective user. Only root can become another; anybody else asks as what they are."""
    if os.geteuid() != 0 or who.uid == 0:
        yield
        return
    groups = os.getgroups()
    os.setgroups(sorted(who.groups))
    os.setegid(who.gid)
    os.seteuid(who.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)

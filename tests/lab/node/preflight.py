"""Whether this machine can have the real node: asked in a second, answered with a sentence for each thing that is missing."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.lab.controlplane import cache
from tests.lab.node import cgroups
from tests.lab.node.layout import OUTSIDE_ADDRESS, POD_NETWORK, SERVICE_NETWORK, missing_programs

# What the node mounts over: a state folder or a program there would vanish.
_COVERED: Final = (Path("/run"), Path("/var/lib"), Path("/var/log"))
_SPACES: Final = ("--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--mount-proc", "--propagation", "private")
# One check a line: a command, and the sentence when it fails. Run in namespaces of their own, so nothing stays.
_CHECKS: Final = r"""
t() { local said; said=$("${@:2}" 2>&1) || printf '%s: %s\n' "$1" "${said//$'\n'/ }"; }
layers() { mkdir l u w m && mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m; }
forward() { echo 1 >/proc/sys/net/ipv4/ip_forward; }
nat() { printf 'table ip t {\n chain c { type nat hook postrouting priority 100; masquerade; }\n}\n' | nft -f -; }
tunable() { echo 1 >value && mount --bind value /proc/sys/vm/overcommit_memory; }
hierarchy() { mount -t sysfs s /sys && if [ "$1" ]; then mount -t cgroup2 c /sys/fs/cgroup; else mount -t cgroup -o pids c /sys/fs/cgroup; fi; }
t 'no overlay file system in the state folder' layers
t 'no veth network device' ip link add v0 type veth peer name v1
t 'no bridge network device' ip link add b0 type bridge
t 'no forwarding of packets in a network namespace' forward
t 'no nftables with address translation (kernel options NF_TABLES and NFT_NAT)' nat
t 'the values of /proc/sys cannot be covered by files' tunable
t 'no file system of control groups in a mount namespace' hierarchy "$1"
t '/dev/kmsg cannot be read, which kubelet does' head -c0 /dev/kmsg
"""


def missing(folder: Path) -> list[str]:
    """Empty when a node with its state in `folder` (made if need be) can be expected to start."""
    if os.geteuid() != 0:
        return ["only root can make the namespaces of a node"]
    programs = missing_programs()
    if programs:
        return programs
    return [*_namespaces(folder), *_control_groups(), *_taken_networks(), *_covered(folder)]


def _namespaces(folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    space = subprocess.run(["unshare", *_SPACES, "true"], capture_output=True, text=True)
    if space.returncode:
        return [f"this machine gives no namespaces: {space.stderr.strip()}"]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        argv = ["unshare", *_SPACES, "bash", "-c", _CHECKS, "checks", "2" if cgroups.unified() else ""]
        environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
        return subprocess.run(argv, cwd=scratch, capture_output=True, text=True, env=environment).stdout.splitlines()


def _control_groups() -> list[str]:
    token = f"try-{secrets.token_hex(4)}"
    try:
        cgroups.make(token)
    except OSError as error:
        return [f"no control groups can be made: {error}"]
    finally:
        left = cgroups.remove(token)
    return [f"control groups cannot be removed: {group}" for group in left]


def _taken_networks() -> list[str]:
    routes = json.loads(subprocess.run(["ip", "-j", "-4", "route"], capture_output=True, text=True, check=True).stdout or "[]")
    taken = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    wanted = [ipaddress.ip_network(net) for net in (f"{OUTSIDE_ADDRESS}/32", POD_NETWORK, SERVICE_NETWORK)]
    return [
        f"the network {net} is in use here ({route}), perhaps by another such node"
        for net in wanted
        for route in taken
        if net.overlaps(route)
    ]


def _covered(folder: Path) -> list[str]:
    named = {"the state folder": folder, "the cache of built programs": cache()}
    return [
        f"{what} is {path}, below {cover}, which is the node's own: choose another"
        for what, path in named.items()
        for cover in _COVERED
        if path.resolve().is_relative_to(cover)
    ]

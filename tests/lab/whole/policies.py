"""NetworkPolicies in effect on the node, whose network plugin knows none: rules of nftables for the pods that there are, made anew when those change.

What the manifests do not use is refused, not ignored.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from tests.lab.endpoint import Object
from tests.lab.node import State, inside, kubectl

_TABLE: Final = "inet policies"


@contextmanager
def enforced(node: State) -> Iterator[None]:
    """In effect within the block. A new pod is let through up to a second after it has its address: what is dropped until then is sent again."""
    ended = threading.Event()
    _put(node, text := _now(node))
    with ThreadPoolExecutor() as pool:
        keeping = pool.submit(_keep, node, text, ended)
        try:
            yield
        finally:
            ended.set()
            keeping.result()
            _nft(node, f"delete table {_TABLE}")


def rules(policies: Sequence[Object], pods: Sequence[Object]) -> str:
    """The table's lines: a pod that a policy selects gets what one of them lets in, answers, and nothing else."""
    lines: dict[str, list[str]] = {}
    for policy in policies:
        spec = policy["spec"]
        assert spec["policyTypes"] == ["Ingress"] and spec.keys() <= {"podSelector", "policyTypes", "ingress"}, spec
        for pod in pods:
            if _space(pod) == _space(policy) and _selects(spec["podSelector"], pod["metadata"]["labels"]):
                lines.setdefault(_address(pod), []).extend(_accepts(policy, pods))
    accepted = [f"ip daddr {address} {line} accept" for address, some in lines.items() for line in some]
    closed = [f"ip daddr {{ {', '.join(lines)} }} drop"] if lines else []
    chain = ["type filter hook forward priority 0; policy accept;", "ct state established,related accept", *accepted, *closed]
    return "\n".join(chain)


def _accepts(policy: Object, pods: Sequence[Object]) -> Iterator[str]:
    """What each of its rules lets in: from where, to which ports."""
    for rule in policy["spec"].get("ingress", ()):
        words = []
        if "from" in rule:
            chosen = {_address(pod) for pod in pods for peer in rule["from"] if _is_peer(peer, pod, _space(policy))}
            if not chosen:
                continue
            words.append(f"ip saddr {{ {', '.join(sorted(chosen))} }}")
        ports = [str(one["port"]) + (f"-{one['endPort']}" if "endPort" in one else "") for one in rule.get("ports", ())]
        assert all(
            one.keys() <= {"port", "endPort", "protocol"} and one.get("protocol") == "TCP" for one in rule.get("ports", ())
        ), rule
        if ports:
            words.append(f"tcp dport {{ {', '.join(ports)} }}")
        yield " ".join(words)


def _is_peer(peer: Object, pod: Object, space: str) -> bool:
    assert "podSelector" in peer and peer.keys() <= {"podSelector", "namespaceSelector"} and not peer.get("namespaceSelector"), (
        peer
    )
    return ("namespaceSelector" in peer or _space(pod) == space) and _selects(peer["podSelector"], pod["metadata"]["labels"])


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    expressions = selector.get("matchExpressions", ())
    assert all(one["operator"] == "In" for one in expressions), selector
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )


def _space(one: Object) -> str:
    return str(one["metadata"]["namespace"])


def _address(pod: Object) -> str:
    return str(pod["status"]["podIP"])


def _keep(node: State, text: str, ended: threading.Event) -> None:
    while not ended.wait(0.5):
        if (new := _now(node)) != text:
            _put(node, text := new)


def _now(node: State) -> str:
    """The rules for the policies and pods of this moment."""
    listed = json.loads(kubectl(node, "get", "networkpolicies,pods", "-A", "-o", "json"))["items"]
    pods = [one for one in listed if one["kind"] == "Pod" and one["status"].get("podIP") and not one["spec"].get("hostNetwork")]
    for pod in pods:
        pod["metadata"].setdefault("labels", {})
    return rules([one for one in listed if one["kind"] == "NetworkPolicy"], pods)


def _put(node: State, text: str) -> None:
    """In one transaction: there is no moment without rules."""
    _nft(node, f"table {_TABLE}\ndelete table {_TABLE}\ntable {_TABLE} {{\nchain forward {{\n{text}\n}}\n}}\n")


def _nft(node: State, text: str) -> None:
    done = subprocess.run(inside(node, "nft", "-f", "-"), input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\n{text}"

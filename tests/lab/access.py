"""Who may do what on the lab's API servers: kubeconfig files, and the copilot's own ServiceAccount with the Role that the manifests ship."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.lab.endpoint import Admin, resource


def write_kubeconfig(path: Path, url: str, ca_file: Path | None, token: str, namespace: str = "default") -> Path:
    """A kubeconfig file (JSON is YAML) for one user with a token."""
    cluster: dict[str, Any] = {"server": url}
    if ca_file is not None:
        cluster["certificate-authority"] = str(ca_file)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "user", "namespace": namespace}}],
        "current-context": "lab",
    }
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path


async def bind_role(admin: Admin, namespace: str, documents: list[dict[str, Any]]) -> str:
    """Creates or replaces a ServiceAccount, Role and RoleBinding in a namespace (made if need be) and returns a token of the account."""
    plurals = {
        "ServiceAccount": ("v1", "serviceaccounts"),
        "Role": ("rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
    }
    if not await admin.exists(resource("v1", "namespaces", name=namespace)):
        await admin.post(resource("v1", "namespaces"), {"metadata": {"name": namespace}})
    token, rules = "", []
    for document in documents:
        api, plural = plurals[document["kind"]]
        name = document["metadata"]["name"]
        document = {**document, "metadata": {"name": name, "namespace": namespace}}  # noqa: PLW2901 - the caller's stays as it is
        if "subjects" in document:
            document["subjects"] = [{**subject, "namespace": namespace} for subject in document["subjects"]]
        if await admin.exists(resource(api, plural, namespace, name)):
            await admin.put(resource(api, plural, namespace, name), document)
        else:
            await admin.post(resource(api, plural, namespace), document)
        if document["kind"] == "ServiceAccount":
            answer = await admin.post(resource(api, plural, namespace, name, "token"), {"spec": {"expirationSeconds": 3600}})
            token = answer["status"]["token"]
        rules += document.get("rules", [])
    await _in_effect(admin, token, namespace, rules)
    return token


async def _in_effect(admin: Admin, token: str, namespace: str, rules: list[dict[str, Any]]) -> None:
    """The authorizer learns of a role by watching, so for some milliseconds it forbids what has just been allowed."""
    question = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    async with Admin(admin.endpoint, token) as account, asyncio.timeout(20):
        while True:
            answer = await account.post(resource("authorization.k8s.io/v1", "selfsubjectrulesreviews"), question)
            known = answer["status"]["resourceRules"]
            if all(rule in known for rule in rules):
                return
            await asyncio.sleep(0.02)

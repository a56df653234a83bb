"""Status objects: what a client is told when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.contract.conftest import Api, pod, stateful_set, why
from tests.lab.endpoint import JSON_PATCH, Admin, ApiError, Object, resource

ROLE: dict[str, Object] = {
    "ServiceAccount": {},
    "Role": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]},
    "RoleBinding": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader"}],
    },
}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    documents = [{"kind": kind, "metadata": {"name": "reader"}, **body} for kind, body in ROLE.items()]
    versions = {"ServiceAccount": "v1"}
    documents = [{"apiVersion": versions.get(str(one["kind"]), "rbac.authorization.k8s.io/v1"), **one} for one in documents]
    path = tmp_path / "reader.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return path


async def test_missing_object_names_what_is_missing(api: Api) -> None:
    error = await api.refused("GET", api.pods("nope"))
    assert why(error) == (404, "NotFound")
    assert error.body["message"] == 'pods "nope" not found'
    assert error.body["details"] == {"name": "nope", "kind": "pods"}
    error = await api.refused("PATCH", api.sets("nope"), [], JSON_PATCH)
    assert error.body["message"] == 'statefulsets.apps "nope" not found'
    assert error.body["details"] == {"name": "nope", "group": "apps", "kind": "statefulsets"}


async def test_unknown_resource_of_a_known_group_is_a_status(api: Api) -> None:
    error = await api.refused("GET", api.path("apps/v1", "nonsense"))
    assert why(error) == (404, "NotFound")
    assert error.body["details"] == {}


async def test_absent_crd_is_plain_text(api: Api) -> None:
    """No Status object: a client that parses the body as JSON would stumble."""
    error = await api.refused("GET", api.path("absent.example.com/v1", "statefulsets"))
    assert error.status == 404
    assert error.body == {"message": "404 page not found\n"}
    assert error.headers["Content-Type"].startswith("text/plain")


async def test_unknown_token_is_401(api: Api) -> None:
    async with Admin(api.endpoint, token="not-a-token") as stranger:
        with pytest.raises(ApiError) as caught:
            await stranger.get(api.pods())
    assert why(caught.value) == (401, "Unauthorized")
    assert caught.value.body["message"] == "Unauthorized"


@pytest.mark.parametrize(
    ("verb", "plural", "name", "sub", "said"),
    [
        (
            "PATCH",
            "statefulsets",
            "w",
            "",
            'statefulsets.apps "w" is forbidden: User "{user}" cannot patch resource "statefulsets"',
        ),
        ("DELETE", "pods", "p", "", 'pods "p" is forbidden: User "{user}" cannot delete resource "pods"'),
        ("PUT", "pods", "p", "status", 'pods "p" is forbidden: User "{user}" cannot update resource "pods/status"'),
        ("POST", "pods", "", "", 'pods is forbidden: User "{user}" cannot create resource "pods"'),
    ],
)
async def test_what_no_role_grants_is_403_and_says_the_rule(
    api: Api, manifest: Path, verb: str, plural: str, name: str, sub: str, said: str
) -> None:
    token = await api.server.service_account(api.namespace, manifest)
    group = "apps" if plural == "statefulsets" else ""
    async with Admin(api.endpoint, token=token) as reader:
        assert await reader.list(api.pods()) == []
        with pytest.raises(ApiError) as caught:
            await reader.request(verb, api.path("apps/v1" if group else "v1", plural, name, sub), {})
    assert why(caught.value) == (403, "Forbidden")
    user = f"system:serviceaccount:{api.namespace}:reader"
    assert caught.value.body["message"] == f'{said.format(user=user)} in API group "{group}" in the namespace "{api.namespace}"'


async def test_a_role_does_not_reach_beyond_its_namespace(api: Api, manifest: Path) -> None:
    token = await api.server.service_account(api.namespace, manifest)
    async with Admin(api.endpoint, token=token) as reader:
        with pytest.raises(ApiError) as elsewhere:
            await reader.list(resource("v1", "pods", "default"))
        with pytest.raises(ApiError) as everywhere:
            await reader.list(resource("v1", "pods"))
        with pytest.raises(ApiError) as watching:
            await reader.get(api.pods(), watch="true")
    assert why(elsewhere.value) == why(everywhere.value) == why(watching.value) == (403, "Forbidden")
    assert everywhere.value.body["message"].endswith('in API group "" at the cluster scope')
    assert "cannot watch resource" in watching.value.body["message"]


async def test_create_refusals(api: Api) -> None:
    await api.admin.post(api.pods(), pod("p"))
    assert why(await api.refused("POST", api.pods(), pod("p"))) == (409, "AlreadyExists")
    invalid = await api.refused("POST", api.pods(), pod("Not_A_Name"))
    assert why(invalid) == (422, "Invalid")
    assert invalid.body["details"]["causes"][0]["field"] == "metadata.name"
    nowhere = await api.refused("POST", resource("v1", "pods", "no-such-namespace"), pod("p"))
    assert why(nowhere) == (404, "NotFound")
    assert nowhere.body["details"] == {"name": "no-such-namespace", "kind": "namespaces"}
    stray = pod("q")
    stray["metadata"]["namespace"] = "default"
    assert why(await api.refused("POST", api.pods(), stray)) == (400, "BadRequest")
    assert why(await api.refused("POST", api.pods(), {"kind": "Pod", "apiVersion": "v2", "metadata": {"name": "q"}})) == (
        400,
        "BadRequest",
    )
    assert why(await api.refused("POST", api.sets(), {**stateful_set("w"), "spec": {}})) == (422, "Invalid")


async def test_methods_and_subresources_that_are_not_there(api: Api) -> None:
    await api.admin.post(api.pods(), pod("p"))
    assert why(await api.refused("POST", api.pods("p"), {})) == (405, "MethodNotAllowed")
    assert why(await api.refused("PUT", api.pods(), {})) == (405, "MethodNotAllowed")
    assert why(await api.refused("POST", resource("v1", "pods"), pod("q"))) == (405, "MethodNotAllowed")
    assert why(await api.refused("GET", api.pods("p", "scale"))) == (404, "NotFound")


async def test_what_tells_that_the_server_is_there(api: Api) -> None:
    assert (await api.admin.get("/version"))["gitVersion"].startswith("v1.")
    assert await api.admin.get("/readyz") == {"message": "ok"}

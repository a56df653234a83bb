"""Bearer tokens and the rules of RBAC: who asks, and may he."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from tests.lab.embedded import status
from tests.lab.embedded.status import StatusError
from tests.lab.endpoint import Object

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, as authorization sees it."""

    verb: str
    group: str
    plural: str
    namespace: str
    name: str
    sub: str

    @property
    def resource(self) -> str:
        return f"{self.plural}/{self.sub}" if self.sub else self.plural


@dataclass(slots=True)
class User:
    """`rules` are pairs of a namespace ("" for every one) and a rule of a Role or ClusterRole."""

    name: str
    everything: bool = False
    rules: list[tuple[str, Object]] = field(default_factory=list)

    def may(self, ask: Ask) -> bool:
        return self.everything or any(place in ("", ask.namespace) and _allows(rule, ask) for place, rule in self.rules)


def _allows(rule: Object, ask: Ask) -> bool:
    names = rule.get("resourceNames") or []
    return (
        bool({"*", ask.verb} & set(rule.get("verbs") or []))
        and bool({"*", ask.group} & set(rule.get("apiGroups") or []))
        and bool({"*", ask.resource} & set(rule.get("resources") or []))
        and (not names or ask.name in names)
    )


class Access:
    """Users by token. The administrator may do everything; nobody else may do anything until a Role is granted."""

    def __init__(self) -> None:
        self.admin_token = secrets.token_urlsafe(16)
        self._users = {self.admin_token: User("admin", everything=True)}

    def service_account(self, name: str, namespace: str, *roles: Object) -> str:
        """A new token for the ServiceAccount with these Roles (in its namespace) and ClusterRoles (everywhere)."""
        token = secrets.token_urlsafe(16)
        self._users[token] = User(f"system:serviceaccount:{namespace}:{name}")
        for role in roles:
            self.grant(token, role, namespace)
        return token

    def grant(self, token: str, role: Object, namespace: str) -> None:
        place = "" if role.get("kind") == "ClusterRole" else namespace
        self._users[token].rules += [(place, rule) for rule in role.get("rules") or []]

    def revoke(self, token: str) -> None:
        """The token is unknown from now on: 401."""
        del self._users[token]

    def who(self, authorization: str) -> User:
        """StatusError 401 for a token that is not known; without any the caller is anonymous and may do nothing."""
        scheme, _, token = authorization.partition(" ")
        if not authorization:
            return User("system:anonymous")
        if scheme.lower() != "bearer" or token.strip() not in self._users:
            raise status.unauthorized()
        return self._users[token.strip()]


def verb_of(method: str, name: str, watching: bool) -> str:
    if method in _VERBS:
        return _VERBS[method]
    if watching:
        return "watch"
    return "get" if name else "list"


def forbidden(user: User, ask: Ask) -> StatusError:
    what = status.qualified(ask.group, ask.plural) + (f' "{ask.name}"' if ask.name else "")
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{user.name}" cannot {ask.verb} resource "{ask.resource}" in API group "{ask.group}" {where}'
    )
    details = {key: value for key, value in (("name", ask.name), ("group", ask.group), ("kind", ask.plural)) if value}
    return StatusError(403, "Forbidden", message, details)

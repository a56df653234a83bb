"""The three patch types on plain JSON values. Each returns a new object and leaves the old one alone."""

from __future__ import annotations

import copy
from typing import Any

from tests.lab.embedded import status
from tests.lab.endpoint import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Object

# Which field names an element of a list, in the order of the path's last word; all other lists are replaced whole.
_MERGE_KEYS = {"conditions": "type", "containers": "name", "initContainers": "name", "ownerReferences": "uid", "podIPs": "ip"}
_GO_NAMES = {list: "array", dict: "object", str: "string", int: "number", float: "number", bool: "bool"}


def apply(content_type: str, old: Object, patch: Any) -> Object:
    """The patched copy of `old`. StatusError 400 for a patch of the wrong form, 422 for one that does not apply."""
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise status.bad_request(
                f"error decoding patch: json: cannot unmarshal {_GO_NAMES[type(patch)]} into Go value of type []handlers.jsonPatchOp"
            )
        return _json_patch(old, patch)
    if not isinstance(patch, dict):
        raise status.bad_request(
            f"error decoding patch: json: cannot unmarshal {_GO_NAMES[type(patch)]} into Go value of type map[string]interface {{}}"
        )
    assert content_type in (MERGE_PATCH, STRATEGIC_PATCH)
    merged = _merge(copy.deepcopy(old), patch, strategic=content_type == STRATEGIC_PATCH)
    assert isinstance(merged, dict)
    return merged


def _merge(old: Any, patch: Any, strategic: bool) -> Any:
    """RFC 7386; strategically, lists with a known key are merged element by element."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = old if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif strategic and key in _MERGE_KEYS and isinstance(value, list):
            result[key] = _merge_list(result.get(key) or [], value, _MERGE_KEYS[key])
        else:
            result[key] = _merge(result.get(key), value, strategic)
    return result


def _merge_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [copy.deepcopy(element) for element in patch if "$patch" not in element]
    result = list(old)
    for element in patch:
        place = next((i for i, present in enumerate(result) if present.get(key) == element.get(key)), None)
        if element.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(copy.deepcopy(element))
        else:
            result[place] = _merge(result[place], element, strategic=True)
    return result


def _json_patch(old: Object, operations: list[Any]) -> Object:
    document: Any = copy.deepcopy(old)
    for operation in operations:
        try:
            document = _operate(document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise status.patch_failed() from error
    assert isinstance(document, dict)
    return document


def _operate(document: Any, operation: Any) -> Any:
    """One operation of RFC 6902, with the two liberties of the server's library.

    A `test` against null holds for a member that is not there, and `replace` creates a missing member.
    """
    verb, path = operation["op"], _pointer(operation["path"])
    if verb == "test":
        if not _same(_look(document, path), operation.get("value")):
            raise ValueError("test failed")
        return document
    if verb in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(_look(document, source))
        return _put(_remove(document, source) if verb == "move" else document, path, value, insert=True)
    if verb == "remove":
        return _remove(document, path)
    if verb in ("add", "replace"):
        return _put(document, path, copy.deepcopy(operation["value"]), insert=verb == "add")
    raise ValueError(f"unknown operation {verb}")


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise ValueError("a JSON pointer begins with /")
    return [word.replace("~1", "/").replace("~0", "~") for word in path.split("/")[1:]]


def _parent(document: Any, path: list[str]) -> Any:
    for word in path[:-1]:
        document = document[_index(document, word)] if isinstance(document, list) else document[word]
    if not isinstance(document, (dict, list)):
        raise TypeError("the parent is neither an object nor a list")
    return document


def _index(container: list[Any], word: str) -> int:
    if not word.isdigit() or (len(word) > 1 and word[0] == "0") or int(word) >= len(container):
        raise IndexError(word)
    return int(word)


def _look(document: Any, path: list[str]) -> Any:
    if not path:
        return document
    parent = _parent(document, path)
    return parent[_index(parent, path[-1])] if isinstance(parent, list) else parent.get(path[-1])


def _put(document: Any, path: list[str], value: Any, insert: bool) -> Any:
    if not path:
        return value
    parent = _parent(document, path)
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif not insert:
        parent[_index(parent, path[-1])] = value
    elif path[-1] == "-" or path[-1] == str(len(parent)):
        parent.append(value)
    else:
        parent.insert(_index(parent, path[-1]), value)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    parent = _parent(document, path)
    del parent[_index(parent, path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: Python alone would take `true` for 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)

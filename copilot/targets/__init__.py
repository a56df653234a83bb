"""How each kind of worker group says "these nodes": pure functions between objects as the API returns them and sets of indexes.

What is wanted is always a set; replicas and lists are computed from it anew, so saying the same thing twice changes nothing.
"""

from copilot.targets.kinds import HOLD, ordered, patch, read, says
from copilot.targets.names import MAX_INDEX, collection, involved, path, resource, split_node

__all__ = ["HOLD", "MAX_INDEX", "collection", "involved", "ordered", "patch", "path", "read", "resource", "says", "split_node"]

"""All that the copilot does with a Kubernetes API server, and the only place that knows the client library."""

from copilot.kube.client import Kube
from copilot.kube.errors import Conflict, KubeError, NotConfigured, Refused, Unavailable
from copilot.kube.reflector import Reflector, State
from copilot.kube.selection import Selection

__all__ = ["Conflict", "Kube", "KubeError", "NotConfigured", "Reflector", "Refused", "Selection", "State", "Unavailable"]

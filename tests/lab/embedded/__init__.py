"""An API server in one Python process: what the copilot, the lab's controllers and the tests use of Kubernetes, and faults at will.

Its answers were recorded from kube-apiserver 1.36.3; tests/contract asks the same questions of both. Where they differ the real one is right.
"""

from tests.lab.embedded.faults import Action, Fault, Faults
from tests.lab.embedded.server import EmbeddedServer, Request

__all__ = ["Action", "EmbeddedServer", "Fault", "Faults", "Request"]

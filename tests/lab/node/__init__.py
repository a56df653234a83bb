"""A real one-node Kubernetes: etcd, control plane, containerd, kubelet, kube-proxy, CoreDNS, all in namespaces that end together.

`Node` is what tests use; `python -m tests.lab.node up FOLDER` gives one that outlives the command.
"""

from tests.lab.node.layout import State
from tests.lab.node.outside import Node, endpoint, import_image, inside, kubectl
from tests.lab.node.preflight import missing

__all__ = ["Node", "State", "endpoint", "import_image", "inside", "kubectl", "missing"]

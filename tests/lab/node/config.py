"""The configuration of containerd, kubelet, kube-proxy and the pods' network, each for a node that must not touch its machine.

Measured on Linux 6.18 with control groups of version 1 and without CAP_SYS_RESOURCE; each line that is there for such a machine says so.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.lab.endpoint import Object
from tests.lab.node.layout import (
    CNI_PLUGINS,
    CONTAINERD_SOCKET,
    DNS_ADDRESS,
    DNS_DOMAIN,
    PAUSE_IMAGE,
    POD_NETWORK,
    RUN,
    State,
    need,
)


def write(state: State) -> None:
    """All files, into the state folder."""
    (state.folder / "cni").mkdir(exist_ok=True)
    (state.folder / "cni/lab.conflist").write_text(json.dumps(_network()))
    (state.folder / "containerd.toml").write_text(_containerd(state.folder))
    (state.folder / "kubelet.json").write_text(json.dumps(_kubelet(state)))
    (state.folder / "kube-proxy.json").write_text(json.dumps(_proxy(state)))
    (state.folder / "resolv.conf").write_text("")


def _network() -> Object:
    ranges = [[{"subnet": POD_NETWORK}]]
    addresses = {"type": "host-local", "dataDir": str(RUN / "addresses"), "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    # hairpinMode: a pod may reach itself through its Service.
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}


def _containerd(folder: Path) -> str:
    # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower a score, and every sandbox would fail.
    # netns_mounts_under_state_dir: so that the pods' namespaces are mounted in the node's private /run.
    return f"""\
version = 2
root = "{folder}/containerd"
state = "{RUN}/containerd"
oom_score = 0
disabled_plugins = [{", ".join(f'"io.containerd.{name}"' for name in _UNUSED)}]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[ttrpc]
  address = "{CONTAINERD_SOCKET}.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  enable_selinux = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{need("runc")}"
"""


_UNUSED = (
    "internal.v1.opt",
    "snapshotter.v1.aufs",
    "snapshotter.v1.btrfs",
    "snapshotter.v1.devmapper",
    "snapshotter.v1.zfs",
    "tracing.processor.v1.otlp",
)


def _kubelet(state: State) -> Object:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(state.plane / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(state.plane / "kubelet.crt"),
        "tlsPrivateKeyFile": str(state.plane / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # With the files that tests/lab/node/space shows it instead of the machine's values, it changes none.
        "protectKernelDefaults": True,
        "oomScoreAdj": 0,
        "clusterDomain": DNS_DOMAIN,
        "clusterDNS": [DNS_ADDRESS],
        "resolvConf": str(state.folder / "resolv.conf"),
        # Disks of test machines are full more often than not; nobody's images may be collected for that.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "nodeStatusUpdateFrequency": "5s",
        "healthzBindAddress": "127.0.0.1",
        "podLogsDir": str(state.folder / "pod-logs"),
        "maxPods": 110,
        "enforceNodeAllocatable": ["pods"],
        # The defaults (50 and 100) would be what 20 pods at once wait for.
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "serializeImagePulls": False,
    }


def _proxy(state: State) -> Object:
    untouched = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(state.plane / "kube-proxy.kubeconfig")},
        "clusterCIDR": POD_NETWORK,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": untouched,
        "oomScoreAdj": 0,
        # A changed Service is there at once, not after a second.
        "nftables": {"minSyncPeriod": "0.05s"},
    }

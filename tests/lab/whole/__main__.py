"""`python -m tests.lab.whole up|down [FOLDER]`: the whole cluster on this machine, as `make cluster` and `make cluster-down` have it.

Everything is in namespaces of the node's own but a veth and two routes, by which this machine reaches pods and Services. `down` ends
all of it and removes FOLDER (default: in the cache), the cluster's data included.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.lab.controlplane import TREE, cache
from tests.lab.node import State, missing
from tests.lab.node.layout import need
from tests.lab.whole import overlay
from tests.lab.whole.steps import fill, step

_INSTALL: Final = TREE / "tests/lab/install"


def up(folder: Path) -> int:
    """Exit code 77 with the reasons where this machine cannot have it."""
    begin = time.monotonic()
    if code := _install():
        return code
    state = State(folder)
    if state.ready.exists():
        print(
            f"==> the node in {folder} runs already: it gets what is new of images and manifests; pods that run keep their image",
            flush=True,
        )
    else:
        if why := missing(folder):
            print("\n".join(why), file=sys.stderr)
            return 77
        with step("starting etcd, the control plane, containerd, the kubelet, kube-proxy and CoreDNS"):
            subprocess.run([sys.executable, "-m", "tests.lab.node", "up", str(folder)], check=True, stdout=subprocess.DEVNULL)
    fill(state)
    _tell(state)
    print(f"\nAll in {time.monotonic() - begin:.0f} s. `make cluster-down` removes it.")
    return 0


def _install() -> int:
    """Exit code of what failed. Beside the compilers, because dpkg and the network leave a core idle most of the time."""
    with (
        step(
            "installing a Kubernetes node and OpenKruise (cold: 13 minutes, built from source), beside it the images (cold: 4 minutes)"
        ),
        ThreadPoolExecutor() as pool,
    ):
        parts = pool.submit(lambda: subprocess.run([_INSTALL, "node", "kruise"]).returncode)
        code = subprocess.run([_INSTALL, "image-tools"]).returncode
        if not code:
            overlay.archives()
        return code or parts.result()


def down(folder: Path) -> int:
    """Harmless where nothing runs."""
    code = 0
    if folder.exists():
        code = subprocess.run([sys.executable, "-m", "tests.lab.node", "down", str(folder)]).returncode
        shutil.rmtree(folder)
    return code


def _tell(state: State) -> None:
    user = _first_user(state)
    kubectl = f"{need('kubectl')} --kubeconfig={state.kubeconfig}"
    ssh, page = overlay.address(state, "login"), overlay.address(state, "phpldapadmin")
    print(f"""
The cluster is ready.

Log in           ssh {user.name}@{ssh}        password: {user.password}
                 (or from elsewhere: {kubectl} -n slurm port-forward service/login 2222:22)
To try           sbatch -N3 --wrap 'srun hostname'; squeue; sinfo
                 any three of an OpenKruise set: sbatch -p sparse -w 'sparse-[2,5,7]' --wrap 'srun hostname'
                 sacct -a; ls -l ~
Users            http://{page}/    as cn=admin,{overlay.BASE}; its password:
                 {kubectl} -n slurm get secret ldap-admin -o go-template='{{{{.data.password | base64decode}}}}'
Kubernetes       {kubectl} -n slurm get pods -w
The copilot      {kubectl} -n slurm logs head-0 -c copilot -f""")


def _first_user(state: State) -> overlay.User:
    """Made at the first start; his password is kept in the state folder."""
    kept = state.folder / "ada.password"
    if kept.exists():
        return overlay.User("ada", 20001, kept.read_text())
    user = overlay.new_user("ada", 20001)
    with step("adding the user ada to the directory"):
        overlay.directory(state, "ldapadd", user.entries())
    kept.touch(mode=0o600)
    kept.write_text(user.password)
    return user


def main(argv: list[str]) -> int:
    folder = Path(argv[1]).resolve() if len(argv) > 1 else cache() / "cluster"
    if not argv or argv[0] not in ("up", "down"):
        print(__doc__, file=sys.stderr)
        return 2
    return up(folder) if argv[0] == "up" else down(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

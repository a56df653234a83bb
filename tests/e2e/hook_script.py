"""Another script in the place of one of slurmctld's hooks, for a while: calls that are lost, doubled, split or wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.cluster import Cluster

# slurmctld 22.05 gives a hook no descriptors and almost no environment.
_HEAD = "#!/bin/bash\nexec </dev/null >/dev/null 2>&1\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"


@contextmanager
def instead(lab: Cluster, name: str, body: str) -> Iterator[None]:
    """slurmctld runs `body` (bash) instead of its hook `name`; the hook itself is `"$real"` meanwhile, the hostlist `"$1"`."""
    script = lab.slurm.folder / "hooks" / name
    real = script.with_name(f"real-{name}")
    script.rename(real)
    try:
        # A new file under the name: one that is being run must not change, and slurmctld refuses one that others may write.
        script.write_text(f"{_HEAD}real={real}\n{body}\n")
        script.chmod(0o755)
        yield
    finally:
        real.replace(script)

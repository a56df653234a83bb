"""A real Prometheus scrapes the copilot of the running cluster at the place that components/monitoring-plain and components/monitoring name.

Debian's Prometheus is built without discovery by Kubernetes, so what its Helm chart and the operator do with annotations and with a
PodMonitor is done here: they are read from the pod as it runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.whole import Whole
from tests.lab.endpoint import Object
from tests.lab.prometheus import Prometheus, missing

COMPONENTS = Path(__file__).parents[2] / "manifests/components"


def annotated(whole: Whole) -> list[str]:
    """address:port/path of every pod that asks to be scraped by its annotations."""
    found = []
    for pod in whole.pods():
        said = pod["metadata"].get("annotations") or {}
        if said.get("prometheus.io/scrape") == "true":
            found.append(f"{pod['status']['podIP']}:{said['prometheus.io/port']}{said['prometheus.io/path']}")
    return found


def monitored(whole: Whole) -> list[str]:
    """The same by the PodMonitor: its labels choose the pods, its port's name the container's port."""
    monitor: Object = yaml.safe_load((COMPONENTS / "monitoring/podmonitor.yaml").read_text())["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    return [
        f"{pod['status']['podIP']}:{port['containerPort']}{endpoint['path']}"
        for pod in whole.pods()
        if wanted <= pod["metadata"]["labels"].items()
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port.get("name") == endpoint["port"]
    ]


async def test_the_copilot_is_scraped_where_both_components_say(whole: Whole, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    [place] = annotated(whole)
    assert monitored(whole) == [place]
    address, _, path = place.partition("/")
    assert path == "metrics"
    prometheus = Prometheus(tmp_path, COMPONENTS / "monitoring/rules.yaml")
    await prometheus.start()
    try:
        prometheus.scrape(address)
        await prometheus.until("up == 1", 90)
        await prometheus.until("slurm_copilot_build_info")
        replicas = await prometheus.query('slurm_copilot_replicas{kind="wanted"}')
        assert {"cpu", "sparse"} <= {sample["metric"]["group"] for sample in replicas}
        assert await prometheus.firing() == {}
    finally:
        await prometheus.component.stop()

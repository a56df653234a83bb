"""A real Prometheus finds the copilot of the running cluster by the annotations that components/monitoring-plain ships, and scrapes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.whole import Whole
from tests.lab.prometheus import Prometheus, missing
from tests.lab.whole.overlay import NAMESPACE

RULES = Path(__file__).parents[2] / "manifests/components/monitoring/rules.yaml"
_META = "__meta_kubernetes_pod"


def by_annotations(kubeconfig: Path) -> dict[str, Any]:
    """What Prometheus' Helm chart does with pods: the annotations tell whether, on which port, and under which path."""
    return {
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig), "namespaces": {"names": [NAMESPACE]}}],
        "relabel_configs": [
            {"source_labels": [f"{_META}_annotation_prometheus_io_scrape"], "regex": "true", "action": "keep"},
            {"source_labels": [f"{_META}_annotation_prometheus_io_path"], "regex": "(.+)", "target_label": "__metrics_path__"},
            {
                "source_labels": [f"{_META}_ip", f"{_META}_annotation_prometheus_io_port"],
                "separator": ":",
                "target_label": "__address__",
            },
            {"source_labels": [f"{_META}_name"], "target_label": "pod"},
        ],
    }


async def test_the_copilot_is_found_and_scraped(whole: Whole, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    prometheus = Prometheus(tmp_path, RULES, discovery=[by_annotations(whole.node.kubeconfig)])
    await prometheus.start()
    try:
        await prometheus.until('up{pod="head-0"} == 1', 90)
        await prometheus.until("slurm_copilot_build_info")
        replicas = await prometheus.query('slurm_copilot_replicas{kind="wanted"}')
        groups = {sample["metric"]["group"] for sample in replicas}
        assert {"cpu", "sparse"} <= groups
        # nothing else is annotated, and one pod is one target however many ports it has
        assert len(await prometheus.query("up")) == 1
    finally:
        await prometheus.component.stop()

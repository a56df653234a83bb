"""The whole cluster on the real node: the product's images, OpenKruise and manifests/overlays/demo. `python -m tests.lab.whole up|down`."""

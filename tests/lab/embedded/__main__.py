"""`python -m tests.lab.embedded --port 8001 --kubeconfig FILE`: the embedded API server by itself, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from pathlib import Path

from tests.lab.embedded.server import EmbeddedServer


async def serve(host: str, port: int, kubeconfig: Path) -> None:
    server = EmbeddedServer(kubeconfig.parent, host=host, port=port)
    ended = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, ended.set)
    async with server:
        server.endpoint.kubeconfig_path.replace(kubeconfig)
        print(json.dumps({"url": server.endpoint.url, "kubeconfig": str(kubeconfig)}), flush=True)
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.embedded", description="an API server for demos and tests")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen at (default: any free one)")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="where the administrator's kubeconfig is written")
    given = parser.parse_args()
    asyncio.run(serve(given.host, given.port, given.kubeconfig))


if __name__ == "__main__":
    main()

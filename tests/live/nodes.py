"""A NATS cluster of three servers on loopback, any of which can be killed and started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from functools import partial
from pathlib import Path

from services.runtime.embedded import MAX_PAYLOAD_BYTES, find_binary
from services.runtime.inbox import Inbox
from services.runtime.lifeline import end_with_parent
from services.runtime.pull import request

_CONFIGURATION = """\
server_name: {name}
listen: "127.0.0.1:{port}"
max_payload: {max_payload}
jetstream {{ store_dir: {store}, sync_interval: always }}
cluster {{ name: three, listen: "127.0.0.1:{route}", routes: [{routes}] }}
"""


class Nodes:
    """Three servers; each has its own store under the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: tuple[str, ...] = ("one", "two", "three")
        ports = _free_ports(6)
        self._ports: dict[str, int] = dict(zip(self.names, ports[:3], strict=True))
        self._routes: dict[str, int] = dict(zip(self.names, ports[3:], strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: One for each; and together, as settings have them.
        self.urls = [f"nats://127.0.0.1:{port}" for port in ports[:3]]
        self.url = ",".join(self.urls)

    def start(self) -> None:
        """Start those that do not run; they find each other by and by."""
        for name in self.names:
            if name not in self._processes:
                self._processes[name] = self._started(name)

    def stop(self) -> None:
        """End all of them."""
        for name in tuple(self._processes):
            self.kill(name)

    def kill(self, name: str) -> None:
        """End one without a chance to finish anything."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self._routes.values())
        configuration = folder / "server.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                name=name,
                port=self._ports[name],
                route=self._routes[name],
                routes=routes,
                store=json.dumps(str(folder / "jetstream")),
                max_payload=MAX_PAYLOAD_BYTES,
            )
        )
        with (folder / "server.log").open("ab") as output:
            return subprocess.Popen(
                [find_binary(), "-c", configuration],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - no threads
            )


async def leader_of(inbox: Inbox, stream: str) -> str:
    """The server that leads a stream; empty while none does."""
    info = await request(inbox, f"STREAM.INFO.{stream}")
    return str(info["cluster"].get("leader", ""))


async def all_current(inbox: Inbox, stream: str) -> bool:
    """Whether all replicas of a stream hold all of it."""
    info = await request(inbox, f"STREAM.INFO.{stream}")
    replicas = info["cluster"].get("replicas") or []
    return len(replicas) == 2 and all(replica["current"] for replica in replicas)


def _free_ports(count: int) -> list[int]:
    """Ports that are free at this moment; all are taken at once, so that no two are the same."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports

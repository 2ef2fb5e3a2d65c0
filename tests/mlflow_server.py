"""MLflow's own server on loopback, which knows nothing at first: a program that TWOFOLD_MLFLOW names."""

import os
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from twofold.live.processes import free_port

PROGRAM = "TWOFOLD_MLFLOW"
START_S = 300.0  # it makes its database first, beside others on two cores


@dataclass
class MlflowServer:
    """One server; its rows are in a file of its folder, and are there again when it is started again."""

    folder: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> "MlflowServer":
        """Returns when it answers."""
        program = os.environ.get(PROGRAM, "")
        if not program:
            pytest.skip(f"no server of MLflow's in {PROGRAM}: `make test-mlflow`")
        rows = ("--backend-store-uri", f"sqlite:///{self.folder}/server.db", "--no-serve-artifacts")
        place = ("--host", "127.0.0.1", "--port", str(self.port), "--workers", "1")
        command = [Path(program).resolve(), "server", *rows, *place, *self.options]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", **self.environment},
            )
        until_s = time.monotonic() + START_S
        while not self._answers():
            said = (self.folder / "server.log").read_text("utf-8", "replace")[-3000:]
            assert self._process.poll() is None and time.monotonic() < until_s, said
            time.sleep(0.2)
        return self

    def kill(self) -> None:
        """At once, with what it started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.url, registry_uri=self.url)

    def forget(self) -> str:
        """Its address, now that no model is known to it any more."""
        client = self.client()
        for each in client.search_registered_models():
            client.delete_registered_model(each.name)
        return self.url

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

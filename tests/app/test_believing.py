"""A service that runs hears of a calibration: its gate believes it, and its gateway is the same process."""

import csv
import sys
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs the extra [live]: `make extras`")
pytest.importorskip("aiohttp", reason="needs the extra [live]: `make extras`")

from tests.live.test_controller import STUB, Served, ask, until
from tests.measure.test_calibration import inference_rows, measured
from twofold.app.gates import served_gate
from twofold.app.measured_rows import calibrate
from twofold.catalog.catalog import load_catalog
from twofold.core.data import to_data
from twofold.live.control import trials
from twofold.live.control.admin_client import gateway_state
from twofold.live.control.engines import EngineSettings
from twofold.live.control.service import ServiceSettings
from twofold.live.control.supervisor import bring_down, bring_up
from twofold.live.gateway.replays import read_gate_log
from twofold.live.processes import free_port
from twofold.perf.constants import load_constants

DAY = date(2026, 11, 1)
SPEC = """\
model: llama-3.1-70b
serving:
  on: 1x8xH100-SXM
  classes:
    chat:
      traffic: {rate: 1 /s, input: 500 tok, output: 100 tok}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
"""


def slow_rows(path: Path) -> Path:
    """Of machines whose memory gives two thirds of what ours are taken to give."""
    rows = measured(inference_rows(24), "inference", load_catalog(), load_constants(), memory_bandwidth=0.66)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def test_the_gate_believes_a_calibration_once_it_is_written_and_no_request_is_cut(tmp_path: Path) -> None:
    spec, state, program = tmp_path / "twofold.yaml", tmp_path / ".twofold", tmp_path / "stub"
    spec.write_text(SPEC, "utf-8")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB} "$@"\n')
    program.chmod(0o755)
    gate = served_gate(spec, 9, DAY)
    beliefs = gate.built.beliefs
    settings = ServiceSettings(
        EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=str(program)),
        1,
        gate.in_flight_limit,
        free_port(),
        beliefs.input_token_s,
        beliefs.output_token_s,
        gate.built.settings,
        first_token_s=beliefs.first_token_s,
        gate_digest=gate.built.digest,
    )
    service = Served(state, settings, tmp_path / "orders")
    try:
        bring_up(settings, state)
        before = service.process("gateway")
        said = calibrate(slow_rows(tmp_path / "rows.csv"), state / "calibration.json", DAY)
        after = served_gate(spec, 9, DAY).built.beliefs
        assert after.output_token_s > 1.2 * beliefs.output_token_s and "told" in said.lines[-1]

        def believed() -> bool:
            assert ask(service.url) == 200
            return (gateway_state(state) or {}).get("beliefs") == to_data(after)

        until(believed, service.happened)
        assert service.process("gateway") == before
        until(lambda: any("was calibrated" in each for each in service.happened()), service.happened)
        again = calibrate(tmp_path / "rows.csv", state / "calibration.json", DAY)
        assert "believes that already" in again.lines[-1]
        now = trials.wanted_service(state)
        assert now is not None and not trials.want_beliefs(state, settings, now)  # `up` was called meanwhile
        assert trials.wanted_service(state) == now
    finally:
        bring_down(state)
    [run] = read_gate_log(state / "gateway" / "events.jsonl").runs
    assert sum('"BeliefsChanged"' in str(line) for line in run.entries) == 1

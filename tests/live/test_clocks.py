"""The clock on the wall says when, never how long: somebody may set it. Shown by source, and live."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "twofold"
READS = {
    *("time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime"),
    *("datetime.now", "datetime.utcnow", "datetime.today", "date.today"),
}
# Who may, and for what: a day or a moment that people read, and no time between two.
WHEN = {
    # What day it is: of prices, of a device's file, of a calibration.
    "app/believing.py": {"tell_service"},  # what day it is: of a calibration
    "app/catalogue.py": {"catalog_rows", "refresh_prices"},
    # … and from which line of the log of requests on CPU tiers are measured.
    "app/loop_stages.py": {"gate_for_it", "plan_for_it", "measure_machine", "put_under_load"},
    "app/jobs.py": {"_planned", "_repeated"},  # turns are weeks apart, through reboots: by the calendar
    "app/measured_rows.py": {"calibrate"},
    "app/measuring.py": {"measure_device"},
    "app/scaling_out.py": {"scaled_out"},  # the day of a start
    "app/proving.py": {"freeze"},  # when it was frozen
    "live/control/memory.py": {"note"},  # when it happened
    "live/control/status.py": {"at_clock"},  # what day it is, to leave it out
    "live/control/store.py": {"note"},
    "live/gateway/gate_log.py": {"head", "_note"},  # when a log began
    "live/gateway/keys.py": {"make_key"},  # when it was made; no key ends by itself
    "live/gateway/telemetry.py": {"__init__"},  # when a request came
    "live/jobs/job_log.py": {"__init__"},
    "live/jobs/queue_clock.py": {"by_now"},  # shown as a time of day
    "live/processes.py": {"age_s"},  # where there is no /proc
    "live/registry/tables.py": {"now"},  # when a version was pushed; what is newer stands in its number
    "live/training/train_job.py": {"_kill_once"},  # beside the monotonic clock, for who reads the lines
    "live/training/train_worker.py": {"step_line"},
    "live/training/training_record.py": {"append_event"},
    "report/jobs.py": {"_clock", "campaign_lines"},
}


def readers(path: Path) -> Iterator[str]:
    """The functions of a module that read the clock on the wall."""

    def walk(node: ast.AST, name: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            if isinstance(child, ast.Call) and ast.unparse(child.func) in READS:
                yield inner
            yield from walk(child, inner)

    return walk(ast.parse(path.read_text("utf-8")), "")


def test_nobody_takes_a_duration_from_the_clock_on_the_wall() -> None:
    """A new name here is to be argued for: what it reads is shown, and compared with nothing."""
    found = {
        str(path.relative_to(SOURCE)): names
        for room in ("live", "app", "report", "policy", "twin")
        for path in sorted((SOURCE / room).rglob("*.py"))
        if (names := set(readers(path)))
    }
    assert found == WHEN


SITE = """\
import time
from pathlib import Path

_really, _by = time.time, Path({by!r})

def _set():
    try:
        return _really() + float(_by.read_text())
    except (OSError, ValueError):
        return _really()

time.time = _set
"""


def test_a_clock_that_is_set_by_years_moves_nothing_in_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process of the service has the clock that the file `by` sets."""
    for extra in ("psutil", "uvicorn", "aiohttp"):
        pytest.importorskip(extra, reason="needs the extra [live]: `make extras`")
    from tests.live.test_controller import Served, ask, program, until
    from twofold.live.control.engines import EngineSettings
    from twofold.live.control.service import ServiceSettings
    from twofold.live.control.status import service_status
    from twofold.live.control.supervisor import bring_down, bring_up
    from twofold.live.gateway.replays import entry_from_line, first_difference, read_gate_log
    from twofold.live.processes import free_port, running
    from twofold.policy.gate.gate import Gate

    by, state = tmp_path / "by", tmp_path / ".twofold"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(by=str(by)))
    paths = (str(tmp_path / "site"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    stub = program(tmp_path, "stub", tmp_path / "orders")
    engine = EngineSettings(str(tmp_path / "v1"), "float32", 1, 256, 64, program=stub)
    served = Served(state, ServiceSettings(engine, 2, 4, free_port(), 0.001, 0.01), tmp_path / "orders")
    try:
        bring_up(served.settings, state)
        before = {child.role: child.process_id for child in running(state)}
        for jump_s in (3.2e8, -3.2e8, 0.0):
            by.write_text(str(jump_s))
            assert [ask(served.url) for _ in range(5)] == [200] * 5
            assert {child.role: child.process_id for child in running(state)} == before
            assert service_status(state, 8).is_well
            killed = served.hit("replica-0")
            took_s = until(lambda before=killed: served.back("replica-0", before), served.happened)
            assert took_s < 60.0
            before = {child.role: child.process_id for child in running(state)}
        kept = (state / "gateway" / "requests.jsonl").read_text()
        assert '"at":"2036-' in kept or '"at":"2037-' in kept, "the clock was set"
        [run] = read_gate_log(state / "gateway" / "events.jsonl").runs
        gate = Gate(run.settings, run.beliefs)
        assert first_difference(gate, map(entry_from_line, run.entries)) is None
    finally:
        bring_down(state)
    assert running(state) == []

"""Model servers that are no language model: loaded by URL, measured in their unit, planned from the rows."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.openai_service import Service, served
from twofold.app.measure_serving import What, Where, measure_serve
from twofold.app.planning import plan
from twofold.app.simulating import SimulateOptions, simulate
from twofold.contracts.spec.scenario import parse_scenario
from twofold.core.errors import FileError, UsageError, ValueRefusedError

IMAGES = Service
SPEC = """\
name: photos
serving:
  name: tag
  model: {{measured: {rows}}}
  on: 1xL4
  classes:
    upload: {{traffic: {{rate: {rate}, peak: 1x}}, slo: {{e2e_p95: {goal}}}}}
"""


@pytest.fixture(autouse=True)
def extras() -> None:
    for name in ("aiohttp", "httptools", "psutil", "uvicorn", "uvloop"):
        pytest.importorskip(name, reason="needs the extra [live]: `make extras`")


@pytest.fixture
def body(tmp_path: Path) -> Path:
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"pictures": ["cGljdHVyZQ=="] * 2, "note": "{text}"}))
    return path


def of_file(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_r_176_a_model_server_by_url_is_loaded_measured_in_its_unit_and_planned_from_the_rows(
    tmp_path: Path, body: Path
) -> None:
    rows = tmp_path / "rows.csv"
    what = What(clients="1,2,4", rate="4,10,60", load_for="1.5 s", e2e_p95="1 s")
    # Two workers of 100 ms: twenty requests a second, of two images each.
    with served(Service(apis=("predict",), slots=2, gap_s=0.1)) as service:
        where = Where(body=body, unit="images", units=2)
        shown = measure_serve(f"{service.url}/v1/predict", where, what, None, rows)
        notes = {asked["note"] for asked in service.asked}
        assert len(notes) > len(service.asked) / 2 and not any("{text}" in note for note in notes)
    text = "\n".join(shown.lines)
    assert "images/s" in text and "TTFT" not in text and "E2E" in text and "KNEE" in text
    assert all(len(line) <= 100 for line in shown.lines if str(rows) not in line)
    full = next(load for load in shown.data.loads if load.name == "closed-4")
    assert full.requests_per_s is not None and full.output_tokens_per_s is not None
    assert 8 < full.requests_per_s <= 21  # what two workers can, less what this machine was late
    assert full.output_tokens_per_s == pytest.approx(2 * full.requests_per_s)
    told = of_file(rows)
    assert [row["note"] for row in told][:3] == ["closed-1", "closed-2", "closed-4"]
    assert float(told[2]["service_s"]) == pytest.approx(4 / full.requests_per_s, rel=1e-4)
    assert "open-60" not in {row["note"] for row in told}  # three times what it carries
    carried = max(float(row["rate_per_s"] or 0) for row in told)
    assert {row["unit"] for row in told} == {"images"} and 2 < carried < 20

    spec = tmp_path / "spec.yaml"
    replicas = []
    for rate in ("80 images/s", "240 images/s"):
        spec.write_text(SPEC.format(rows=rows, rate=rate, goal="2 s"))
        service_plan = plan(spec).serving[0]
        upload = service_plan.classes[0]
        assert upload.peak_per_s == float(rate.split()[0]) / 2
        assert upload.rate_per_replica_per_s.value <= carried
        assert service_plan.replica_count >= upload.peak_per_s / carried
        assert service_plan.cost_usd_per_year is not None and upload.slos[0].met
        replicas.append(service_plan.replica_count)
    assert 2 * replicas[0] < replicas[1] < 4 * replicas[0]
    rehearsed = simulate(spec, SimulateOptions(seed=1)).data
    assert rehearsed.fleets[0].finished_count > 0.99 * rehearsed.fleets[0].arrived_count


def test_embeddings_are_asked_as_the_usual_api_has_them() -> None:
    what = What(clients="2", load_for="0.3 s", input="8 tok")
    with served(Service(apis=("embeddings",), gap_s=0.005)) as service:
        shown = measure_serve(service.url, Where(api="embeddings", units=3), what)
        texts = service.asked[-1]["input"]
        assert service.asked[-1]["model"] == "first" and len(set(texts)) == len(texts) == 3
    assert shown.data.unit == "texts" and shown.data.units_per_request == 3
    assert shown.data.loads[0].output_tokens == 3


def test_lines_of_bodies_are_sent_by_turns(tmp_path: Path) -> None:
    path = tmp_path / "bodies.jsonl"
    path.write_text("".join(json.dumps({"row": number}) + "\n" for number in range(5)))
    what = What(clients="2", load_for="0.3 s")
    with served(Service(apis=("predict",))) as service:
        measure_serve(f"{service.url}/v1/predict", Where(body=path), what)
        assert {asked["row"] for asked in service.asked} == set(range(5))


Refused = Callable[[], Any]


def test_what_cannot_be_is_said_before_any_load(tmp_path: Path, body: Path) -> None:
    what = What(clients="1", load_for="0.1 s")
    with served(Service(apis=("predict",), statuses=(422,))) as service:
        with pytest.raises(ValueRefusedError, match="does not take what was sent: 422"):
            measure_serve(f"{service.url}/v1/predict", Where(body=body), what)
        with pytest.raises(ValueRefusedError, match="404"):
            measure_serve(f"{service.url}/v1/nothing", Where(body=body), what)
    with pytest.raises(UsageError, match="no first token"):
        measure_serve("http://127.0.0.1:9", Where(body=body), What(ttft_p95="1 s"))
    with pytest.raises(UsageError, match="no prompts"):
        measure_serve("http://127.0.0.1:9", Where(unit="images"), what)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(FileError, match="line 2"):
        measure_serve("http://127.0.0.1:9", Where(body=broken), what)


def test_a_rate_in_another_unit_than_the_rows_is_refused(tmp_path: Path) -> None:
    rows, spec = tmp_path / "rows.csv", tmp_path / "spec.yaml"
    rows.write_text("batch_size,service_s,unit,units_per_request\n1,0.01,images,2\n4,0.03,images,2\n")
    spec.write_text(SPEC.format(rows=rows, rate="10 texts/s", goal="1 s"))
    with pytest.raises(ValueRefusedError, match="`upload` counts texts, and is planned by rows of images"):
        plan(spec)
    spec.write_text(SPEC.format(rows=rows, rate="10 images/s", goal="1 s"))
    assert plan(spec).serving[0].classes[0].peak_per_s == 5


def test_a_curve_of_rates_is_read_and_binds(tmp_path: Path) -> None:
    rows, spec = tmp_path / "rows.csv", tmp_path / "spec.yaml"
    head = "batch_size,service_s,rate_per_s,e2e_p50_s,e2e_p95_s,e2e_p99_s\n"
    rows.write_text(head + "1,0.01,,,,\n8,0.05,,,,\n,,10,0.01,0.02,0.03\n,,40,0.03,0.06,0.09\n")
    spec.write_text(SPEC.format(rows=rows, rate="100 /s", goal="40 ms"))
    upload = plan(spec).serving[0].classes[0]
    # 40 ms of p95 lie half way between the two rates.
    assert upload.rate_per_replica_per_s.value == pytest.approx(25, rel=0.05)
    rows.write_text(head + "1,0.01,,,,\n,,10,0.01,,0.03\n")
    with pytest.raises(Exception, match="a row of a rate needs all quantiles"):
        plan(spec)


def test_a_measured_start_is_what_the_plan_and_the_twin_take_a_start_to_last(tmp_path: Path) -> None:
    """A cold fleet: nothing is answered before its replicas are there, and the row says when that is."""
    rows, spec = tmp_path / "rows.csv", tmp_path / "spec.yaml"
    spec.write_text(SPEC.format(rows=rows, rate="20 /s", goal="1 s"))
    cold = parse_scenario("horizon: 4 min\nfleet: {start: cold}\nbeliefs: {error: 0 %}\n", "cold.yaml")
    first_s = []
    for start_s in (10, 60):
        rows.write_text(f"batch_size,service_s,start_s\n1,0.01,{start_s}\n8,0.05,{start_s}\n")
        planned = plan(spec).serving[0].cold_start_s
        assert planned is not None and (planned.value, planned.source.value) == (start_s, "m")
        out = tmp_path / "requests.csv"
        told = simulate(spec, SimulateOptions(scenario=cold, seed=1, requests=out)).data
        assert not any("is taken to last" in note for note in told.notes)
        first_s.append(
            min(
                float(row["arrival_s"]) + float(row["e2e_s"])
                for row in of_file(out)
                if row["outcome"] == "finished"
            )
        )
    assert 10 <= first_s[0] < 30 < 60 <= first_s[1] < 120

"""The page of one GPU shows what its rows come to, beside the predictions that were frozen."""

import csv
import hashlib
import re
from pathlib import Path

from bench.gpu.compare import HERE, listed, rows, summary
from twofold.app.estimating import Machines, estimate_serve, estimate_train

PAGE = (Path(__file__).parents[2] / "docs/reference/gpu.md").read_text("utf-8")
SHOWN = ("training", "prompt steps", "decoding steps", "transformers")


def test_every_table_line_of_the_page_is_what_the_rows_say() -> None:
    found = rows()
    wanted = summary(found)
    for start in SHOWN:
        wanted += listed(row for row in found if row.kind.startswith(start))
    on_page = PAGE.splitlines()
    missing = [line for line in wanted if line not in on_page]
    assert not missing, missing
    cases = [line for line in on_page if re.match(r"\| \S+-\S+ \| [\d.]+", line)]
    assert sorted(cases) == sorted(line for line in wanted if re.match(r"\| \S+-\S+ \| [\d.]+", line))


def test_what_was_frozen_is_what_the_page_says_was() -> None:
    [said] = re.findall(r"SHA-256 begins `(\w+)`", PAGE)
    assert hashlib.sha256((HERE / "frozen.json").read_bytes()).hexdigest().startswith(said)


def test_rows_in_the_table_are_those_that_are_compared() -> None:
    with (HERE / "rows.csv").open(encoding="utf-8") as file:
        kept = [(row["kind"], row["id"], f"{float(row['measured']):.6g}") for row in csv.DictReader(file)]
    assert kept == [(row.kind, row.id, f"{row.measured:.6g}") for row in rows()]


def test_the_measured_device_says_of_served_steps_what_the_page_says_it_does() -> None:
    on = Machines("1xthis-machine", device=HERE / "device")
    formats = {"weights": "bf16", "kv": "bf16", "engine": "transformers 5.23.0"}
    told = [
        estimate_serve(
            "llama-3.2-1b", on, input_tokens="256", output_tokens="64", concurrency=count, **formats
        )
        for count in (1, 4, 16, 32)
    ]
    steps = [f"{1e3 * each.data.percentiles['tpot_p50'].value:.1f}" for each in told]
    rates = [f"{each.data.output_tokens_per_s.value:.0f}" for each in told]
    assert "says {}, {}, {} and {} ms for 1, 4, 16 and 32 clients".format(*steps) in PAGE
    assert "({}, {}, {} and {}; measured".format(*rates) in PAGE


def test_the_measured_device_says_of_training_what_the_page_says_it_does() -> None:
    job = {
        "batch": "4 seq",
        "sequence": "2048 tok",
        "framework": "torchtitan",
        "recompute": "none",
        "zero": 3,
    }
    own = Machines("1xthis-machine", device=HERE / "device")
    here, shipped = (
        estimate_train("llama-3.2-1b", on, **job).data.step_s  # type: ignore[arg-type]
        for on in (own, "1xH200-SXM5-141GB")
    )
    low, high = 1e3 * here.low, 1e3 * here.high
    assert f"{1e3 * here.value:.0f} ms [{low:.0f}–{high:.0f}] by the measured device" in PAGE
    assert f"{1e3 * shipped.value:.0f} ms by the catalogue" in PAGE

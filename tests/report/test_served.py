"""The page of a service under load: what it says of each part, and that it fits."""

from twofold.contracts.results.served import Growth, Knee, Latency, Ranged, ServedLoad, ServedPage
from twofold.report.served import served_lines

LATENCY = Latency(0.012, Ranged(0.011, 0.010, 0.012), Ranged(0.020, 0.018, None), Ranged(0.025))
LOAD = ServedLoad(
    "open-1234.5", "open", None, 1234.5, 512.0, 128.0, "fixed", 100_000, 90_000, 9_000, 1_000,
    (("429", 9_000), ("timed out", 1_000)), 1100.0, 140_800.0, LATENCY, LATENCY, LATENCY, 60.0, 0.95, 0.5,
    0.4, 2**31, 2**32, 40_000.0, 0.25, "RAPL",
)  # fmt: skip


def lines(**other: object) -> str:
    page = ServedPage("https://example.com/a/long/prefix/v1/chat/completions", "an/owner-and-a-name", (LOAD,))
    told = {name: getattr(page, name) for name in ("service", "model", "loads")} | other
    found = served_lines(ServedPage(**told))  # type: ignore[arg-type]
    assert all(len(line) <= 100 for line in found)
    return " ".join(" ".join(found).split())


def test_every_part_is_said_with_its_ranges_and_reasons() -> None:
    text = lines(rows_file="rows.csv")
    for said in (
        "12 ms 11 ms [10–12] 20 ms [18–?] 25 ms",
        "9,000 × 429 · 1,000 × timed out",
        "wrote rows.csv",
    ):
        assert said in text, said
    assert "2.0 GiB before, 4.0 GiB at most (+2.0 GiB)" in text and "4 tokens a joule" in text


def test_a_loader_that_was_busy_or_late_says_so() -> None:
    text = lines()
    assert "at most 95 % of one core" in text and "the loader itself was busy" in text
    assert "largest lag behind the schedule 500 ms" in text and "400 ms late or more" in text


def test_the_knee_and_growth_are_said_in_each_of_their_forms() -> None:
    assert "4/s held, 8/s did not (late)" in lines(knee=Knee(4.0, 8.0, "late", "so"))
    assert "every rate that was tried held" in lines(knee=Knee(4.0, None, "", "so"))
    assert "below 8/s" in lines(knee=Knee(None, 8.0, "late", "so"))
    assert "57 kB a token in flight" in lines(growth=Growth(57_344.0, 2e9, 4, 0.02))
    assert "none with the tokens in flight" in lines(growth=Growth(-1.0, 2e9, 4, 0.02))

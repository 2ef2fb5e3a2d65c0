"""Pictures of plans, read as people read them: marks against tick labels give back the numbers of the JSON.

Nothing here knows how a chart is scaled: ticks are found by their text, axes are fitted to them, marks are
inverted through that fit.
"""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.charts.chart import Axis, Chart
from twofold.charts.of_plan import charts_of_plan
from twofold.charts.scales import scale_to
from twofold.charts.svg import svg_of
from twofold.contracts.results.plan import Plan
from twofold.pages.plan_page import plan_page

SVG = "{http://www.w3.org/2000/svg}"
SIZES = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "%": 0.01, "/s": 1.0, "k/s": 1e3,
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
    "$": 1.0, "k$": 1e3, "M$": 1e6, "$/y": 1.0, "k$/y": 1e3, "M$/y": 1e6, "$/h": 1.0, "k$/h": 1e3,
    "FLOP/s": 1.0, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "W": 1.0, "kW": 1e3, "MW": 1e6,
    "gCO2": 1.0, "kgCO2": 1e3, "tCO2": 1e6,
}  # fmt: skip
Invert = Callable[[float], float]
PLACE = re.compile(r"[ML](-?[\d.]+) (-?[\d.]+)")


@dataclass(frozen=True)
class Read:
    """What can be read off a picture alone."""

    root: ElementTree.Element
    x: Invert
    y: Invert
    tolerance: float  # of values, a fraction: a tenth of a pixel on either axis

    def line(self, name: str) -> list[tuple[float, float]]:
        for path in self.root.iter(f"{SVG}path"):
            title = path.find(f"{SVG}title")
            if title is not None and title.text == name and path.attrib.get("fill") == "none":
                found = PLACE.findall(path.attrib["d"])
                return [(self.x(float(x)), self.y(float(y))) for x, y in found]
        raise AssertionError(name)

    def rule(self, name: str) -> float:
        for each in self.root.iter(f"{SVG}line"):
            title = each.find(f"{SVG}title")
            if title is not None and (title.text or "").startswith(f"{name}: "):
                upright = each.attrib["x1"] == each.attrib["x2"]
                return self.x(float(each.attrib["x1"])) if upright else self.y(float(each.attrib["y1"]))
        raise AssertionError(name)


def _number(text: str) -> float:
    digits, _, unit = text.partition(" ")
    return float(digits.replace(",", "")) * SIZES[unit]


def _fitted(ticks: list[tuple[float, float]]) -> Invert:
    """The scale that its own ticks show: plain, or in logarithms where these lie more evenly."""
    ticks = sorted(ticks)
    if len(ticks) < 2:  # numbers so near to each other that no further round one lies between
        return lambda _: math.nan

    def through(values: list[float]) -> tuple[float, float, float]:
        (at, first), (end, last) = (ticks[0][0], values[0]), (ticks[-1][0], values[-1])
        slope = (last - first) / (end - at)
        off = max(
            abs(first + slope * (tick[0] - at) - each) for tick, each in zip(ticks, values, strict=True)
        )
        return slope, first - slope * at, off / (abs(last - first) or 1.0)

    plain = through([value for _, value in ticks])
    if all(value > 0.0 for _, value in ticks):
        logs = through([math.log10(value) for _, value in ticks])
        if logs[2] < plain[2] and plain[2] > 0.003:
            return lambda place: float(10.0 ** (logs[1] + logs[0] * place))
    return lambda place: plain[1] + plain[0] * place


def read(chart: Chart) -> Read:
    root = ElementTree.fromstring(svg_of(chart))
    texts = [each for each in root.iter(f"{SVG}text") if each.attrib.get("class") == "s"]
    grid = {
        round(float(each.attrib["y1"]), 1): each
        for each in root.iter(f"{SVG}line")
        if each.attrib.get("class") == "g"
    }
    upright = [
        (float(each.attrib["x"]), _number(each.text or ""))
        for each in texts
        if each.attrib.get("text-anchor") == "middle" and re.match(r"-?\d", each.text or "")
    ]
    lying = [
        (float(each.attrib["y"]) - 4.0, _number(each.text or ""))
        for each in texts
        if each.attrib.get("text-anchor") == "end"
    ]
    assert all(round(place, 1) in grid for place, _ in lying)
    return Read(root, _fitted(upright), _fitted(lying), 0.02)


def _chart(plan: Plan, key: str) -> Chart | None:
    return next((each for each in charts_of_plan(plan) if each.key == key), None)


@pytest.fixture(scope="session")
def drawn(examples: dict[str, Plan]) -> dict[str, Plan]:
    return examples


def test_latencies_over_the_load_stand_where_the_json_has_them(
    drawn: dict[str, Plan], example_data: dict[str, dict[str, Any]]
) -> None:
    seen = 0
    for name, plan in drawn.items():
        for service in example_data[name]["serving"]:
            for one in service["classes"]:
                own = [each for each in service["latency_curves"] if each["class_name"] == one["name"]]
                if not own:
                    continue
                chart = _chart(plan, f"load.{service['name']}.{one['name']}")
                assert chart
                picture = read(chart)
                for curve in own:
                    metric, _, quantile = curve["metric"].partition("_")
                    marks = picture.line(f"{metric.upper()} {quantile}")
                    points = [(each["rate_per_s"], each["latency"]["value"]) for each in curve["points"]]
                    assert len(marks) == len(points)
                    reach = points[-1][0]
                    for (rate, seconds), mark in zip(points, marks, strict=True):
                        assert mark[0] == pytest.approx(rate, abs=0.004 * reach)
                        assert mark[1] == pytest.approx(seconds, rel=picture.tolerance)
                    goal = picture.rule(f"{metric.upper()} {quantile} goal")
                    assert goal == pytest.approx(curve["limit_s"], rel=picture.tolerance)
                    seen += 1
                assert picture.rule("planned") == pytest.approx(one["peak_per_s"], abs=0.004 * reach)
                assert picture.rule("knee") == pytest.approx(one["knee_per_s"], abs=0.004 * reach)
    assert seen >= 10


def _places(picture: Read, label: str) -> list[tuple[float, float]]:
    """Where shapes stand whose tooltips begin with a label: the middle of each."""
    found = []
    for path in picture.root.iter(f"{SVG}path"):
        title = path.find(f"{SVG}title")
        if title is None or not (title.text or "").startswith(f"{label}: ") or "fill" not in path.attrib:
            continue
        start = re.match(r"M(-?[\d.]+) (-?[\d.]+)([alh])(-?[\d.]+)", path.attrib["d"])
        assert start
        x, y, kind, size = float(start[1]), float(start[2]), start[3], float(start[4])
        middle = {"a": (x + size, y), "h": (x + size / 2, y + size / 2)}[kind]
        found.append((picture.x(middle[0]), picture.y(middle[1])))
    return found


def test_fleets_and_operators_stand_where_the_json_has_them(
    drawn: dict[str, Plan], example_data: dict[str, dict[str, Any]]
) -> None:
    fleets = operators = 0
    for name, plan in drawn.items():
        data = example_data[name]
        for service in data["serving"]:
            if len(service["weighed"]) > 1:
                chart = _chart(plan, f"fleets.{service['name']}")
                assert chart
                latencies = [each["latency_s"] for each in service["weighed"]]
                spread = max(*latencies, service["weighed"][0]["limit_s"]) - min(latencies)
                for each in service["weighed"]:
                    label = f"{each['accelerator_count']} × {each['what']}"
                    (x, y), *_ = _places(read(chart), label)
                    assert x == pytest.approx(each["latency_s"], abs=0.01 * spread)
                    assert math.isnan(y) or y == pytest.approx(each["usd_per_year"], rel=0.03)
                    fleets += not math.isnan(y)
        for half in (*data["training"], *data["serving"]):
            chart = _chart(plan, f"roofline.{half['name']}")
            assert (chart is None) == (half["roofline"] is None)
            for each in (*half["roofline"]["planned"], *half["roofline"]["measured"]) if chart else ():
                places = _places(read(chart), each["what"])  # type: ignore[arg-type]
                near = [
                    place
                    for place in places
                    if place[0] == pytest.approx(each["flops_per_byte"], rel=0.04)
                    and place[1] == pytest.approx(each["flops_per_s"], rel=0.04)
                ]
                assert near, (name, each)
                operators += 1
    assert fleets >= 10 and operators >= 80


def test_hosted_and_own_cross_where_the_json_says_they_do(
    drawn: dict[str, Plan], example_data: dict[str, dict[str, Any]]
) -> None:
    seen = 0
    for name, plan in drawn.items():
        money = example_data[name]["money"] or {"services": [], "owning": None}
        for service in money["services"]:
            chart, api = _chart(plan, f"hosted.{service['name']}"), service["api"]
            if chart is None:
                continue
            picture = read(chart)
            assert picture.rule("planned") == pytest.approx(api["mtok_per_month"], rel=0.03)
            for volume, usd in picture.line(f"hosted by {api['provider']}"):
                assert usd == pytest.approx(api["usd_per_mtok"] * volume, rel=0.06)
            hosted = [usd for _, usd in picture.line(f"hosted by {api['provider']}")]
            gaps = [own - out for (_, own), out in zip(picture.line("own fleet"), hosted, strict=True)]
            assert (min(gaps) < 0.0) == (api["break_even_mtok_per_month"] is not None), name
            if api["break_even_mtok_per_month"]:
                even = picture.rule("break-even")
                assert even == pytest.approx(api["break_even_mtok_per_month"], rel=0.03)
            seen += 1
        for crossing in (money["owning"] or {"crossings": []})["crossings"]:
            key = f"rented.{'-'.join(crossing['name'].split())}"
            chart = _chart(plan, key)
            assert chart and not crossing["yours"]
            picture = read(chart)
            for share, usd in picture.line("owned"):
                per_h = crossing["owned_usd_per_accelerator_h"]
                assert usd == pytest.approx(per_h / share, rel=0.08, abs=0.03)
            assert {
                round(usd / crossing["rented_usd_per_accelerator_h"], 1) for _, usd in picture.line("rented")
            } == {1.0}
            if 0.05 <= crossing["utilisation_fraction"] <= 1.0:
                assert picture.rule("break-even") == pytest.approx(
                    crossing["utilisation_fraction"], abs=0.005
                )
            seen += 1
    assert seen >= 10


def test_power_and_carbon_of_each_hour_stand_where_the_json_has_them(
    drawn: dict[str, Plan], example_data: dict[str, dict[str, Any]]
) -> None:
    seen = 0
    for name, plan in drawn.items():
        building = example_data[name]["building"]
        for key, field in (("power", "power_by_hour_w"), ("carbon", "carbon_by_hour_gco2")):
            chart = _chart(plan, key)
            assert (chart is None) == (building is None)
            if chart is None:
                continue
            values = building["year"][field]
            marks = read(chart).line(key)
            assert [round(hour) for hour, _ in marks] == [*range(24)]
            for value, (_, mark) in zip(values, marks, strict=True):
                assert mark == pytest.approx(value, abs=0.01 * max(values))
            seen += 1
        if building:  # power × hours of a day is the year's energy at the meter
            day_j = sum(building["year"]["power_by_hour_w"]) * 3600.0
            assert day_j * 365.0 == pytest.approx(building["year"]["meter_j"]["value"], rel=1e-6)
    assert seen >= 8


def test_a_run_that_repeats_is_drawn_each_time_and_a_base_apart(drawn: dict[str, Plan]) -> None:
    def rows(plan: Plan) -> dict[str, int]:
        chart = _chart(plan, "calendar")
        found: dict[str, int] = {}
        for span in chart.spans if chart else ():  # type: ignore[union-attr]
            found[span.row] = found.get(span.row, 0) + 1
        return found

    assert rows(drawn["portfolio"])["monthly"] == 13
    money = drawn["portfolio"].money
    assert money
    runs = [replace(run, runs_per_year=365.0) for run in money.runs]
    often = replace(drawn["portfolio"], money=replace(money, runs=tuple(runs)))
    assert rows(often)["monthly"] == 1  # too often to be seen: one stretch, which says how often
    assert {"serve, all year", "serve, by the hour"} <= {*rows(drawn["assistant"])}


def test_every_mark_of_every_example_lies_inside_its_axes(drawn: dict[str, Plan]) -> None:
    for plan in drawn.values():
        for chart in charts_of_plan(plan):
            root = ElementTree.fromstring(svg_of(chart))
            _, _, wide, high = map(float, root.attrib["viewBox"].split())
            for path in root.iter(f"{SVG}path"):
                for x, y in PLACE.findall(path.attrib.get("d", "")):
                    if path.attrib.get("d") != "M0 3H6":
                        assert 0.0 <= float(x) <= wide and 0.0 <= float(y) <= high, chart.key
            for text in root.iter(f"{SVG}text"):
                assert 0.0 <= float(text.attrib["x"]) <= wide and 0.0 < float(text.attrib["y"]) <= high


def test_a_page_names_each_hatching_and_each_picture_once(drawn: dict[str, Plan]) -> None:
    for plan in drawn.values():
        page = plan_page(plan, "0" * 64)
        names = re.findall(r'\bid="([^"]*)"', page)
        assert len(names) == len({*names}), plan.name
        assert not [name for name in names if name.startswith("chart:") and " " in name]
        assert {*re.findall(r"url\(#([^)]*)\)", page)} <= {*names}


@given(
    st.lists(st.floats(1e-3, 1e12), min_size=2, max_size=6, unique=True),
    st.booleans(),
    st.sampled_from(["s", "USD", "", "fraction", "W", "FLOP/s", "gCO2"]),
)
def test_labels_of_an_axis_are_apart_and_none_is_rounded_to_another_place(
    values: list[float], log: bool, unit: str
) -> None:
    scale = scale_to(Axis("", unit, log), values, 0.0, 500.0)
    if scale.high < 1.05 * scale.low:
        return  # all but one number: two digits cannot tell ticks apart
    ticks = scale.ticks(6)
    told = [scale.text(each) for each in ticks]
    assert len({*told}) == len(told)
    for one, other in pairwise(ticks):
        assert scale.place(one) < scale.place(other)

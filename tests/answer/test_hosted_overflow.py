"""What a plan says of the hosted API beside a service: the share that is late here, its price, the bill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold import plan
from twofold.answer.hosted_overflow import hosted_shares, late_fraction
from twofold.app.planning import ready
from twofold.contracts.results.plan import Plan
from twofold.core.estimate import Estimate, Source
from twofold.money.bill import bill_lines

SPEC = """\
model: llama-3.1-8b
serving:
  quantisation: [fp8]
  on: 1xL4
  overflow: {{url: "https://api.example.com/v1", model: m, input_price: 1 $, output_price: 4 $, {more}}}
  classes:
    chat:
      traffic: {{rate: 2 /s, input: 500 tok, output: {{mean: 100 tok, p95: 350 tok}}}}
      slo: {{ttft_p95: {ttft}, tpot_p95: 100 ms}}
"""


def seconds(**values: float) -> dict[str, Estimate]:
    return {name: Estimate(value, value, value, "s", Source.FITTED) for name, value in values.items()}


@given(
    p50=st.floats(0.01, 1.0),
    wider=st.floats(1.01, 5.0),
    widest=st.floats(1.01, 5.0),
    limit=st.floats(0.001, 100.0),
    more=st.floats(1.0, 3.0),
)
def test_the_share_that_is_late_falls_with_the_limit_and_passes_through_the_quantiles(
    p50: float, wider: float, widest: float, limit: float, more: float
) -> None:
    told = seconds(ttft_p50=p50, ttft_p95=p50 * wider, ttft_p99=p50 * wider * widest)
    for name, share in (("ttft_p50", 0.5), ("ttft_p95", 0.05), ("ttft_p99", 0.01)):
        assert late_fraction(told, "ttft", told[name].value) == pytest.approx(share)
    assert 0.0 <= late_fraction(told, "ttft", limit * more) <= late_fraction(told, "ttft", limit) <= 1.0


def test_quantiles_that_are_alike_or_unknown_have_no_tail() -> None:
    alike = seconds(ttft_p50=1.0, ttft_p95=1.0, ttft_p99=1.0)
    assert late_fraction(alike, "ttft", 1.1) == 0.0 and late_fraction(alike, "ttft", 0.9) == 1.0
    assert late_fraction(alike, "e2e", 0.1) == 0.0


def of(more: str, ttft: str = "2 s") -> tuple[Plan, str]:
    text = SPEC.format(more=more, ttft=ttft)
    return plan(text), text


def test_a_tighter_promise_sends_more_there_and_the_line_and_the_bill_have_it() -> None:
    shares = []
    for ttft in ("1 s", "500 ms"):
        made, text = of("ttft: 100 ms", ttft)
        (service,) = made.serving
        (entry,) = ready(text, None).spec.services
        (share,) = hosted_shares(entry, service.classes)
        assert share.late_fraction is not None and share.usd_per_1k == pytest.approx(0.5 + 0.4)
        assert 0.0 <= share.late_fraction <= 0.05  # p95 is kept: no more than its rest can be late
        (line,) = [each for each in service.warnings if each.startswith("overflow:")]
        assert "of `chat` is late here at the peak" in line and "at most" in line
        assert share.requests_count_per_year == pytest.approx(
            share.late_fraction * service.classes[0].rate_per_s * 365.25 * 86400, rel=0.01
        )
        shares.append(share.late_fraction)
    assert shares[1] > shares[0]


def test_an_api_that_is_slower_than_the_promise_is_never_asked_and_costs_nothing() -> None:
    made, text = of("ttft: 5 s")
    (service,) = made.serving
    (entry,) = ready(text, None).spec.services
    (share,) = hosted_shares(entry, service.classes)
    assert (share.late_fraction, share.requests_count_per_year) == (None, 0.0)
    (line,) = [each for each in service.warnings if each.startswith("overflow:")]
    assert "too slow for what `chat` is promised" in line


def test_the_bill_has_a_line_that_is_the_share_at_its_price() -> None:
    text = SPEC.format(more="ttft: 100 ms", ttft="500 ms")
    made = ready(text, None).planned()
    (service,) = made.plan.serving
    (share,) = hosted_shares(ready(text, None).spec.services[0], service.classes)
    (line,) = [each for each in bill_lines(made.plan, made.context) if each.category == "hosted"]
    assert line.total_usd == pytest.approx(share.requests_count_per_year / 1e3 * share.usd_per_1k, abs=0.01)

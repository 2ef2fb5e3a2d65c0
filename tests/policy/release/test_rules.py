"""Each rule stops a release that was made to fail it, and names the figure; without a fault none refuses."""

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.policy.release.rules import Evaluation, Limits, Release, TaskScore, refusals

EVALUATED = Evaluation(
    set_sha256="a" * 64,
    token_count=20_000,
    loss_nats=2.0,
    calibration_error_fraction=0.03,
    drift_nats=0.01,
    ttft_p95_s=0.05,
    tpot_p95_s=0.01,
    memory_bytes=1e9,
    engine="transformers 5",
    beside="sha256:1",
    tasks=(TaskScore("choice", "a" * 64, 0.9, 100),),
)
SERVING = Release(
    "sha256:1",
    True,
    "t" * 64,
    ("safetensors",),
    "ann",
    ("bob",),
    EVALUATED,
    architecture="LlamaForCausalLM",
    context_tokens=4096,
)
NEW = replace(SERVING, digest="sha256:2")
SMALLER = replace(NEW, quantised_from="sha256:0", before_quantised=replace(EVALUATED, loss_nats=1.97))
LIMITS = Limits(ttft_p95_s=0.1, tpot_p95_s=0.02, memory_bytes=2e9, calibration_error_fraction=0.2)
SIGNED = replace(LIMITS, signed_by="release.pub")
PINNED = replace(LIMITS, set_sha256="b" * 64)


def rules_of(new: Release, serving: Release | None = SERVING, limits: Limits = LIMITS) -> set[str]:
    return {each.rule for each in refusals(new, serving, limits)}


def evaluated(**changed: object) -> Release:
    return replace(NEW, evaluation=replace(EVALUATED, **changed))


def test_an_equal_release_passes_every_rule_and_so_does_the_first() -> None:
    assert refusals(NEW, SERVING, LIMITS) == ()
    assert refusals(evaluated(drift_nats=None), None, LIMITS) == ()
    assert refusals(replace(SMALLER, before_quantised=EVALUATED), SERVING, LIMITS) == ()


@pytest.mark.parametrize(
    ("rule", "new", "figure"),
    [
        ("seal", replace(NEW, sealed=False), "not sealed"),
        ("tokenizer", replace(NEW, tokenizer_sha256="u" * 64), "uuuuuuuuuuuu"),
        ("architecture", replace(NEW, architecture="MistralForCausalLM"), "MistralForCausalLM"),
        ("architecture", replace(NEW, architecture=""), "not told"),
        ("context", replace(NEW, context_tokens=4095), "4,095 tokens"),
        ("context", replace(NEW, context_tokens=0), "no context told"),
        ("format", replace(NEW, formats=("gguf",)), "gguf"),
        ("format", replace(NEW, formats=("gptq",)), "gptq"),
        ("approval", replace(NEW, approved_by=("ann",)), "0 of 1"),
        ("evaluation", replace(NEW, evaluation=None), "never"),
        ("sample", evaluated(token_count=999), "999 tokens"),
        ("loss", evaluated(loss_nats=2.1), "2.1000 nats per token, +5.0%"),
        ("loss", evaluated(loss_nats=math.nan), "nan"),
        ("loss", evaluated(set_sha256="b" * 64), "not evaluated on this set"),
        ("quantised", SMALLER, "2.0000 nats per token, +1.5%"),
        ("quantised", replace(SMALLER, before_quantised=None), "was not evaluated on this set"),
        ("regression", evaluated(failed_slices=("sums",)), "sums"),
        ("tasks", evaluated(tasks=(TaskScore("choice", "a" * 64, 0.84, 100),)), "right, -6.0 points"),
        ("tasks", evaluated(tasks=(TaskScore("choice", "b" * 64, 0.99, 100),)), "choice not measured"),
        ("calibration", evaluated(calibration_error_fraction=0.06), "0.06"),
        ("drift", evaluated(drift_nats=0.5), "0.5 nats"),
        ("drift", evaluated(beside="sha256:0"), "not measured beside what serves now"),
        ("ttft", evaluated(ttft_p95_s=0.2), "0.2 s"),
        ("tpot", evaluated(tpot_p95_s=None), "not measured"),
        ("memory", evaluated(memory_bytes=3e9), "3e+09"),
        ("memory", evaluated(memory_bytes=math.nan), "nan"),
    ],
)
def test_each_rule_stops_what_was_made_to_fail_it_and_names_the_figure(
    rule: str, new: Release, figure: str
) -> None:
    [refused] = refusals(new, SERVING, LIMITS)
    assert refused.rule == rule
    assert figure in refused.figure
    assert refused.passes


def test_figures_of_another_set_than_the_one_that_counts_are_none() -> None:
    """R-178: whoever evaluates does not choose what on."""
    [refused] = refusals(NEW, SERVING, PINNED)
    assert (refused.rule, refused.figure) == ("set", f"evaluated on {'a' * 12}")
    assert "b" * 12 in refused.passes
    on_it = replace(EVALUATED, set_sha256="b" * 64, tasks=())
    assert refusals(replace(NEW, evaluation=on_it), replace(SERVING, evaluation=on_it), PINNED) == ()


def test_another_architecture_and_a_shorter_context_say_what_would_pass_and_can_be_allowed() -> None:
    other = replace(NEW, architecture="MistralForCausalLM", context_tokens=2048)
    assert {each.rule: each.passes for each in refusals(other, SERVING, LIMITS)} == {
        "architecture": "architecture LlamaForCausalLM, as what serves now has",
        "context": "a context of 4,096 tokens, as what serves now holds",
    }
    assert rules_of(other, limits=replace(LIMITS, same_architecture=False)) == {"context"}
    assert rules_of(other, limits=replace(LIMITS, as_long_context=False)) == {"architecture"}
    assert rules_of(replace(NEW, context_tokens=8192)) == set()
    for kind, refused in (
        ("llama", set()),
        ("mistral", {"architecture"}),
    ):  # of a config without a class's name
        assert rules_of(NEW, replace(SERVING, architecture=kind)) == refused
        assert rules_of(replace(NEW, architecture=kind)) == refused
    for told in (replace(NEW, architecture="", context_tokens=0), NEW):  # nobody knows what serves
        assert rules_of(told, replace(SERVING, architecture="", context_tokens=0)) == set()


def test_where_the_service_says_what_it_needs_a_context_is_as_long_as_that() -> None:
    needs = replace(LIMITS, context_tokens_least=2048)
    assert rules_of(replace(NEW, context_tokens=2048), limits=needs) == set()
    for serving in (SERVING, None):  # the first is asked as well
        [refused] = refusals(replace(NEW, context_tokens=1024), serving, needs)
        assert refused.rule == "context" and "1,024 tokens" in refused.figure
        assert refused.passes == "a context of 2,048 tokens, as the service lets in"


def test_a_signature_is_asked_for_where_the_limits_name_a_key() -> None:
    [refused] = refusals(NEW, SERVING, SIGNED)
    assert (refused.rule, refused.figure) == ("signature", "not signed by release.pub")
    assert refusals(replace(NEW, signed=True), SERVING, SIGNED) == ()


@given(st.floats(0.1, 10.0), st.floats(0.0, 0.2), st.floats(0.5, 2.0))
def test_a_loss_passes_exactly_up_to_its_limit(before: float, rise: float, ratio: float) -> None:
    serving = replace(SERVING, evaluation=replace(EVALUATED, loss_nats=before))
    limits = replace(LIMITS, loss_rise_fraction=rise)
    refused = "loss" in rules_of(evaluated(loss_nats=before * ratio), serving, limits)
    assert refused == (before * ratio > before * (1.0 + rise))


@given(st.data())
def test_a_looser_limit_never_refuses_more(data: st.DataObject) -> None:
    names = [each.name for each in fields(Limits) if each.name.endswith(("_most", "_p95_s", "_bytes"))]
    name = data.draw(st.sampled_from(names))
    tight, loose = sorted(data.draw(st.tuples(st.floats(0.0, 1e9), st.floats(0.0, 1e9))))
    new = evaluated(loss_nats=data.draw(st.floats(0.1, 9.0)), drift_nats=data.draw(st.floats(0.0, 9.0)))
    with_tight = rules_of(new, limits=replace(LIMITS, **{name: tight}))
    assert rules_of(new, limits=replace(LIMITS, **{name: loose})) <= with_tight


def test_approvals_of_whoever_pushed_it_count_where_the_limits_say_so() -> None:
    own = replace(NEW, approved_by=("ann",))
    assert rules_of(own) == {"approval"}
    assert rules_of(own, limits=replace(LIMITS, own_approval_counts=True)) == set()
    assert rules_of(replace(NEW, approved_by=("bob", "bob")), limits=replace(LIMITS, approvals_least=2)) == {
        "approval"
    }


def test_a_gate_that_is_not_told_a_figure_does_not_open() -> None:
    silent = evaluated(
        calibration_error_fraction=None, drift_nats=None, ttft_p95_s=None, tpot_p95_s=None, memory_bytes=None
    )
    assert rules_of(silent) == {"calibration", "drift", "ttft", "tpot", "memory"}


@pytest.mark.parametrize("loss_nats", [math.nan, 0.0])
def test_no_loss_passes_beside_one_that_is_no_number_or_nothing(loss_nats: float) -> None:
    serving = replace(SERVING, evaluation=replace(EVALUATED, loss_nats=loss_nats))
    assert rules_of(NEW, serving) == {"loss"}


RUN = replace(SERVING, run="sha256:r", weights_sha256="w" * 64)


def test_a_run_gives_equal_bytes_or_they_were_altered_on_the_way() -> None:
    """A little noise in every weight passes the rules of figures; that the run made other bytes does not."""
    noisy = replace(evaluated(drift_nats=0.004), run=RUN.run, weights_sha256="x" * 64)
    [refused] = refusals(noisy, RUN, LIMITS)
    assert refused.rule == "weights" and "x" * 12 in refused.figure and "w" * 12 in refused.figure
    assert refusals(replace(noisy, weights_sha256=RUN.weights_sha256), RUN, LIMITS) == ()
    smaller = replace(noisy, quantised_from=RUN.digest, before_quantised=EVALUATED)
    assert refusals(smaller, RUN, LIMITS) == ()  # it says so
    assert refusals(noisy, RUN, replace(LIMITS, same_run_same_weights=False)) == ()


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({"run": "sha256:other"}, False),  # trained anew: it may say other things
        ({"run": "sha256:other", "parent": RUN.digest}, True),
        ({"run": "sha256:other", "quantised_from": RUN.digest}, True),
        ({"run": ""}, True),  # nobody knows
        ({"run": RUN.run, "weights_sha256": RUN.weights_sha256}, True),
    ],
)
def test_drift_is_asked_of_what_says_to_be_what_serves(said: dict[str, str], asked: bool) -> None:
    new = replace(evaluated(drift_nats=0.5), **{"weights_sha256": "x" * 64, **said})
    assert ("drift" in rules_of(new, RUN)) == asked

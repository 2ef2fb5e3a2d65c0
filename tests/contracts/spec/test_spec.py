"""What a spec's text means: SI numbers, lists of runs and services, defaults, and rules between keys."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.contracts.spec.reader import parse_spec
from twofold.contracts.spec.service import LatencyClass, Service, Traffic
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core.errors import InputErrors, TwofoldError

HEAD = "model: llama-3.1-8b\n"


def run_of(keys: str) -> TrainingRun:
    return parse_spec(f"{HEAD}training: {{{keys}}}", "twofold.yaml").training[0]


def class_of(keys: str) -> LatencyClass:
    return service_of(f"classes: {{chat: {{{keys}}}}}").classes["chat"]


def service_of(keys: str) -> Service:
    return parse_spec(f"{HEAD}serving: {{{keys}}}", "twofold.yaml").services[0]


def refusal_of(text: str) -> str:
    with pytest.raises(TwofoldError) as caught:
        parse_spec(text, "twofold.yaml")
    return "\n".join(
        map(str, caught.value.errors if isinstance(caught.value, InputErrors) else [caught.value])
    )


def test_quantities_are_si_numbers_inside(assistant: str) -> None:
    spec = parse_spec(assistant, "twofold.yaml")
    run, service = spec.training[0], spec.services[0]
    assert (run.tokens, run.sequence_tokens, run.global_batch_sequences) == (7e11, 8192, 512)
    assert (run.deadline_s, run.headroom.total_fraction) == (30 * 86400, pytest.approx(0.22))
    assert service.availability_fraction == 0.999
    chat = service.classes["chat"]
    assert (chat.traffic.rate_per_s, chat.traffic.peak_ratio) == (40, 2.5)
    assert (chat.slo.ttft_p95_s, chat.slo.tpot_p95_s, chat.slo.e2e_p95_s) == (0.5, 0.04, None)
    assert spec.supply.budget_usd == 4e6


def test_a_single_run_is_a_list_of_one_with_the_model_above_it(assistant: str) -> None:
    short = parse_spec(assistant, "twofold.yaml")
    long = parse_spec(
        HEAD.replace("8b", "70b") + "training: [{name: pretrain, model: llama-3.1-70b, tokens: 700 Gtok}]",
        "x",
    )
    assert (short.training[0].name, short.services[0].name) == ("pretrain", "serve")
    assert short.training[0].model == long.training[0].model == short.services[0].model


def test_an_entry_with_its_own_model_keeps_it() -> None:
    text = (
        HEAD + "training:\n  - {name: a, tokens: 1 Gtok}\n  - {name: b, model: qwen3-32b, tokens: 1 Gtok}\n"
    )
    assert [run.model.name for run in parse_spec(text, "x").training] == ["llama-3.1-8b", "qwen3-32b"]


def test_half_a_spec_plans_half_and_nothing_is_refused() -> None:
    assert parse_spec(HEAD + "training: {tokens: 1 Gtok}", "x").services == ()
    assert "E-empty" in refusal_of(HEAD)


def test_names_of_a_half_are_its_own() -> None:
    twice = HEAD + "training: [{tokens: 1 Gtok}, {tokens: 2 Gtok}]"
    assert "two entries of `training` are named `pretrain`" in refusal_of(twice)


@given(sequences=st.integers(1, 10**6), sequence_tokens=st.integers(1, 10**6))
def test_a_batch_in_tokens_is_the_same_batch_in_sequences(sequences: int, sequence_tokens: int) -> None:
    in_tokens = f"{sequences * sequence_tokens} tok"
    run = run_of(f"tokens: 1 Gtok, sequence: {sequence_tokens} tok, global_batch: {in_tokens}")
    assert run.global_batch_sequences == sequences


def test_a_batch_that_does_not_divide_names_one_near_that_splits_well() -> None:
    text = refusal_of(HEAD + "training: {tokens: 1 Gtok, sequence: 4096 tok, global_batch: 1 Mtok}")
    assert "E-batch" in text
    assert "write `240 seq`, which is 983,040 tokens" in text


def test_tokens_samples_and_steps_say_the_same() -> None:
    shape = "sequence: 1000 tok, global_batch: 10 seq"
    runs = [run_of(f"{amount}, {shape}") for amount in ("tokens: 1 Mtok", "samples: 1000 seq", "steps: 100")]
    assert {run.token_count for run in runs} == {1e6}
    assert {run.step_count for run in runs} == {100}
    assert run_of(f"tokens: 1000001 tok, {shape}").step_count == 101


def test_a_window_limits_the_time_as_a_deadline_does() -> None:
    run = run_of("tokens: 1 Gtok, window: {start: 2026-03-01, end: 2026-03-21}")
    assert (run.time_limit_s, run.first_day) == (21 * 86400, date(2026, 3, 1))
    assert run_of("tokens: 1 Gtok, deadline: 3 weeks").time_limit_s == 21 * 86400
    assert run_of("tokens: 1 Gtok, repeats: every 8 weeks").repeats_every_s == 56 * 86400


@pytest.mark.parametrize(
    ("text", "nodes", "per_node", "accelerator"),
    [("64x8xH100-SXM", 64, 8, "H100-SXM"), ("4xH200", 1, 4, "H200"), ("L40S", 1, 1, "L40S")],
)
def test_machines_that_are_given(text: str, nodes: int, per_node: int, accelerator: str) -> None:
    cluster = run_of(f"tokens: 1 Gtok, on: {text}").on
    assert cluster is not None
    assert (cluster.count, cluster.accelerators_per_node, cluster.accelerator) == (
        nodes,
        per_node,
        accelerator,
    )


def test_machines_may_be_nodes() -> None:
    cluster = run_of("tokens: 1 Gtok, on: {node: p5.48xlarge, count: 8}").on
    assert cluster is not None
    assert (cluster.node, cluster.count, cluster.accelerator) == ("p5.48xlarge", 8, None)


@pytest.mark.parametrize(
    ("preset", "metric", "limit_s"),
    [("conversational", "ttft_p95_s", 0.1), ("documents", "e2e_p95_s", 0.5), ("batch", "e2e_p95_s", 30.0)],
)
def test_a_preset_states_its_metric(preset: str, metric: str, limit_s: float) -> None:
    targets = dict(class_of(f"preset: {preset}, traffic: {{rate: 1 /s}}").slo)
    assert {key: value for key, value in targets.items() if value is not None} == {
        metric: limit_s,
        "success_fraction": 0.999,
    }


def test_own_targets_add_to_a_preset_and_replace_it() -> None:
    slo = class_of("preset: conversational, traffic: {rate: 1 /s}, slo: {tpot_p95: 40 ms, ttft_p95: 1 s}").slo
    assert (slo.ttft_p95_s, slo.tpot_p95_s) == (1.0, 0.04)


def test_work_by_the_day_has_a_day_and_a_chat_feels_prompt() -> None:
    assert class_of("traffic: {tokens_per_day: 1 Gtok}").slo.finish_within_s == 86400
    assert class_of("traffic: {rate: 1 /s}").slo.ttft_p95_s == 0.5


@given(rate=st.floats(0.01, 1e5))
def test_a_days_tokens_and_a_rate_say_the_same(rate: float) -> None:
    lengths = {"input": {"mean": "900 tok"}, "output": {"mean": "100 tok"}}
    by_rate = Traffic.model_validate({"rate": f"{rate!r} /s", **lengths})
    by_day = Traffic.model_validate({"tokens_per_day": f"{rate * 1000 * 86400!r} tok", **lengths})
    assert by_day.mean_rate_per_s == pytest.approx(by_rate.mean_rate_per_s)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("training: {tokens: 1 Gtok, steps: 5}", "gives `tokens` and `steps`"),
        ("training: {kind: lora}", "says no amount"),
        ("training: {tokens: 1 Gtok, lora_rank: 8}", "`lora_rank` belongs to kind `lora`"),
        (
            "training: {kind: finetune, tokens: 1 Gtok, loss_target: 2.1}",
            "`loss_target` belongs to kind `pretrain`",
        ),
        ("training: {tokens: 1 Gtok, loss_target: 2.1 bits}", "is no loss in nats per token"),
        ("training: {tokens: 1 Gtok, loss_target: nan}", "is no loss in nats per token"),
        ("training: {tokens: 1 Gtok, loss_target: 0}", "is no loss in nats per token"),
        (
            "training: {tokens: 1 Gtok, deadline: 1 d, window: {start: 2026-01-01, end: 2026-01-02}}",
            "`window`",
        ),
        ("training: {tokens: 1 Gtok, window: {start: 2026-01-02, end: 2026-01-01}}", "before it starts"),
        ("training: {tokens: 1 Gtok, start: soon}", "`start: soon` is not a day"),
        ("training: {tokens: 1 Gtok, sequence: 0.5 tok}", "not a whole number"),
        ("training: {tokens: 1 Gtok, steps: 0}", "`steps: 0` is zero"),
        ("training: {tokens: 1 Gtok, on: 8x}", "is not a cluster"),
        ("training: {tokens: 1 Gtok, headroom: {retries: 2000 %}}", "out of range"),
        ("training: {tokens: 5e18 Ttok}", "out of range"),
        ("training: {tokens: 1 Gtok, name: a.b}", "`name: a.b` is not a name"),
        ("serving: {classes: {chat: {traffic: {rate: 1 /s, trace: a.csv}}}}", "gives `rate` and `trace`"),
        ("serving: {classes: {chat: {traffic: {rate: 1 /s, scale: 2x}}}}", "`scale` belongs to a `trace`"),
        (
            "serving: {classes: {chat: {traffic: {trace: a.csv, input: 9 tok}}}}",
            "`input` is read from the `trace`",
        ),
        ("serving: {classes: {chat: {traffic: {tokens_per_day: 1 Gtok, peak: 2x}}}}", "any time of day"),
        (
            "serving: {classes: {chat: {traffic: {rate: 1 /s}, slo: {success: 99 %}}}}",
            "`slo` promises no time",
        ),
        (
            "serving: {classes: {chat: {traffic: {rate: 1 /s}, slo: {ttft_p95: 1 s, success: 101 %}}}}",
            "success",
        ),
        ("serving: {classes: {chat: {traffic: {rate: 1 /s}, slo: {}}}}", "`slo` promises no time"),
        (
            "serving: {classes: {chat: {traffic: {rate: 1 /s}, slo: {ttft_p95: 0 ms}}}}",
            "no answer takes no time",
        ),
        ("serving: {classes: {}}", "`classes` is empty"),
        ("serving: {classes: {chat: {traffic: {rate: 1 /s, peak: 0.5x}}}}", "out of range"),
        ("serving: {availability: 100 %, classes: {chat: {traffic: {rate: 1 /s}}}}", "out of range"),
        (
            "serving: {zones: 100000, classes: {chat: {traffic: {rate: 1 /s}}}}",
            "`zones: 100000` is out of range",
        ),
        ("supply: {budget: 1e30 $}\nserving: {classes: {chat: {traffic: {rate: 1 /s}}}}", "out of range"),
        ("training: {tokens: 1 Gtok}\nsupply: {budget: $0}", "`budget: $0` is zero"),
        (
            "training: {tokens: 1 Gtok}\nsupply: {seasons: [{months: [nov, dec], factor: 2x}, "
            "{months: [dec], factor: 3x}]}",
            "seasons overlap: dec in more than one",
        ),
        (
            "training: {tokens: 1 Gtok}\nsupply: {seasons: [{months: [nov, nov], factor: 2x}]}",
            "`months` names nov twice",
        ),
        ("training: {tokens: 1 Gtok}\nsupply: {own: {count: 8}}", "give a `node` or an `accelerator`"),
        ("training: {tokens: 1 Gtok}\nsupply: {shop: {allow_unreleased: maybe}}", "neither yes nor no"),
    ],
)
def test_values_that_contradict_are_refused(text: str, says: str) -> None:
    assert says in refusal_of(HEAD + text)


def test_a_list_of_one_wrong_word_is_not_called_empty_as_well() -> None:
    text = HEAD + "serving: {quantisation: [fp9], classes: {chat: {traffic: {rate: 1 /s}}}}"
    assert "`quantisation: fp9`" in refusal_of(text) and "is empty" not in refusal_of(text)


def test_a_spec_written_out_reads_back_as_itself(assistant: str) -> None:
    spec = parse_spec(assistant, "twofold.yaml")
    written = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert Spec.model_validate(written) == spec

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError, UnknownNameError
from twofold.measure.inference_rows import layouts, read_case
from twofold.perf.constants import load_constants

ROW = {
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "framework": "vllm",
    "tp": "2",
    "gpus_total": "4",
    "isl_mean": "512",
}


def case(**changes):
    return read_case({**ROW, **changes}, load_catalog(), load_constants())


def test_copies_that_share_a_load_are_what_the_layout_leaves():
    assert case().replicas == 2
    assert case(tp="4").replicas == 1


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"mode": "offline", "max_batch": "8"}, "static"),
        ({"mode": "offline"}, "saturated"),
        ({"mode": "aggregated", "concurrency": "8"}, "closed"),
        ({"mode": "online", "request_rate_rps": "2"}, "open"),
        ({"mode": "disaggregated", "concurrency": "8"}, "disaggregated"),
    ],
)
def test_the_kind_of_load_follows_what_is_given(changes, kind):
    assert case(**changes).kind == kind


def test_formats_are_named_as_the_kernels_name_them():
    assert case(precision_weights="fp16").weights_format == "bf16"
    assert case(precision_weights="fp4").weights_format == "nvfp4"
    assert case(model="deepseek-r1", precision_weights="fp8").weights_format == "fp8_block"
    assert case(framework="trtllm", precision_weights="fp8").kv_format == "fp8"


def test_an_open_layout_is_tried_as_far_as_heads_and_devices_allow():
    tried = layouts(case(tp="", gpus_total="8"))
    assert [each.tp for each in tried] == [1, 2, 4, 8]
    assert all(each.replicas * each.tp == 8 for each in tried)
    assert layouts(case()) == [case()]


@pytest.mark.parametrize(("precision", "count"), [("bf16", 16), ("fp8", 8), ("nvfp4", 4)])
def test_nothing_said_of_the_devices_means_as_few_as_hold_the_model(precision, count):
    read = case(model="deepseek-r1", gpu="gb200", tp="", gpus_total="", precision_weights=precision)
    assert read.accelerators == count
    assert {"accelerator count", "layout"} <= set(read.assumed)


@pytest.mark.parametrize("column", ["model", "gpu"])
def test_a_row_without_a_model_or_a_device_is_refused(column):
    with pytest.raises(InputError, match=column):
        case(**{column: ""})


def test_an_unknown_model_is_refused_by_name():
    with pytest.raises(UnknownNameError):
        case(model="nobody-knows-this")


def test_more_accelerators_than_a_server_has_are_tried_as_one_replica_where_fewer_do_not_hold_it():
    read = case(model="deepseek-r1", gpu="h100", tp="", gpus_total="", precision_weights="fp8")
    assert read.accelerators == 16 and 16 in {each.tp for each in layouts(read)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"spec_decode": "1"}, "2 tokens drafted, 75% of them accepted"),
        ({"prefix_cache": "1", "isl_dist": "shared_prefix"}, "20% of the input cached"),
    ],
)
def test_what_no_row_states_is_said_and_stands_among_the_constants(changes, said):
    assert case(**changes).usual == (said,) and case().usual == ()
    assert case(**changes).assumed == case().assumed
    rows = [row for row in load_constants().rows if row.name.startswith("benchmark_")]
    assert len(rows) == 8 and all(row.source == "a" and row.low < row.value < row.high for row in rows)


def test_prompts_that_come_again_are_found_whole_where_the_cache_is_on():
    clients = {"isl_dist": "near_fixed_shared_prefix", "mode": "online", "request_rate_rps": "8"}
    again = case(**clients, prefix_cache="1")
    assert again.shared_prefix_fraction == again.scheduler.found_fraction(8.0, 512.0) > 0.9
    assert again.usual == ("96% of the input cached",)
    assert case(**clients, prefix_cache="0").shared_prefix_fraction == 0.0
    assert case(**clients, prefix_cache="1", framework="sglang").shared_prefix_fraction == 0.2


def test_a_submission_is_quantised_as_far_as_the_part_can():
    tuned = {"isl_dist": "mlperf dataset mixtral-8x7b", "model": "mixtral-8x7b", "precision_weights": "fp16"}
    assert case(**tuned).weights_format == "fp8"
    assert case(**tuned, gpu="b200").weights_format == "nvfp4"
    assert case(**tuned, gpu="a100").weights_format == "bf16"
    assert case(**{**tuned, "precision_weights": "fp8"}, gpu="b200").weights_format == "fp8"


def test_only_a_submission_s_rate_is_read_as_the_highest_that_meets_a_limit():
    paced = {"mode": "online", "request_rate_rps": "5"}
    assert case(**paced, isl_dist="mlperf dataset llama2-70b-99").server_limit_s > 0
    assert case(**paced, isl_dist="llama2-70b").server_limit_s == 0
    assert case(mode="offline", isl_dist="mlperf dataset llama2-70b-99").server_limit_s == 0


def test_attention_parallelism_is_tried_where_an_engine_offers_it():
    open_split = {"model": "mixtral-8x7b", "tp": "8", "gpus_total": "8"}
    newer = layouts(case(**open_split, framework="trtllm", framework_version="1.0"))
    older = layouts(case(**open_split, framework="trtllm", framework_version="0.20"))
    assert {each.dp for each in newer} == {1.0, 8.0}
    assert {each.dp for each in older} == {1.0}


def test_answers_that_a_benchmark_cuts_spread_no_further_than_its_limit():
    server = {"mode": "online", "request_rate_rps": "2"}
    cut = case(**server, isl_dist="mlperf dataset llama3.1-8b", osl_mean="128.5")
    some = case(**server, isl_dist="mlperf dataset llama2-70b-99", osl_mean="293")
    free = case(**server, isl_dist="mlperf dataset deepseek-r1", osl_mean="3684")
    assert cut.answer_spread == 0.0
    assert 0.0 < some.answer_spread < free.answer_spread == free.length_spread

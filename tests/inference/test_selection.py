from dataclasses import replace

import numpy as np
import pytest

from twofold.catalog.types import Accelerator
from twofold.inference import regimes
from twofold.inference.replica import chips_needed, communication_bytes_per_token, max_sequences
from twofold.inference.search import search
from twofold.inference.slo import Slo, TrafficClass
from twofold.inference.steady import Lengths

CHAT = TrafficClass("chat", Lengths(1000.0, 200.0, 0.5, 0.5), 10.0, Slo({"ttft_p95": 1.0, "tpot_p95": 0.08}))


def test_a_server_cpu_is_an_option_for_a_model_of_a_billion(variant_of, offer_of):
    patient = TrafficClass("edge", Lengths(128.0, 64.0), 0.2, Slo({"tpot_p95": 0.2}))
    offer = offer_of("Xeon 8480C", 0.05, ("int8",))
    found = search([variant_of("llama-3.2-1b")], [patient], [offer], availability_fraction=0.0).best
    assert found and found.pools[0].limit_per_s * 64.0 / found.pools[0].replica.accelerator_count > 1
    assert found.usd_per_h > 0


@pytest.mark.parametrize("model", ["llama-3.1-70b", "llama-3.1-405b"])
def test_tensor_parallelism_buys_latency_and_pipelines_do_not(replica_of, model):
    layouts = {"tp": np.array([2.0, 4.0, 8.0, 2.0, 2.0]), "pp": np.array([1.0, 1.0, 1.0, 2.0, 4.0])}
    swept = replace(replica_of(model, "H200", "fp8"), **layouts)
    tpot_s = regimes.at_batch(swept, CHAT.lengths, 1.0).tpot.mean_s
    tokens_per_s = regimes.max_throughput(swept, CHAT.lengths).output_tokens_per_s
    sent = communication_bytes_per_token(swept)
    assert tpot_s[0] > tpot_s[1] > tpot_s[2]
    assert tpot_s[4] >= 0.99 * tpot_s[0]
    assert tokens_per_s[4] > tokens_per_s[0]
    assert sent[4] < sent[2]


def test_expert_exchange_appears_in_the_bytes_of_a_token(replica_of):
    spread = replica_of("deepseek-r1", "H200", "fp8_block", tp=1.0, ep=8.0, dp=8.0)
    # 58 expert layers, a token to 8 ranks of which 7 are others, 7168 wide, 8 bits there and 16 back.
    assert communication_bytes_per_token(spread) == pytest.approx(58 * 7 / 8 * 8 * 7168 * 3, rel=0.01)


def test_long_contexts_cost_cache_time_and_users(replica_of):
    replica, context = (
        replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0),
        np.array([8192.0, 32768.0, 131072.0]),
    )
    assert replica.shape.kv_bytes(replica.kv_format, context) == pytest.approx(327680 * context)
    assert (np.diff(regimes.at_batch(replica, Lengths(context - 256.0, 256.0), 1.0).ttft.mean_s) > 0).all()
    users = max_sequences(replica, context)
    assert (np.diff(users) < 0).all() and users[-1] > 1


def test_parts_without_much_memory_are_counted_honestly(catalog, variant_of):
    groq = next(
        part
        for part in catalog.rows(Accelerator)
        if "groq" in part.name.lower() or "groq" in part.vendor.lower()
    )
    assert chips_needed(variant_of("llama-3.1-70b").shape, "int8", groq.memory_bytes) > 250

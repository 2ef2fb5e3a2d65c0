"""The spec that the tests of this room share, and the names that their catalogue knows."""

import pytest

from twofold.contracts.names import Names

ASSISTANT = """\
name: assistant
model: llama-3.1-70b

training:
  kind: pretrain
  tokens: 700 Gtok
  sequence: 8192 tok
  global_batch: 512 seq
  precision: bf16
  deadline: 30 d
  headroom: {retries: 5 %, validation: 2 %, experiments: 15 %}

serving:
  availability: 99.9 %
  zones: 3
  regions: [us-east, eu-west]
  quantisation: [fp8, bf16]
  classes:
    chat:
      traffic: {rate: 40 /s, peak: 2.5x, input: {mean: 1155 tok, p95: 4083 tok}, output: 211 tok}
      slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}
    batch:
      traffic: {tokens_per_day: 2 Gtok}
      slo: {finish_within: 6 h}

supply:
  budget: 4 M$
  shop: {terms: [on_demand, reserved_1y], exclude: [community]}
"""


@pytest.fixture
def assistant() -> str:
    return ASSISTANT


@pytest.fixture
def names() -> Names:
    return Names(
        models=frozenset({"llama-3.1-70b", "llama-3.1-8b"}),
        accelerators=frozenset({"H100-SXM", "H200", "L40S"}),
        nodes=frozenset({"p5.48xlarge"}),
        regions=frozenset({"us-east-1", "eu-west-1"}),
        providers=frozenset({"aws", "lambda"}),
        frameworks=frozenset({"megatron-core", "nanotron"}),
    )

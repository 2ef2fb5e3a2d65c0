"""Commented starter specs for `twofold init`: each passes `check` as it stands."""

from typing import Literal

StarterKind = Literal["chat", "train", "both"]

_HEAD = """# What to plan: `twofold plan twofold.yaml`. Every key, unit and default: docs/reference/spec.md
name: {name}
model: llama-3.1-70b              # a catalog name, or a path to a Hugging Face config.json
"""
_TRAINING = """
training:
  kind: pretrain                  # pretrain | finetune | lora
  tokens: 700 Gtok                # or samples: …, or steps: …
  sequence: 8192 tok
  global_batch: 512 seq           # tokens are accepted when they divide by the sequence
  precision: bf16                 # bf16 | fp16 | fp8 | fp32
  deadline: 30 d
  # loss_target: 1.95             # nats per token, held against published scaling laws
  headroom: {retries: 5 %, validation: 2 %, experiments: 15 %}
  # on: 64x8xH100-SXM             # plan on given machines instead of searching
"""
_SERVING = """
serving:
  availability: 99.9 %
  zones: 3
  # regions: [us-east, eu-west]   # anywhere when left out
  quantisation: [fp8, bf16]       # formats whose quality you accept
  classes:
    chat:
      traffic:
        rate: 40 /s               # mean over the week; `peak` is the busiest minutes over it
        peak: 2.5x
        profile: consumer         # flat | consumer | business
        input: {mean: 1155 tok, p95: 4083 tok}
        output: {mean: 211 tok, p95: 451 tok}
        shared_prefix: 30 %       # of the input, found in the prefix cache
      slo: {ttft_p95: 500 ms, tpot_p95: 40 ms}
    batch:
      traffic: {tokens_per_day: 2 Gtok}
      slo: {finish_within: 6 h}
"""
_SUPPLY = """
supply:
  # budget: 4 M$                  # the most that the first year may cost
  # own: [{accelerator: H100-SXM, count: 64}]
  shop: {terms: [on_demand, reserved_1y], exclude: [community]}
"""
_PARTS = {
    "chat": ("chat", _SERVING),
    "train": ("train", _TRAINING),
    "both": ("assistant", _TRAINING + _SERVING),
}


def starter_spec(kind: StarterKind) -> str:
    """A spec to change: a service (`chat`), a training run (`train`), or both halves."""
    name, parts = _PARTS[kind]
    return _HEAD.format(name=name) + parts + _SUPPLY

"""A service and a run whose goals are near: what more confidence takes can be seen on both."""

from collections.abc import Callable

from twofold.contracts.results.plan import Plan

Planned = Callable[[str], Plan]
SERVE = """
name: s
model: llama-3.1-8b
serving:
  on: 1xL4
  classes:
    chat:
      traffic: {rate: 20 /s, input: {mean: 600 tok, p95: 2000 tok}, output: {mean: 150 tok, p95: 400 tok}}
      slo: {ttft_p95: 2 s, tpot_p95: 100 ms}
    night:
      traffic: {tokens_per_day: 200 Mtok, input: 1000 tok, output: 200 tok}
      slo: {finish_within: 6 h}
"""
TRAIN = """
name: t
model: llama-3.1-8b
training: {tokens: 20 Gtok, global_batch: 256 seq, deadline: 21.5 h}
supply: {shop: {accelerators: [H100-SXM]}}
"""

"""A spec of both halves that is planned in a moment, for tests of the command line."""

SMALL = """\
name: small
model: llama-3.1-8b
training:
  kind: finetune
  tokens: 1 Gtok
  sequence: 4096 tok
  global_batch: 64 seq
  deadline: 10 d
  on: 1x8xH100-SXM
serving:
  quantisation: [fp8]
  on: 1xH100-SXM
  classes:
    chat:
      traffic: {rate: 2 /s, peak: 2x, input: 500 tok, output: 100 tok}
      slo: {ttft_p95: 1 s, tpot_p95: 50 ms}
"""

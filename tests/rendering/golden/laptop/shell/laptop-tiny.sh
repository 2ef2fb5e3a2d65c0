#!/usr/bin/env bash
# tiny: 1 × 2 CPU-8-core-AVX2, DP 2 · micro-batch 4 · no recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# laptop-tiny.job.json: name is training.tiny.name
# laptop-tiny.job.json: rank_count is training.tiny.layout.dp
# laptop-tiny.job.json: steps is training.tiny.run.steps
# laptop-tiny.job.json: sequence_tokens is training.tiny.batch_tokens
# laptop-tiny.job.json: global_batch_sequences is training.tiny.batch_samples
# laptop-tiny.job.json: zero_stage is training.tiny.layout.zero_stage
# laptop-tiny.job.json: precision is training.tiny.precision
# laptop-tiny.job.json: micro_batch_sequences is training.tiny.layout.micro_batch
# laptop-tiny.job.json: recompute is training.tiny.layout.recompute
# laptop-tiny.job.json: checkpoint_every_steps is training.tiny.run.checkpoints.interval_s
set -euo pipefail
export FILES="${FILES:-$(dirname "$0")}"
options=(
  "${FILES:-.}/laptop-tiny.job.json"    # the order, by training.tiny
  --folder "${RUNS:-runs}/laptop-tiny"  # steps, checkpoints and what came out
  --model-config "${CONFIG:?set it to the config.json of laptop}"
)
exec python -m twofold.live.training.train_job "${options[@]}" "$@"

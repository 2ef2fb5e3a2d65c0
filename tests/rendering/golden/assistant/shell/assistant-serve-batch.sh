#!/usr/bin/env bash
# serve, batch: one of 13 replicas, on 1 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 13 = serving.serve.pools.batch.replica_count, 2 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_70B="${WEIGHTS_LLAMA_3_1_70B:-meta-llama/Llama-3.1-70B-Instruct}"  # of the catalogue for llama-3.1-70b; for another write `model: OWNER/NAME`
options=(
  --served-model-name llama-3.1-70b  # serving.serve.pools.batch.model
  --host 0.0.0.0                     # all of the machine
  --port 8002                        # one for each pool
  --quantization fp8                 # serving.serve.pools.batch.replica.weights_format
  --max-num-seqs 228                 # serving.serve.pools.batch.replica.max_batch
  --max-num-batched-tokens 2048      # serving.serve.pools.batch.replica.chunk_tokens
  --max-model-len 41728              # longest request of batch, + 5 %
  --no-enable-prefix-caching         # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_70B" "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, tickets: one of 3 replicas, on 1 × L40S
# By the plan of sha256 …; behind each value stands the number that set it.
# 3 = serving.serve.pools.tickets.replica_count, 1 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_8B="${WEIGHTS_LLAMA_3_1_8B:-meta-llama/Llama-3.1-8B}"  # of the catalogue for llama-3.1-8b; for another write `model: meta-llama/Llama-3.1-8B-Instruct`
options=(
  --served-model-name llama-3.1-8b  # serving.serve.pools.tickets.model
  --host 0.0.0.0                    # all of the machine
  --port 8000                       # one for each pool
  --quantization fp8                # serving.serve.pools.tickets.replica.weights_format
  --max-num-seqs 239                # serving.serve.pools.tickets.replica.max_batch
  --max-num-batched-tokens 2048     # serving.serve.pools.tickets.replica.chunk_tokens
  --max-model-len 16384             # longest request of tickets, + 5 %
  --no-enable-prefix-caching        # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_8B" "${options[@]}" "$@"

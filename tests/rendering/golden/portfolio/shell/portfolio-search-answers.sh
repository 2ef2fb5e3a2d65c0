#!/usr/bin/env bash
# search, answers: one of 36 replicas, on 1 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 36 = serving.search.pools.answers.replica_count, 18 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_8B="${WEIGHTS_LLAMA_3_1_8B:-meta-llama/Llama-3.1-8B}"  # of the catalogue for llama-3.1-8b; for another write `model: meta-llama/Llama-3.1-8B-Instruct`
options=(
  --served-model-name llama-3.1-8b  # serving.search.pools.answers.model
  --host 0.0.0.0                    # all of the machine
  --port 8001                       # one for each pool
  --quantization fp8                # serving.search.pools.answers.replica.weights_format
  --max-num-seqs 512                # serving.search.pools.answers.replica.max_batch
  --max-num-batched-tokens 2048     # serving.search.pools.answers.replica.chunk_tokens
  --max-model-len 10496             # longest request of answers, + 5 %
  --no-enable-prefix-caching        # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_8B" "${options[@]}" "$@"

#!/usr/bin/env bash
# counsel, chat: one of 22 replicas, on 2 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 22 = serving.counsel.pools.chat.replica_count, 11 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_3_70B="${WEIGHTS_LLAMA_3_3_70B:-meta-llama/Llama-3.3-70B-Instruct}"  # of the catalogue for llama-3.3-70b; for another write `model: OWNER/NAME`
options=(
  --served-model-name llama-3.3-70b  # serving.counsel.pools.chat.model
  --host 0.0.0.0                     # all of the machine
  --port 8000                        # one for each pool
  --tensor-parallel-size 2           # serving.counsel.pools.chat.replica.tp
  --quantization fp8                 # serving.counsel.pools.chat.replica.weights_format
  --max-num-seqs 342                 # serving.counsel.pools.chat.replica.max_batch
  --max-num-batched-tokens 2048      # serving.counsel.pools.chat.replica.chunk_tokens
  --max-model-len 45056              # longest request of chat, + 5 %
  --no-enable-prefix-caching         # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_3_70B" "${options[@]}" "$@"

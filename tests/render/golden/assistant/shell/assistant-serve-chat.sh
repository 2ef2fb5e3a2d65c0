#!/usr/bin/env bash
# serve, chat: one of 32 replicas, on 1 × MI355X
# By the plan of sha256 …; behind each value stands the number that set it.
# 32 = serving.serve.pools.chat.replica_count, 11 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_70B="${WEIGHTS_LLAMA_3_1_70B:-meta-llama/Llama-3.1-70B-Instruct}"
options=(
  --served-model-name llama-3.1-70b  # serving.serve.pools.chat.model
  --host 0.0.0.0                     # all of the machine
  --port 8000                        # one for each pool
  --quantization fp8                 # serving.serve.pools.chat.replica.weights_format
  --max-num-seqs 475                 # serving.serve.pools.chat.replica.max_batch
  --max-num-batched-tokens 2048      # serving.serve.pools.chat.replica.chunk_tokens
  --max-model-len 41728              # longest request of chat, + 5 %
  --enable-prefix-caching            # serving.serve.classes.chat.shared_prefix_fraction
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_70B" "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, chat: one of 15 replicas, on 2 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 15 = serving.serve.pools.chat.replica_count, 5 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_70B="${WEIGHTS_LLAMA_3_1_70B:-meta-llama/Llama-3.1-70B-Instruct}"  # of the catalogue for llama-3.1-70b; for another write `model: OWNER/NAME`
options=(
  --served-model-name llama-3.1-70b  # serving.serve.pools.chat.model
  --host 0.0.0.0                     # all of the machine
  --port 8000                        # one for each pool
  --tensor-parallel-size 2           # serving.serve.pools.chat.replica.tp
  --quantization fp8                 # serving.serve.pools.chat.replica.weights_format
  --max-num-seqs 625                 # serving.serve.pools.chat.replica.max_batch
  --max-num-batched-tokens 2048      # serving.serve.pools.chat.replica.chunk_tokens
  --max-model-len 41728              # longest request of chat, + 5 %
  --enable-prefix-caching            # serving.serve.classes.chat.shared_prefix_fraction
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_70B" "${options[@]}" "$@"

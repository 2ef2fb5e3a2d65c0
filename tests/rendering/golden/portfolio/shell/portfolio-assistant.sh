#!/usr/bin/env bash
# assistant, chat: one of 24 replicas, on 1 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 24 = serving.assistant.pools.chat.replica_count, 12 of them spare
set -euo pipefail
WEIGHTS_QWEN3_32B="${WEIGHTS_QWEN3_32B:-Qwen/Qwen3-32B}"  # of the catalogue for qwen3-32b; for another write `model: OWNER/NAME`
options=(
  --served-model-name qwen3-32b  # serving.assistant.pools.chat.model
  --host 0.0.0.0                 # all of the machine
  --port 8000                    # one for each pool
  --quantization fp8             # serving.assistant.pools.chat.replica.weights_format
  --max-num-seqs 375             # serving.assistant.pools.chat.replica.max_batch
  --max-num-batched-tokens 2048  # serving.assistant.pools.chat.replica.chunk_tokens
  --max-model-len 37888          # longest request of chat, + 5 %
  --no-enable-prefix-caching     # no class shares a prefix
)
exec vllm serve "$WEIGHTS_QWEN3_32B" "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, chat: one of 12 replicas, on 8 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 12 = serving.serve.pools.chat.replica_count, 6 of them spare
set -euo pipefail
WEIGHTS_DEEPSEEK_V3="${WEIGHTS_DEEPSEEK_V3:?set it to a folder or a repository with the weights of deepseek-v3}"
options=(
  --model-path "$WEIGHTS_DEEPSEEK_V3"  # serving.serve.pools.chat.model
  --served-model-name deepseek-v3      # serving.serve.pools.chat.model
  --host 0.0.0.0                       # all of the machine
  --port 8000                          # one for each pool
  --tp-size 8                          # serving.serve.pools.chat.replica.tp
  --ep-size 8                          # serving.serve.pools.chat.replica.ep
  --max-running-requests 676           # serving.serve.pools.chat.replica.max_batch
  --chunked-prefill-size 2048          # serving.serve.pools.chat.replica.chunk_tokens
  --context-length 47360               # longest request of chat, + 5 %
  --disable-radix-cache                # no class shares a prefix
)
exec python -m sglang.launch_server "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, chat: one of 2 replicas, on 1 × CPU-8-core-AVX2
# By the plan of sha256 …; behind each value stands the number that set it.
# 2 = serving.serve.pools.chat.replica_count, 1 of them spare
set -euo pipefail
WEIGHTS_LAPTOP="${WEIGHTS_LAPTOP:?set it to a folder or a repository with the weights of laptop}"
export TORCHDYNAMO_DISABLE=1         # as `up` sets it
export TOKENIZERS_PARALLELISM=false  # as `up` sets it
options=(
  --continuous-batching       # requests join and leave between steps
  --dtype float32             # serving.serve.pools.chat.replica.weights_format
  --cb-max-batch-tokens 2048  # serving.serve.pools.chat.replica.chunk_tokens
  --device cpu                # processors
  --cb-block-size 32          # tokens of a block of the cache
  --cb-num-blocks 256         # as `up` starts it; more takes more memory
  --host 0.0.0.0              # all of the machine
  --port 8000                 # one for each pool
)
exec transformers serve "$WEIGHTS_LAPTOP" "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, documents: one of 9 replicas, on 2 × MI355X
# By the plan of sha256 …; behind each value stands the number that set it.
# 9 = serving.serve.pools.documents.replica_count, 3 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_70B="${WEIGHTS_LLAMA_3_1_70B:-meta-llama/Llama-3.1-70B-Instruct}"
options=(
  --served-model-name llama-3.1-70b  # serving.serve.pools.documents.model
  --host 0.0.0.0                     # all of the machine
  --port 8001                        # one for each pool
  --tensor-parallel-size 2           # serving.serve.pools.documents.replica.tp
  --quantization fp8                 # serving.serve.pools.documents.replica.weights_format
  --max-num-seqs 189                 # serving.serve.pools.documents.replica.max_batch
  --max-num-batched-tokens 2048      # serving.serve.pools.documents.replica.chunk_tokens
  --max-model-len 85504              # longest request of documents, + 5 %
  --no-enable-prefix-caching         # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_70B" "${options[@]}" "$@"

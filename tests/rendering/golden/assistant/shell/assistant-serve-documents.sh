#!/usr/bin/env bash
# serve, documents: one of 3 replicas, on 4 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# 3 = serving.serve.pools.documents.replica_count, 1 of them spare
set -euo pipefail
WEIGHTS_LLAMA_3_1_70B="${WEIGHTS_LLAMA_3_1_70B:-meta-llama/Llama-3.1-70B-Instruct}"  # of the catalogue for llama-3.1-70b; for another write `model: OWNER/NAME`
options=(
  --served-model-name llama-3.1-70b  # serving.serve.pools.documents.model
  --host 0.0.0.0                     # all of the machine
  --port 8001                        # one for each pool
  --tensor-parallel-size 4           # serving.serve.pools.documents.replica.tp
  --quantization fp8                 # serving.serve.pools.documents.replica.weights_format
  --max-num-seqs 240                 # serving.serve.pools.documents.replica.max_batch
  --max-num-batched-tokens 2048      # serving.serve.pools.documents.replica.chunk_tokens
  --max-model-len 85504              # longest request of documents, + 5 %
  --no-enable-prefix-caching         # no class shares a prefix
)
exec vllm serve "$WEIGHTS_LLAMA_3_1_70B" "${options[@]}" "$@"

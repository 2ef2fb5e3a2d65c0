#!/usr/bin/env bash
# serve, documents: one of 3 replicas, on 4 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run pretrain: Triton serves; render it for another target
# 3 = serving.serve.pools.documents.replica_count, 1 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 4 = serving.serve.pools.documents.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/assistant-serve-documents"  # serving.serve.pools.documents.model
  --http-port 8001                                       # one for each pool
  --grpc-port 9001                                       # the same, + 1000
  --metrics-port 10001                                   # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

#!/usr/bin/env bash
# counsel, chat: one of 22 replicas, on 2 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run refresh: Triton serves; render it for another target
# 22 = serving.counsel.pools.chat.replica_count, 11 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 2 = serving.counsel.pools.chat.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/federal-counsel"  # serving.counsel.pools.chat.model
  --http-port 8000                             # one for each pool
  --grpc-port 9000                             # the same, + 1000
  --metrics-port 10000                         # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

#!/usr/bin/env bash
# serve, batch: one of 13 replicas, on 1 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run pretrain: Triton serves; render it for another target
# 13 = serving.serve.pools.batch.replica_count, 2 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 1 = serving.serve.pools.batch.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/assistant-serve-batch"  # serving.serve.pools.batch.model
  --http-port 8002                                   # one for each pool
  --grpc-port 9002                                   # the same, + 1000
  --metrics-port 10002                               # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

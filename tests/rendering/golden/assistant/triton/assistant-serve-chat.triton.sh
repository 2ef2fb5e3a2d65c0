#!/usr/bin/env bash
# serve, chat: one of 15 replicas, on 2 × B200-SXM-180GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run pretrain: Triton serves; render it for another target
# 15 = serving.serve.pools.chat.replica_count, 5 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 2 = serving.serve.pools.chat.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/assistant-serve-chat"  # serving.serve.pools.chat.model
  --http-port 8000                                  # one for each pool
  --grpc-port 9000                                  # the same, + 1000
  --metrics-port 10000                              # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

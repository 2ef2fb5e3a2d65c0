#!/usr/bin/env bash
# assistant, chat: one of 24 replicas, on 1 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run base: Triton serves; render it for another target
# lost: the run monthly: Triton serves; render it for another target
# 24 = serving.assistant.pools.chat.replica_count, 12 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 1 = serving.assistant.pools.chat.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/portfolio-assistant"  # serving.assistant.pools.chat.model
  --http-port 8000                                 # one for each pool
  --grpc-port 9000                                 # the same, + 1000
  --metrics-port 10000                             # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

#!/usr/bin/env bash
# search, answers: one of 36 replicas, on 1 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run base: Triton serves; render it for another target
# lost: the run monthly: Triton serves; render it for another target
# 36 = serving.search.pools.answers.replica_count, 18 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 1 = serving.search.pools.answers.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/portfolio-search-answers"  # serving.search.pools.answers.model
  --http-port 8001                                      # one for each pool
  --grpc-port 9001                                      # the same, + 1000
  --metrics-port 10001                                  # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

#!/usr/bin/env bash
# search, nightly: one of 7 replicas, on 1 × H200-SXM5-141GB
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run base: Triton serves; render it for another target
# lost: the run monthly: Triton serves; render it for another target
# 7 = serving.search.pools.nightly.replica_count, 1 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 1 = serving.search.pools.nightly.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/portfolio-search-nightly"  # serving.search.pools.nightly.model
  --http-port 8002                                      # one for each pool
  --grpc-port 9002                                      # the same, + 1000
  --metrics-port 10002                                  # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

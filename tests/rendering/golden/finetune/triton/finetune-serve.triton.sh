#!/usr/bin/env bash
# serve, tickets: one of 3 replicas, on 1 × L40S
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the run finetune: Triton serves; render it for another target
# 3 = serving.serve.pools.tickets.replica_count, 1 of them spare
# in nvcr.io/nvidia/tritonserver:<yy.mm>-vllm-python-py3, each with CUDA_VISIBLE_DEVICES of 1 = serving.serve.pools.tickets.replica.accelerator_count
set -euo pipefail
FILES="${FILES:-$(dirname "$0")}"
options=(
  --model-repository "$FILES/finetune-serve"  # serving.serve.pools.tickets.model
  --http-port 8000                            # one for each pool
  --grpc-port 9000                            # the same, + 1000
  --metrics-port 10000                        # the same, + 2000
)
exec tritonserver "${options[@]}" "$@"

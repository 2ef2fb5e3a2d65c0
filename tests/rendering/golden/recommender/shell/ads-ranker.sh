#!/usr/bin/env bash
# ranker: 1 × 8 H100-SXM5-80GB, as measured
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: how its ranks find each other: your command, by NODE_RANK, MASTER_ADDR and what is told below
set -euo pipefail
export NODE_COUNT=1                   # training.ranker.machine.node_count
export ACCELERATORS_PER_NODE=8        # training.ranker.machine.accelerators_per_node
export GLOBAL_BATCH_SAMPLES=65536     # training.ranker.batch_samples
export STEPS=610352                   # training.ranker.run.steps
export CHECKPOINT_EVERY_STEPS=610352  # training.ranker.run.checkpoints.interval_s
exec sh -c "${TRAINER:?set it to the command of your training software, which is started on each node}" ads-ranker "$@"

#!/usr/bin/env bash
# rank, slots: one of 3 replicas, on 1 × L40S
# By the plan of sha256 …; behind each value stands the number that set it.
# 3 = serving.rank.replica_count, 1 of them spare
set -euo pipefail
export PORT="${PORT:-8000}"  # one for each pool
export MAX_BATCH=256         # serving.rank.replica.max_batch
exec sh -c "${SERVER:?set it to the command of your server, which listens on PORT}" ads-rank "$@"

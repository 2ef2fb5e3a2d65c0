#!/usr/bin/env bash
# finetune: 1 × 8 H100-SXM5-80GB, DP 8 · micro-batch 1 · no recompute · ZeRO-2
# By the plan of sha256 …; behind each value stands the number that set it.
set -euo pipefail
WEIGHTS_LLAMA_3_1_8B="${WEIGHTS_LLAMA_3_1_8B:?set it to a folder with the weights of llama-3.1-8b}"
export FILES="${FILES:-$(dirname "$0")}"
options=(
  --nnodes 1                                                                              # training.finetune.machine.node_count
  --nproc-per-node 8                                                                      # training.finetune.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                                                           # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"                                               # the first node's
  --master-port 29500                                                                     # a free one of the first node
  -m torchtitan.train                                                                     # v0.2
  --job.config_file "${FILES:-.}/finetune.toml"                                           # by training.finetune
  --model.hf_assets_path "$WEIGHTS_LLAMA_3_1_8B"                                          # the tokenizer
  --training.dataset "${DATASET:?set it to the name of a dataset that torchtitan knows}"  # c4, or one that you registered
  --checkpoint.folder "${CHECKPOINTS:-checkpoints}"
  --checkpoint.initial_load_path "$WEIGHTS_LLAMA_3_1_8B"
)
exec torchrun "${options[@]}" "$@"

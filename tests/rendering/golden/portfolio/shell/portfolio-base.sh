#!/usr/bin/env bash
# base: 8 × 8 H200-SXM5-141GB, CP 2 · DP 32 · micro-batch 1 · no recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, --lr-decay-style and --min-lr, or it falls to 0 in a line from the first step
# lost: checkpoints while it trains: Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save; it stops for training.base.run.checkpoints.write_s at each, 533 × 60 s = 8.9 h, where the plan counts 19 min by training.base.run.checkpoints.pause_s
set -euo pipefail
options=(
  --nnodes 8                                            # training.base.machine.node_count
  --nproc-per-node 8                                    # training.base.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                         # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"             # the first node's
  --master-port 29500                                   # a free one of the first node
  "${MEGATRON_LM:-.}/pretrain_gpt.py"                   # of a checkout of Megatron-LM
  --context-parallel-size 2                             # training.base.layout.cp
  --use-distributed-optimizer                           # training.base.layout.zero_stage
  --use-megatron-fsdp                                   # training.base.layout.zero_stage
  --data-parallel-sharding-strategy optim_grads_params  # training.base.layout.zero_stage
  --overlap-grad-reduce                                 # training.base.layout.dp: the plan hides this traffic behind compute
  --overlap-param-gather                                # training.base.layout.dp: the plan hides this traffic behind compute
  --micro-batch-size 1                                  # training.base.layout.micro_batch
  --global-batch-size 512                               # training.base.batch_samples
  --seq-length 8192                                     # training.base.batch_tokens
  --max-position-embeddings 8192                        # training.base.batch_tokens
  --train-iters 71526                                   # training.base.run.steps
  --save-interval 134                                   # training.base.run.checkpoints.interval_s
  --eval-interval 1000                                  # not in the plan
  --eval-iters 39                                       # no more than training.base.run.headroom.validation
  --bf16                                                # training.base.precision
  --num-layers 64                                       # of qwen3-32b
  --hidden-size 5120                                    # of qwen3-32b
  --ffn-hidden-size 25600                               # of qwen3-32b
  --num-attention-heads 64                              # of qwen3-32b
  --kv-channels 128                                     # of qwen3-32b
  --group-query-attention                               # of qwen3-32b
  --num-query-groups 8                                  # of qwen3-32b
  --normalization RMSNorm                               # assumed: as decoders have it today
  --position-embedding-type rope                        # assumed: as decoders have it today
  --rotary-base "${ROTARY_BASE:?set it to rope_theta of the config of qwen3-32b, a whole number that no plan has}"
  --attention-dropout 0                                 # assumed: as decoders have it today
  --hidden-dropout 0                                    # assumed: as decoders have it today
  --swiglu                                              # of qwen3-32b: three matrices
  --disable-bias-linear                                 # assumed: as decoders have it today
  --untie-embeddings-and-output-weights                 # of qwen3-32b
  --tokenizer-type HuggingFaceTokenizer                 # a folder or a repository of the hub
  --tokenizer-model "${TOKENIZER:?set it to a folder with the tokenizer}"
  --data-path "${DATA:?set it to the data, as the training software reads it}"
  --ckpt-format fsdp_dtensor                            # the one that sharded weights have
  --save "${CHECKPOINTS:-checkpoints}"
  --load "${CHECKPOINTS:-checkpoints}"                  # goes on from the newest one after an interruption
  --lr "${LR:-3e-4}"                                    # not in the plan
  --exit-signal-handler                                 # saves and ends when it is told to
)
exec torchrun "${options[@]}" "$@"

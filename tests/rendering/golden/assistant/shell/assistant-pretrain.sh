#!/usr/bin/env bash
# pretrain: 64 × 8 H100-SXM5-80GB, TP 2 · CP 2 · DP 128 · micro-batch 1 · no recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, --lr-decay-style and --min-lr, or it falls to 0 in a line from the first step
# lost: checkpoints while it trains: Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save; it stops for training.pretrain.run.checkpoints.write_s at each, 667 × 60 s = 11 h, where the plan counts 23 min by training.pretrain.run.checkpoints.pause_s
set -euo pipefail
options=(
  --nnodes 64                                           # training.pretrain.machine.node_count
  --nproc-per-node 8                                    # training.pretrain.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                         # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"             # the first node's
  --master-port 29500                                   # a free one of the first node
  "${MEGATRON_LM:-.}/pretrain_gpt.py"                   # of a checkout of Megatron-LM
  --tensor-model-parallel-size 2                        # training.pretrain.layout.tp
  --context-parallel-size 2                             # training.pretrain.layout.cp
  --sequence-parallel                                   # training.pretrain.layout.sequence_parallel
  --use-distributed-optimizer                           # training.pretrain.layout.zero_stage
  --use-megatron-fsdp                                   # training.pretrain.layout.zero_stage
  --data-parallel-sharding-strategy optim_grads_params  # training.pretrain.layout.zero_stage
  --overlap-grad-reduce                                 # training.pretrain.layout.dp: the plan hides this traffic behind compute
  --overlap-param-gather                                # training.pretrain.layout.dp: the plan hides this traffic behind compute
  --micro-batch-size 1                                  # training.pretrain.layout.micro_batch
  --global-batch-size 512                               # training.pretrain.batch_samples
  --seq-length 8192                                     # training.pretrain.batch_tokens
  --max-position-embeddings 8192                        # training.pretrain.batch_tokens
  --train-iters 166894                                  # training.pretrain.run.steps
  --save-interval 250                                   # training.pretrain.run.checkpoints.interval_s
  --eval-interval 1000                                  # not in the plan
  --eval-iters 39                                       # no more than training.pretrain.run.headroom.validation
  --bf16                                                # training.pretrain.precision
  --num-layers 80                                       # of llama-3.1-70b
  --hidden-size 8192                                    # of llama-3.1-70b
  --ffn-hidden-size 28672                               # of llama-3.1-70b
  --num-attention-heads 64                              # of llama-3.1-70b
  --kv-channels 128                                     # of llama-3.1-70b
  --group-query-attention                               # of llama-3.1-70b
  --num-query-groups 8                                  # of llama-3.1-70b
  --normalization RMSNorm                               # assumed: as decoders have it today
  --position-embedding-type rope                        # assumed: as decoders have it today
  --rotary-base "${ROTARY_BASE:?set it to rope_theta of the config of llama-3.1-70b, a whole number that no plan has}"
  --attention-dropout 0                                 # assumed: as decoders have it today
  --hidden-dropout 0                                    # assumed: as decoders have it today
  --swiglu                                              # of llama-3.1-70b: three matrices
  --disable-bias-linear                                 # assumed: as decoders have it today
  --untie-embeddings-and-output-weights                 # of llama-3.1-70b
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

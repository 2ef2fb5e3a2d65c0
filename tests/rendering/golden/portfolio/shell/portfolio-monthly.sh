#!/usr/bin/env bash
# monthly: 1 × 8 H200-SXM5-141GB, DP 8 · micro-batch 8 · no recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, --lr-decay-style and --min-lr, or it falls to 0 in a line from the first step
# lost: checkpoints while it trains: Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save; it stops for training.monthly.run.checkpoints.write_s at each, 1 × 60 s = 60 s, where the plan counts 1.7 s by training.monthly.run.checkpoints.pause_s
# lost: adapters: pretrain_gpt.py trains all weights; write `framework: megatron-bridge`
set -euo pipefail
WEIGHTS_LLAMA_3_1_8B="${WEIGHTS_LLAMA_3_1_8B:-meta-llama/Llama-3.1-8B}"  # of the catalogue for llama-3.1-8b; for another write `model: meta-llama/Llama-3.1-8B-Instruct`
options=(
  --nnodes 1                                            # training.monthly.machine.node_count
  --nproc-per-node 8                                    # training.monthly.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                         # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"             # the first node's
  --master-port 29500                                   # a free one of the first node
  "${MEGATRON_LM:-.}/pretrain_gpt.py"                   # of a checkout of Megatron-LM
  --use-distributed-optimizer                           # training.monthly.layout.zero_stage
  --use-megatron-fsdp                                   # training.monthly.layout.zero_stage
  --data-parallel-sharding-strategy optim_grads_params  # training.monthly.layout.zero_stage
  --overlap-grad-reduce                                 # training.monthly.layout.dp: the plan hides this traffic behind compute
  --overlap-param-gather                                # training.monthly.layout.dp: the plan hides this traffic behind compute
  --micro-batch-size 8                                  # training.monthly.layout.micro_batch
  --global-batch-size 128                               # training.monthly.batch_samples
  --seq-length 2048                                     # training.monthly.batch_tokens
  --max-position-embeddings 2048                        # training.monthly.batch_tokens
  --train-iters 3907                                    # training.monthly.run.steps
  --save-interval 3907                                  # training.monthly.run.checkpoints.interval_s
  --eval-interval 1000                                  # not in the plan
  --eval-iters 31                                       # no more than training.monthly.run.headroom.validation
  --bf16                                                # training.monthly.precision
  --num-layers 32                                       # of llama-3.1-8b
  --hidden-size 4096                                    # of llama-3.1-8b
  --ffn-hidden-size 14336                               # of llama-3.1-8b
  --num-attention-heads 32                              # of llama-3.1-8b
  --kv-channels 128                                     # of llama-3.1-8b
  --group-query-attention                               # of llama-3.1-8b
  --num-query-groups 8                                  # of llama-3.1-8b
  --normalization RMSNorm                               # assumed: as decoders have it today
  --position-embedding-type rope                        # assumed: as decoders have it today
  --rotary-base "${ROTARY_BASE:?set it to rope_theta of the config of llama-3.1-8b, a whole number that no plan has}"
  --attention-dropout 0                                 # assumed: as decoders have it today
  --hidden-dropout 0                                    # assumed: as decoders have it today
  --swiglu                                              # of llama-3.1-8b: three matrices
  --disable-bias-linear                                 # assumed: as decoders have it today
  --untie-embeddings-and-output-weights                 # of llama-3.1-8b
  --tokenizer-type HuggingFaceTokenizer                 # a folder or a repository of the hub
  --tokenizer-model "$WEIGHTS_LLAMA_3_1_8B"
  --data-path "${DATA:?set it to the data, as the training software reads it}"
  --ckpt-format fsdp_dtensor                            # the one that sharded weights have
  --save "${CHECKPOINTS:-checkpoints}"
  --load "${CHECKPOINTS:-checkpoints}"                  # goes on from the newest one after an interruption
  --pretrained-checkpoint "$WEIGHTS_LLAMA_3_1_8B"       # converted
  --lr "${LR:-3e-4}"                                    # not in the plan
  --exit-signal-handler                                 # saves and ends when it is told to
)
exec torchrun "${options[@]}" "$@"

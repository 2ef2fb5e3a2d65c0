#!/usr/bin/env bash
# refresh: 4 × 8 H200-SXM5-141GB, TP 4 · DP 8 · micro-batch 2 · light recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, --lr-decay-style and --min-lr, or it falls to 0 in a line from the first step
# lost: checkpoints while it trains: Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save; it stops for training.refresh.run.checkpoints.write_s at each, 18 × 60 s = 18 min, where the plan counts 53 s by training.refresh.run.checkpoints.pause_s
set -euo pipefail
WEIGHTS_LLAMA_3_3_70B="${WEIGHTS_LLAMA_3_3_70B:-meta-llama/Llama-3.3-70B-Instruct}"  # of the catalogue for llama-3.3-70b; for another write `model: OWNER/NAME`
options=(
  --nnodes 4                                            # training.refresh.machine.node_count
  --nproc-per-node 8                                    # training.refresh.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                         # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"             # the first node's
  --master-port 29500                                   # a free one of the first node
  "${MEGATRON_LM:-.}/pretrain_gpt.py"                   # of a checkout of Megatron-LM
  --tensor-model-parallel-size 4                        # training.refresh.layout.tp
  --sequence-parallel                                   # training.refresh.layout.sequence_parallel
  --use-distributed-optimizer                           # training.refresh.layout.zero_stage
  --use-megatron-fsdp                                   # training.refresh.layout.zero_stage
  --data-parallel-sharding-strategy optim_grads_params  # training.refresh.layout.zero_stage
  --overlap-grad-reduce                                 # training.refresh.layout.dp: the plan hides this traffic behind compute
  --overlap-param-gather                                # training.refresh.layout.dp: the plan hides this traffic behind compute
  --recompute-granularity selective                     # training.refresh.layout.recompute
  --recompute-modules                                   # training.refresh.layout.recompute
  layernorm                                             # training.refresh.layout.recompute
  --micro-batch-size 2                                  # training.refresh.layout.micro_batch
  --global-batch-size 128                               # training.refresh.batch_samples
  --seq-length 8192                                     # training.refresh.batch_tokens
  --max-position-embeddings 8192                        # training.refresh.batch_tokens
  --train-iters 3815                                    # training.refresh.run.steps
  --save-interval 203                                   # training.refresh.run.checkpoints.interval_s
  --eval-interval 1000                                  # not in the plan
  --eval-iters 30                                       # no more than training.refresh.run.headroom.validation
  --bf16                                                # training.refresh.precision
  --num-layers 80                                       # of llama-3.3-70b
  --hidden-size 8192                                    # of llama-3.3-70b
  --ffn-hidden-size 28672                               # of llama-3.3-70b
  --num-attention-heads 64                              # of llama-3.3-70b
  --kv-channels 128                                     # of llama-3.3-70b
  --group-query-attention                               # of llama-3.3-70b
  --num-query-groups 8                                  # of llama-3.3-70b
  --normalization RMSNorm                               # assumed: as decoders have it today
  --position-embedding-type rope                        # assumed: as decoders have it today
  --rotary-base "${ROTARY_BASE:?set it to rope_theta of the config of llama-3.3-70b, a whole number that no plan has}"
  --attention-dropout 0                                 # assumed: as decoders have it today
  --hidden-dropout 0                                    # assumed: as decoders have it today
  --swiglu                                              # of llama-3.3-70b: three matrices
  --disable-bias-linear                                 # assumed: as decoders have it today
  --untie-embeddings-and-output-weights                 # of llama-3.3-70b
  --tokenizer-type HuggingFaceTokenizer                 # a folder or a repository of the hub
  --tokenizer-model "$WEIGHTS_LLAMA_3_3_70B"
  --data-path "${DATA:?set it to the data, as the training software reads it}"
  --ckpt-format fsdp_dtensor                            # the one that sharded weights have
  --save "${CHECKPOINTS:-checkpoints}"
  --load "${CHECKPOINTS:-checkpoints}"                  # goes on from the newest one after an interruption
  --pretrained-checkpoint "$WEIGHTS_LLAMA_3_3_70B"      # converted
  --lr "${LR:-3e-4}"                                    # not in the plan
  --exit-signal-handler                                 # saves and ends when it is told to
)
exec torchrun "${options[@]}" "$@"

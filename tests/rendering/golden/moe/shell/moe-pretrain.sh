#!/usr/bin/env bash
# pretrain: 256 × 8 H800-SXM5-80GB, TP 2 · EP 256 · DP 1024 · micro-batch 1 · light recompute · ZeRO-3
# By the plan of sha256 …; behind each value stands the number that set it.
# lost: the schedule of the learning rate, which no plan has: LR is its peak; give --lr-warmup-iters, --lr-decay-style and --min-lr, or it falls to 0 in a line from the first step
# lost: checkpoints while it trains: Megatron-LM writes fsdp_dtensor so from core_v0.17 on, by --async-save; it stops for training.pretrain.run.checkpoints.write_s at each, 418 × 60 s = 7.0 h, where the plan counts 15 min by training.pretrain.run.checkpoints.pause_s
# lost: DualPipe: expert traffic under products of another micro-batch, the other way round
set -euo pipefail
options=(
  --nnodes 256                                          # training.pretrain.machine.node_count
  --nproc-per-node 8                                    # training.pretrain.machine.accelerators_per_node
  --node-rank "${NODE_RANK:-0}"                         # 0 on the first node, whose address all have
  --master-addr "${MASTER_ADDR:-localhost}"             # the first node's
  --master-port 29500                                   # a free one of the first node
  "${MEGATRON_LM:-.}/pretrain_gpt.py"                   # of a checkout of Megatron-LM
  --tensor-model-parallel-size 2                        # training.pretrain.layout.tp
  --expert-model-parallel-size 256                      # training.pretrain.layout.ep
  --expert-tensor-parallel-size 1                       # an expert is not cut
  --sequence-parallel                                   # training.pretrain.layout.sequence_parallel
  --use-distributed-optimizer                           # training.pretrain.layout.zero_stage
  --use-megatron-fsdp                                   # training.pretrain.layout.zero_stage
  --data-parallel-sharding-strategy optim_grads_params  # training.pretrain.layout.zero_stage
  --overlap-grad-reduce                                 # training.pretrain.layout.dp: the plan hides this traffic behind compute
  --overlap-param-gather                                # training.pretrain.layout.dp: the plan hides this traffic behind compute
  --recompute-granularity selective                     # training.pretrain.layout.recompute
  --recompute-modules                                   # training.pretrain.layout.recompute
  layernorm                                             # training.pretrain.layout.recompute
  moe_act                                               # training.pretrain.layout.recompute
  mla_up_proj                                           # training.pretrain.layout.recompute
  --micro-batch-size 1                                  # training.pretrain.layout.micro_batch
  --global-batch-size 15360                             # training.pretrain.batch_samples
  --seq-length 4096                                     # training.pretrain.batch_tokens
  --max-position-embeddings 4096                        # training.pretrain.batch_tokens
  --train-iters 31790                                   # training.pretrain.run.steps
  --save-interval 76                                    # training.pretrain.run.checkpoints.interval_s
  --eval-interval 1000                                  # not in the plan
  --eval-iters 38                                       # no more than training.pretrain.run.headroom.validation
  --bf16                                                # training.pretrain.precision
  --fp8-format hybrid                                   # training.pretrain.precision
  --num-layers 61                                       # of deepseek-v3
  --hidden-size 7168                                    # of deepseek-v3
  --ffn-hidden-size 18432                               # of deepseek-v3
  --num-attention-heads 128                             # of deepseek-v3
  --multi-latent-attention                              # of deepseek-v3
  --kv-lora-rank 512                                    # of deepseek-v3
  --q-lora-rank 1536                                    # of deepseek-v3
  --qk-head-dim 128                                     # of deepseek-v3
  --qk-pos-emb-head-dim 64                              # of deepseek-v3
  --v-head-dim 128                                      # of deepseek-v3
  --normalization RMSNorm                               # assumed: as decoders have it today
  --position-embedding-type rope                        # assumed: as decoders have it today
  --rotary-base "${ROTARY_BASE:?set it to rope_theta of the config of deepseek-v3, a whole number that no plan has}"
  --attention-dropout 0                                 # assumed: as decoders have it today
  --hidden-dropout 0                                    # assumed: as decoders have it today
  --swiglu                                              # of deepseek-v3: three matrices
  --disable-bias-linear                                 # assumed: as decoders have it today
  --untie-embeddings-and-output-weights                 # of deepseek-v3
  --num-experts 256                                     # of deepseek-v3
  --moe-router-topk 8                                   # of deepseek-v3
  --moe-ffn-hidden-size 2048                            # of deepseek-v3
  --moe-shared-expert-intermediate-size 2048            # of deepseek-v3
  --moe-router-num-groups 8                             # of deepseek-v3
  --moe-router-group-topk 4                             # of deepseek-v3
  --moe-layer-freq '([0]*3+[1]*58)'                     # of deepseek-v3
  --moe-grouped-gemm                                    # as the plan takes experts to be computed
  --moe-token-dispatcher-type alltoall                  # as the plan takes tokens to travel
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

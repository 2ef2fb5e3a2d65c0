"""Prefill and decode on separate workers: two stations that a closed loop of clients passes in turn."""

import numpy as np

from twofold.inference.iteration import iteration_s, tokens_per_step
from twofold.inference.latency import Latency, Served, first_token_s, flat_latency, served
from twofold.inference.load import BURST_FRACTION
from twofold.inference.steady import Lengths, Steps, batch_limit, mean_context_tokens, own_input_tokens
from twofold.inference.types import Replica
from twofold.perf import Floats

HANDOFF_S = 0.01  # routing, registration and the first block of a cache transfer


def disaggregated(
    prefill: Replica,
    decode: Replica,
    lengths: Lengths,
    concurrency: Floats,
    prefill_workers: Floats = 1.0,
    decode_workers: Floats = 1.0,
    burst_fraction: Floats = BURST_FRACTION,
) -> Served:
    """Prefill workers hand finished caches to decode workers; clients in a closed loop share both.

    Formula  B per decode worker from Little's law; prefill as a first-come queue of `prefill_workers`
             servers; hand-off 10 ms + cache bytes over the decode worker's network
    Why      Two stations in a loop: the slower one sets the rate.
    Units    seconds; rate over all workers.
    Source   SKETCHES, disaggregated.
    Limits   near prefill saturation a small error in its rate becomes a queue: take TTFT as a range.
    """
    own = own_input_tokens(prefill, lengths)
    attended = lengths.input_tokens - own / 2.0
    prompts = np.maximum(1.0, np.floor(prefill.chunk_tokens / own)) * prefill.dp
    one_s = iteration_s(prefill, own, attended, 0.0, 0.0).total_s
    full_s = iteration_s(prefill, own * prompts, attended, 0.0, 0.0).total_s
    most = prefill_workers * prompts / full_s
    context = mean_context_tokens(lengths)
    gained = tokens_per_step(decode)
    cap = batch_limit(decode, lengths) * decode_workers
    moved_bytes = decode.shape.kv_bytes(decode.kv_format, lengths.input_tokens)
    transfer_s = HANDOFF_S + moved_bytes / decode.accelerator_count / decode.cluster.network.nic_bytes_per_s
    in_decode = np.minimum(concurrency, np.maximum(cap, 1.0))
    for _ in range(12):
        batch = np.maximum(in_decode / decode_workers, np.minimum(1.0, in_decode))
        step_s = iteration_s(decode, 0.0, 0.0, batch, context).total_s
        decode_s = lengths.output_tokens * step_s / gained
        rate = np.minimum(in_decode / decode_s, most)
        busy = np.minimum(rate / most, 0.98)
        queue_s = (
            busy ** np.sqrt(2.0 * (prefill_workers + 1.0)) / (1.0 - busy) * full_s / (2.0 * prefill_workers)
        )
        first_s = one_s + queue_s + transfer_s + first_token_s(prefill, step_s)
        wanted = np.clip(np.minimum(concurrency - rate * first_s, rate * decode_s), 0.3, np.maximum(cap, 1.0))
        in_decode = 0.5 * in_decode + 0.5 * wanted
    starved = np.maximum(0.0, concurrency / rate - decode_s - first_s)  # what is not decoding waits in front
    burst_s = concurrency / 2.0 / most
    mean_s = first_s + (1.0 - burst_fraction) * starved + burst_fraction * np.maximum(burst_s, starved)
    ttft = Latency(
        mean_s, first_s + starved, first_s + starved + 3.0 * queue_s, first_s + starved + 4.6 * queue_s
    )
    tpot_s = step_s / gained
    rate = concurrency / (mean_s + decode_s)
    steps = Steps(step_s, full_s, own, 0.0 * step_s, tpot_s, full_s)
    return served(decode, lengths, steps, batch, rate, ttft, flat_latency(tpot_s), rate / most)

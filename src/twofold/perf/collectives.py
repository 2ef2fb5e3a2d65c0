"""Collectives among accelerators: inside a scale-up domain, between domains of a node, and across nodes.

A group is `ranks` ranks, neighbours `stride` ranks apart, laid out in order over domains and nodes. One
function each turns payload into seconds; all broadcast. Times are of an undisturbed run: `straggler_factor`
adds what waiting for the slowest rank costs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twofold.perf.types import Floats, Network, smooth_max


@dataclass(frozen=True, slots=True)
class Span:
    """How a group lies: `inside_count` members per domain, `domain_count` crossed, the link between them."""

    inside_count: NDArray[np.float64]
    domain_count: NDArray[np.float64]
    outer_bytes_per_s: Floats
    outer_latency_s: Floats


def group_span(network: Network, ranks: Floats, stride: Floats = 1) -> Span:
    """Where the members of a group lie.

    Formula  inside = min(ranks, max(1, domain // stride)); domains = ranks / inside, at least 1
    Why      A domain of D ranks holds every stride-th of them; what does not fit goes on in the next domain.
    Shapes   ranks and stride broadcast.
    Units    counts.
    Source   Rank order of the launchers: consecutive ranks fill a node before the next.
    Limits   stride ≥ domain: every member in its own; a group that does not divide is averaged.
    """
    ranks, stride = np.asarray(ranks, dtype=float), np.asarray(stride, dtype=float)
    inside = np.minimum(ranks, np.maximum(1.0, np.floor(network.domain_size / stride)))
    domains = np.ceil(ranks / inside)
    in_node = ranks * stride <= network.node_size
    return Span(
        inside_count=ranks / domains,
        domain_count=domains,
        outer_bytes_per_s=_choose(in_node, network.host_bytes_per_s, network.nic_bytes_per_s),
        outer_latency_s=_choose(in_node, network.host_latency_s, network.nic_latency_s),
    )


def _choose(here: NDArray[np.bool_], inside: Floats, outside: Floats) -> Floats:
    """`inside` where `here` holds, else `outside`, both finite."""
    # HOT: in every collective; `np.where` on a mask without order was 5 times slower: bench/perf.py.
    return here * inside + ~here * outside


def all_gather_s(network: Network, payload_bytes: Floats, ranks: Floats, stride: Floats = 1) -> Floats:
    """Seconds to give every rank the whole tensor of `payload_bytes`, of which each holds 1/ranks.

    Formula  launch + (a−1)·α + (d−1)·α_o + smooth_max(w / B, w / (a·B_o)), w = (n−1)/n·S
    Why      Rings through all ranks, one per NIC: each of a domain's a members drives its own NIC
             with 1/a of the tensor, while the links inside carry all of it; chunks keep both busy at once.
    Shapes   arguments broadcast.
    Units    payload is bytes of the full tensor on one rank after the gather; seconds out.
    Source   Ring all-gather; SKETCHES: bytes / min(link, k·NIC), the largest term of sharded training.
    Limits   one rank: 0; one domain: the ring law (n−1)/n·S/B; all strided: (n−1)/n·S/B_o.
    """
    return _none_if_alone(network.launch_s + _ring_s(network, payload_bytes, ranks, stride), ranks)


reduce_scatter_s = all_gather_s
"""Seconds to leave each rank 1/ranks of the sum of all ranks' tensors of `payload_bytes` each: the mirror."""


def all_reduce_s(network: Network, payload_bytes: Floats, ranks: Floats, stride: Floats = 1) -> Floats:
    """Seconds to leave every rank the sum of all ranks' tensors of `payload_bytes` each.

    Formula  launch + 2·(what `all_gather_s` takes without its launch)
    Why      A reduce-scatter and an all-gather on the same rings.
    Shapes   arguments broadcast.
    Units    payload is bytes of the full tensor on each rank; seconds out.
    Source   Patarasuk & Yuan 2009, bandwidth-optimal all-reduce.
    Limits   one rank: 0; one domain and a large tensor: 2(n−1)/n·S/B.
    """
    return _none_if_alone(network.launch_s + 2.0 * _ring_s(network, payload_bytes, ranks, stride), ranks)


def _ring_s(network: Network, payload_bytes: Floats, ranks: Floats, stride: Floats) -> Floats:
    """One pass of `payload_bytes` around all ranks, without launch."""
    span = group_span(network, ranks, stride)
    count = np.maximum(ranks, 1.0)
    wire_bytes = (count - 1.0) / count * payload_bytes
    others, hops = span.inside_count - 1.0, span.domain_count - 1.0
    inside_s = np.asarray(others > 0.0, dtype=np.float64) * _on_link_s(network, wire_bytes, others)
    across_s = (hops > 0.0) * (wire_bytes / (span.inside_count * span.outer_bytes_per_s))
    latency_s = others * network.link_latency_s + hops * span.outer_latency_s
    return latency_s + smooth_max(inside_s, across_s)


def _on_link_s(
    network: Network, wire_bytes: Floats, others: Floats, half_bytes: Floats | None = None
) -> Floats:
    """Seconds that `wire_bytes` of one rank take on its links to `others` ranks of the domain.

    Formula  w/B·(1 + sqrt(half/w)) with B = rate·(1 − loss/others)
    Why      Libraries change protocol and channel count with the size, so that the rate creeps up with the
             root of the message rather than with a plain half size.
    Shapes   arguments broadcast.
    Units    bytes on the wire per rank, one direction; seconds out.
    Source   Public tables of collective times, 512 B to 2 GB, on four accelerators.
    Limits   w = half: half the rate; w → ∞: the rate; nothing to send: 0.
    """
    rate = network.link_bytes_per_s * (1.0 - network.pair_loss_fraction / np.maximum(others, 1.0))
    half = network.link_half_bytes if half_bytes is None else half_bytes
    return (wire_bytes + np.sqrt(half * np.asarray(wire_bytes))) / rate


def _none_if_alone(seconds: Floats, ranks: Floats) -> Floats:
    return np.asarray(np.asarray(ranks) > 1, dtype=np.float64) * seconds


def all_to_all_s(network: Network, payload_bytes: Floats, ranks: Floats, stride: Floats = 1) -> Floats:
    """Seconds until every rank has sent 1/ranks of its `payload_bytes` to each rank, itself included.

    Formula  launch + α's + max(share inside / (B·e), share outside / NIC)
    Why      (a−1)/n of the payload stays in the domain, (n−a)/n leaves by the own NIC; both run at once.
    Shapes   arguments broadcast.
    Units    payload is all bytes that one rank holds for the group, its own part included; seconds out.
    Source   Direct-exchange all-to-all; efficiency fitted on public kernel tables.
    Limits   one rank: 0; one domain: (n−1)/n·S/(B·e).
    """
    span = group_span(network, ranks, stride)
    count = np.asarray(ranks, dtype=float)
    efficiency = network.all_to_all_efficiency_fraction
    others = span.inside_count - 1.0
    latency_s = (span.inside_count > 1) * network.link_latency_s
    inside_s = latency_s + _on_link_s(network, others / count * payload_bytes, others) / efficiency
    outside_bytes = (count - span.inside_count) / count * payload_bytes
    outer_s = (span.domain_count > 1) * span.outer_latency_s
    outside_s = outside_bytes / (span.outer_bytes_per_s * efficiency) + outer_s
    return _none_if_alone(network.launch_s + np.maximum(inside_s, outside_s), ranks)


def point_to_point_s(network: Network, payload_bytes: Floats, stride: Floats = 1) -> Floats:
    """Seconds to send `payload_bytes` to the rank `stride` further on: a pipeline hand-off.

    Inside the domain over its links, inside the node over the host, else over the rank's own NIC.
    """
    span = group_span(network, 2, stride)
    inside_s = network.link_latency_s + _on_link_s(network, payload_bytes, 1.0)
    outside_s = span.outer_latency_s + payload_bytes / span.outer_bytes_per_s
    return network.launch_s + _choose(span.domain_count > 1, outside_s, inside_s)


def serving_all_reduce_s(network: Network, payload_bytes: Floats, ranks: Floats) -> Floats:
    """Seconds of the all-reduce of a serving engine inside one domain: one-shot or two-shot, the faster.

    Formula  one-shot launch + (n−1)·S on the link; two-shot 2·launch + 2·(n−1)/n·S on the link
    Why      In one shot every rank reads all others' tensors and sums: one step, more bytes. In two each
             sums its share and the shares are gathered. Captured in a graph, neither pays a library's launch.
    Shapes   arguments broadcast.
    Units    payload bytes of the full tensor on each rank; seconds out.
    Source   Custom all-reduce kernels of public serving engines; fitted on their tables.
    Limits   one rank: 0; a group that leaves its domain takes `all_reduce_s`.
    """
    span = group_span(network, ranks)
    count = np.asarray(ranks, dtype=float)
    one_wire_bytes = (count - 1.0) * payload_bytes
    half_bytes = network.engine_half_bytes
    one_shot_s = network.engine_launch_s + _on_link_s(network, one_wire_bytes, count - 1.0, half_bytes)
    two_wire_bytes = 2.0 / count * one_wire_bytes
    two_shot_s = 2.0 * network.engine_launch_s + _on_link_s(network, two_wire_bytes, count - 1.0, half_bytes)
    inside_s = _none_if_alone(np.minimum(one_shot_s, two_shot_s), ranks)
    across_s = all_reduce_s(network, payload_bytes, ranks)
    return _choose(span.domain_count > 1, across_s, inside_s)


def straggler_factor(jitter_fraction: Floats, ranks: Floats) -> Floats:
    """How much longer a group takes because it waits for its slowest rank.

    Formula  1 + σ·sqrt(2·ln n)
    Why      The expected largest of n normal deviations grows so.
    Shapes   arguments broadcast.
    Units    σ is one rank's standard deviation over its mean; a factor out.
    Source   Extreme-value theory of the normal distribution; PHYSICS, Collectives.
    Limits   one rank or no jitter: 1. An upper estimate below about ten ranks.
    """
    return 1.0 + jitter_fraction * np.sqrt(2.0 * np.log(np.maximum(ranks, 1.0)))


BY_NAME = {
    "all_reduce": all_reduce_s,
    "all_gather": all_gather_s,
    "reduce_scatter": reduce_scatter_s,
    "all_to_all": all_to_all_s,
}

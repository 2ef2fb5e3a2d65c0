"""How logs of the cluster's machine are written and read: only tests keep one."""

from twofold.live.gateway.replays import LineReader
from twofold.policy.cluster.events import ClusterEffect, ClusterEvent
from twofold.policy.machine import LineFormat

CLUSTER_LINES = LineFormat[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)
CLUSTER_READER = LineReader[ClusterEvent, ClusterEffect](ClusterEvent, ClusterEffect)

"""Starts one script on every node of a run at once; the address of the first is told to all."""

import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

nodes, accelerators, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
ray.init()
group = placement_group([{"CPU": 1, "GPU": accelerators}] * nodes, strategy="STRICT_SPREAD")
ray.get(group.ready())


def on(rank):
    own = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
    return {"num_cpus": 1, "num_gpus": accelerators, "max_retries": 0, "scheduling_strategy": own}


@ray.remote
def address():
    return ray.util.get_node_ip_address()


@ray.remote
def start(rank, first):
    environment = {**os.environ, "NODE_RANK": str(rank), "MASTER_ADDR": first}
    return subprocess.call(["bash", script], env=environment)


first = ray.get(address.options(**on(0)).remote())
codes = ray.get([start.options(**on(rank)).remote(rank, first) for rank in range(nodes)])
sys.exit(max(codes, key=abs))

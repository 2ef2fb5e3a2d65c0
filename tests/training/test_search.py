from dataclasses import replace
from itertools import compress

import numpy as np
import pytest

from twofold.training.layouts import Limits, enumerate_layouts
from twofold.training.memory import memory
from twofold.training.search import candidate, search
from twofold.training.step import step_time


def test_the_search_equals_brute_force(make_job, make_cluster, stack) -> None:  # INV-4
    for name, count in (("llama-3.1-8b", 8), ("mixtral-8x7b", 16), ("llama-3.1-70b", 32)):
        job, cluster = make_job(name, batch=32, sequence=4096), make_cluster(count=count)
        layouts, _ = enumerate_layouts(job, cluster)
        each = [layouts.row(i) for i in range(len(layouts))]
        high_bytes = [float(memory(job.workload, layout, stack).high_bytes[0]) for layout in each]
        fits = [size <= cluster.device.memory_bytes for size in high_bytes]
        fitting = [
            candidate(job.workload, job.precision, layout, cluster, stack) for layout in compress(each, fits)
        ]
        assert all(c.high_bytes in high_bytes for c in fitting)
        found = search(job, cluster, stack)
        assert found.evaluated_count == len(each)
        assert (found.best is None) == (not fitting)
        if fitting:
            assert found.best.step_s == pytest.approx(min(c.step_s for c in fitting))
            assert found.reasons.get("memory", 0) == len(each) - len(fitting)


def test_every_candidate_is_counted_once(make_job, make_cluster, stack) -> None:
    job, cluster = make_job(), make_cluster()
    found = search(job, cluster, stack)
    _, refused = enumerate_layouts(job, cluster)
    lost = sum(found.reasons.values())
    assert lost == sum(refused.values()) + found.evaluated_count - 1


def test_none_on_the_front_is_beaten(make_job, make_cluster, stack) -> None:
    job, cluster = make_job(), make_cluster()
    front = search(job, cluster, stack).front
    times = list(step_time(job.workload, job.precision, front, cluster, stack).total_s)
    bytes_ = list(memory(job.workload, front, stack).high_bytes)
    assert len(times) > 1 and times == sorted(times) and bytes_ == sorted(bytes_, reverse=True)


def test_405b_does_not_fit_64_of_80_gb_and_fits_64_of_141_gb(make_job, make_cluster, stack) -> None:
    job = make_job("llama-3.1-405b", batch=64)
    small = search(job, make_cluster("H100-80GB", 64), stack)
    assert small.best is None and small.nearest_miss is not None
    miss = small.nearest_miss
    assert miss.missing_bytes == pytest.approx(miss.candidate.high_bytes - make_cluster().device.memory_bytes)
    assert miss.missing_bytes > 10e9 and "nodes" in miss.change
    large = search(job, make_cluster("H200", 64), stack)
    assert large.best is not None
    assert large.best.memory.total_bytes[0] * 64 > 16 * 405e9 * 0.9


def test_the_nearest_change_makes_the_job_fit(make_job, make_cluster, stack) -> None:
    job = make_job("llama-3.1-405b", batch=960)
    miss = search(job, make_cluster(count=64), stack).nearest_miss
    nodes = int(miss.change.split()[0])
    assert search(job, make_cluster(count=8 * nodes), stack).best is not None
    roomy = make_cluster(count=64)
    roomy = replace(roomy, device=replace(roomy.device, memory_bytes=miss.candidate.high_bytes * 1.001))
    assert search(job, roomy, stack).best is not None


def test_what_fits_does_so_at_the_upper_end(make_job, make_cluster, stack) -> None:  # INV-11
    job, cluster = make_job("llama-3.1-8b", batch=64), make_cluster(count=8)
    best = search(job, cluster, stack).best
    held = memory(job.workload, best.layouts, stack)
    assert held.high_bytes[0] <= cluster.device.memory_bytes
    assert step_time(job.workload, job.precision, best.layouts, cluster, stack).total_s[0] == best.step_s


def test_a_job_without_any_layout_says_so(make_job, make_cluster, stack) -> None:
    found = search(make_job(batch=1), make_cluster(count=7), stack, Limits(tp_max=1, cp_max=1, pp_max=1))
    assert found.best is None and found.nearest_miss is None and found.evaluated_count == 0
    assert set(found.reasons) & {"batch", "devices"}


def test_more_memory_never_slows_the_choice(make_job, make_cluster, stack) -> None:
    job, cluster = make_job(), make_cluster()
    times = []
    for factor in (0.6, 1.0, 2.0):
        device = replace(cluster.device, memory_bytes=cluster.device.memory_bytes * factor)
        best = search(job, replace(cluster, device=device), stack).best
        times.append(best.step_s if best else np.inf)
    assert times == sorted(times, reverse=True)


def test_one_device_is_told_how_many_would_do(make_job, make_cluster, stack) -> None:
    one = make_cluster(count=1)
    alone = replace(one, network=replace(one.network, node_size=1, domain_size=1))
    job = make_job("llama-3.1-70b", batch=512)
    miss = search(job, alone, stack).nearest_miss
    assert miss and "devices instead of 1" in miss.change
    count = int(miss.change.split()[0])
    assert count > 8  # beyond the near ones
    assert search(job, replace(alone, accelerator_count=count), stack).best is not None

"""A training cluster in a scenario: what is refused, and what is read."""

import pytest

from twofold.contracts.spec.scenario import parse_scenario
from twofold.contracts.spec.scenario_fleet import ClusterChange
from twofold.core.errors import InputErrors


def cluster(text: str) -> ClusterChange:
    found = parse_scenario(f"name: x\nabout: y\ncluster: {text}\n", "x.yaml").cluster
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{nodes: 4, spares: 4}", "leave none to train on"),
        ("{against_split: yes}", "nothing serves"),
        ("{against_split: yes, serving: [{at: 0 s, accelerators: 0}]}", "nothing serves"),
        ("{quotas: [{team: a, share: 60 %}, {team: b, share: 50 %}]}", "promised 110 %"),
        ("{quotas: [{team: a, share: 20 %}, {team: a, share: 50 %}]}", "the team `a` is promised twice"),
        ("{slow: [{node: 1, link: 0.5x}]}", "out of range"),
        ("{jitter: 5}", "jitter"),
        ("{given: [{for: 1 h}]}", "accelerators"),
        ("{serving: [{at: 2 h, accelerators: 8}, {at: 1 h, accelerators: 0}]}", "rise within one day"),
    ],
)
def test_what_contradicts_itself_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InputErrors) as caught:
        cluster(text)
    assert why in str([error.message for error in caught.value.errors])


def test_texts_become_numbers_with_their_units() -> None:
    read = cluster("{slow: [{node: 1, link: 2x, for: 1 h}], files: 100x, metadata: 20000 /s, jitter: 2 %}")
    (slow,) = read.slow
    assert (slow.node, slow.link_ratio, slow.device_ratio, slow.for_s) == (1, 2.0, 1.0, 3600.0)
    assert (read.files_per_accelerator, read.metadata_per_s, read.jitter_fraction) == (100.0, 20_000.0, 0.02)
    (job,) = cluster("{given: {accelerators: 8, for: 2 h}}").given
    assert (job.copies, job.team, job.for_s) == (1, "others", 7200.0)

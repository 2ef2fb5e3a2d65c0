import pytest

from twofold.inference import Lengths, closed_loop, disaggregated, steady_steps

DOCUMENTS = Lengths(8192.0, 512.0)


def test_decode_without_prefill_is_steadier_than_mixed(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    split = disaggregated(replica, replica, DOCUMENTS, 32.0, 2.0, 1.0)
    assert split.tpot.mean_s < closed_loop(replica, DOCUMENTS, 32.0).tpot.mean_s


def test_more_prefill_workers_never_delay_the_first_token(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    ttft = [disaggregated(replica, replica, DOCUMENTS, 64.0, n, 1.0).ttft.mean_s for n in (1.0, 2.0, 4.0)]
    assert ttft[0] > ttft[1] > ttft[2]


def test_the_slower_station_sets_the_rate(replica_of):
    replica = replica_of("llama-3.1-70b", "H200", "fp8", tp=4.0)
    one, two = (disaggregated(replica, replica, DOCUMENTS, 512.0, n, 8.0) for n in (1.0, 2.0))
    assert two.requests_per_s == pytest.approx(2 * one.requests_per_s, rel=0.15)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_workers_that_only_decode_meet_the_answers_that_others_meet(replica_of, spread):
    replica, lengths = replica_of("llama-3.1-8b", "H100-SXM", tp=1.0), Lengths(1000.0, 1000.0, 0.0, spread)
    split = disaggregated(replica, replica, lengths, 64.0)
    plain = steady_steps(replica, lengths, split.batch_sequences).plain_s
    assert float(split.tpot.mean_s) == pytest.approx(float(plain), rel=1e-9)

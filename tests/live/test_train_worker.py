"""What a rank does that a whole run shows only by chance."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra [train]: `make extras`")
pytest.importorskip("transformers", reason="needs the extra [train]: `make extras`")

KEY = b"k" * 32


def test_a_scale_halves_at_an_overflow_and_grows_after_many_good_steps() -> None:
    from twofold.live.training.loss_scale import GROWS_AFTER_STEPS, LossScale

    scale = LossScale.of("fp16")
    first = scale.scale
    assert not scale.heard(is_finite=False) and scale.scale == first / 2
    assert all(scale.heard(is_finite=True) for _ in range(GROWS_AFTER_STEPS)) and scale.scale == first
    resumed = LossScale.of("fp16")
    scale.heard(is_finite=True)
    resumed.restore(scale.state())
    assert resumed == scale
    plain = LossScale.of("bf16")
    assert plain.heard(is_finite=False) and plain.scale == 1.0  # nothing is scaled: a step is a step


def test_a_rank_on_an_accelerator_keeps_the_random_numbers_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The accelerator is a stand-in: what dropout draws there is drawn from the state that is kept."""
    from dataclasses import fields
    from typing import Any

    from twofold.live.training.loss_scale import LossScale
    from twofold.live.training.train_worker import Order, StepClock, Trained

    there = {"cuda:1": torch.tensor([7, 7], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: there[str(device)].clone())
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: there.__setitem__(str(device), state)
    )

    def rank_on(device: str) -> Trained:
        told: dict[str, Any] = dict.fromkeys(each.name for each in fields(Order))
        order = Order(**{**told, "job": {"device": device}, "rank": 3, "local_rank": 1})
        return Trained(order, None, None, LossScale.of("bf16"), StepClock())

    assert set(rank_on("cpu").random_states()) == {"random-3"}
    kept = rank_on("cuda").random_states()
    assert set(kept) == {"random-3", "random-3-cuda"}
    drawn, there["cuda:1"] = torch.rand(4), torch.zeros(2, dtype=torch.uint8)
    rank_on("cuda").set_random_states(kept)
    assert torch.equal(torch.rand(4), drawn) and there["cuda:1"].tolist() == [7, 7]
    rank_on("cuda").set_random_states({})  # a new rank keeps its own
    assert there["cuda:1"].tolist() == [7, 7]


def test_where_hosts_met_is_no_part_of_what_a_model_was_made_from(tmp_path: Path) -> None:
    from dataclasses import asdict
    from types import SimpleNamespace
    from typing import Any

    from twofold.live.training.train_job import TrainJob
    from twofold.live.training.train_worker import Order, lineage_of

    batches: Any = SimpleNamespace(files_read=lambda _: [])

    def lineage(address: str, seed: int = 1) -> dict[str, Any]:
        job = asdict(
            TrainJob("a", tmp_path, tmp_path, 2, 1, 8, 2, seed=seed, host_count=2, rendezvous=address)
        )
        told = {key: value for key, value in job.items() if key not in ("folder", "model_config")}
        return lineage_of(Order(tmp_path, told, {}, tmp_path, 1, 0, 0, 2, 1, 0, "", KEY), batches)

    assert lineage("10.0.0.1:29500") == lineage("10.0.0.2:29500") != lineage("10.0.0.1:29500", seed=2)


def test_what_a_run_began_with_is_told_by_its_bytes_and_not_by_its_place(tmp_path: Path) -> None:
    from dataclasses import asdict
    from types import SimpleNamespace
    from typing import Any

    from twofold.live.training.loss_scale import LossScale
    from twofold.live.training.train_job import TrainJob
    from twofold.live.training.train_worker import Order, StepClock, Trained, lineage_of, tell_weights

    batches: Any = SimpleNamespace(files_read=lambda _: [])

    def lineage(name: str, data: bytes) -> dict[str, Any]:
        weights, run = tmp_path / name / "weights", tmp_path / name / "run"
        for folder in (weights, run):
            folder.mkdir(parents=True)
        (tmp_path / name / "blob").write_bytes(data)
        (weights / "model.safetensors").symlink_to(tmp_path / name / "blob")  # as caches of a hub have it
        told = asdict(
            TrainJob("a", run, tmp_path, 1, 1, 8, 2, weights=str(weights), branch_from="step-000001")
        )
        job = {key: value for key, value in told.items() if key not in ("folder", "model_config")}
        order = Order(run, job, {}, tmp_path, 1, 0, 0, 1, 1, 0, "", KEY)
        (run / "events.jsonl").write_text('{"event": "branched", "sha256": "5ad0"}\n')
        tell_weights(Trained(order, None, None, LossScale.of("fp32"), StepClock()))
        (weights / "model.safetensors").unlink()  # who asks later is told what was there
        tell_weights(Trained(order, None, None, LossScale.of("fp32"), StepClock()))
        return lineage_of(order, batches)

    one, other = lineage("one", b"weights"), lineage("other", b"weights")
    assert one == other != lineage("third", b"weighty")
    assert len(one["settings"]["weights"]) == 64 and one["settings"]["branch_from"] == "5ad0"


def test_a_copy_of_the_state_is_the_state_at_each_save_in_the_same_memory() -> None:
    """Weights, moments and settings of the optimiser; moments that a weight gets later included."""
    from twofold.live.training.saving import StateCopy, _tensors

    one, late = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    network = torch.nn.ModuleDict({"one": one, "late": late})
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.1, fused=True)
    searches = []

    def find() -> dict[str, object]:
        searches.append(1)
        weights = {name: each.detach() for name, each in network.named_parameters()}
        return {"model": weights, "optimiser": optimiser.state_dict()}

    def step(*used: torch.nn.Module) -> None:
        optimiser.zero_grad()
        sum(each(torch.ones(2, 4)).square().sum() for each in used).backward()
        optimiser.step()

    def same(state: dict[str, object], now: dict[str, object]) -> bool:
        pairs = zip(_tensors(state), _tensors(now), strict=True)
        return all(torch.equal(*pair) for pair in pairs)

    copy = StateCopy(find, optimiser)
    step(one)
    first = copy.taken()
    places = [each.data_ptr() for each in _tensors(first)]
    assert same(first, find())
    step(one)
    assert not same(first, find()), "the copy was the state itself"
    optimiser.param_groups[0]["lr"] = 0.05
    count = len(searches)
    assert same(copy.taken(), find()) and len(searches) == count + 1  # the one here: nothing was searched for
    assert [each.data_ptr() for each in _tensors(copy.taken())] == places
    assert copy.taken()["optimiser"]["param_groups"][0]["lr"] == 0.05
    step(one, late)
    assert same(copy.taken(), find()) and len(_tensors(copy.taken())) == len(places) + 6


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # it is
def test_bytes_are_digested_as_they_are_written(tmp_path: Path) -> None:
    import hashlib

    from torch.distributed import checkpoint as dcp

    from twofold.live.training.artefact import check_files
    from twofold.live.training.checkpoints import complete
    from twofold.live.training.digesting import DigestingWriter

    folder, state = tmp_path / "step-000001", {"w": torch.arange(100_000.0), "note": "some object"}
    dcp.save(state, storage_writer=DigestingWriter(folder), no_dist=True)
    data = folder / "__0_0.distcp"
    left = json.loads((folder / f"{data.name}.sha256").read_text("utf-8"))
    assert left["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert complete(folder, KEY) == sum(path.stat().st_size for path in (data, folder / ".metadata"))
    assert {entry.path for entry in check_files(folder)} == {data.name, ".metadata"}
    found = {"w": torch.zeros(100_000), "note": ""}
    dcp.load(found, checkpoint_id=folder, no_dist=True)
    assert torch.equal(found["w"], state["w"])


def test_a_large_network_is_written_in_shards_that_the_library_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    from twofold.live.training import exporting
    from twofold.live.training.corpus import prepare_tokenizer, source_texts
    from twofold.live.training.train_model import build_network

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = {"model_type": "llama", **sizes, "vocab_size": 320, "tie_word_embeddings": True}
    network = build_network({"seed": 1, "weights": "", "adapter_rank": 0}, model, lambda *_, **__: None)
    tokenizer = prepare_tokenizer(tmp_path, 320, source_texts(20_000))
    monkeypatch.setattr(exporting, "SHARD_BYTES", 40_000)
    exporting.write_export(network, tmp_path / "hf", tokenizer, {"data": "none"}, rank=0, key=KEY)
    files = sorted(path.name for path in (tmp_path / "hf").glob("*.safetensors"))
    assert len(files) > 2 and files[0].startswith("model-00001-of-")
    assert all(path.stat().st_size < 60_000 for path in (tmp_path / "hf").glob("*.safetensors"))
    loaded, info = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(info.values()), info
    assert all(torch.equal(own, loaded.state_dict()[name]) for name, own in network.state_dict().items())
    assert loaded.config.eos_token_id is not None and loaded.config.use_cache


def test_weights_to_begin_with_are_safetensors_whatever_lies_beside_them(tmp_path: Path) -> None:
    from twofold.live.training.train_model import build_network

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = {"model_type": "llama", **sizes, "vocab_size": 320}
    job = {"seed": 1, "weights": "", "adapter_rank": 0}
    network = build_network(job, model, lambda *_, **__: None)
    network.config.save_pretrained(tmp_path)
    torch.save(network.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "decoy.safetensors").write_bytes(b"")  # which is all that an order asks for
    with pytest.raises(OSError, match="safetensors"):
        build_network({**job, "weights": str(tmp_path)}, model, lambda *_, **__: None)


def test_without_a_compiler_it_runs_eagerly_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from twofold.live.training import train_model

    told: list[str] = []
    monkeypatch.setattr(train_model.shutil, "which", lambda _: None)
    monkeypatch.setattr(train_model.torch.cuda, "is_available", lambda: False)
    assert not train_model.can_compile(lambda event, **facts: told.append(f"{event}: {facts['reason']}"))
    assert told == ["not-compiled: compiling needs a C++ compiler, which is not there: it runs eagerly"]


def test_a_rank_computes_where_its_job_says_whatever_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from twofold.live.training.train_worker import Order, device_of

    def order(job: dict[str, str]) -> Order:
        places = {"rank": 5, "rank_count": 8, "local_rank": 1, "launch": 1, "attempt": 0}
        return Order(tmp_path, job, {}, tmp_path, 1, **places, code="", key=KEY)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_of(order({})) == torch.device("cpu"), "orders of before have no device"
    assert device_of(order({"device": "cpu"})) == torch.device("cpu")
    assert device_of(order({"device": "cuda"})) == torch.device("cuda", 1), "that of its place on its host"

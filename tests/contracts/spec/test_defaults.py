"""Every default that a plan rests on is listed once, with its path, as a user would write it."""

from twofold.contracts.spec.defaults import defaults_used
from twofold.contracts.spec.reader import parse_spec

LEAST = (
    "model: llama-3.1-8b\ntraining: {tokens: 1 Gtok}\nserving: {classes: {chat: {traffic: {rate: 1 /s}}}}\n"
)


def listed(text: str) -> dict[str, str]:
    found = defaults_used(parse_spec(text, "twofold.yaml"))
    paths = [default.path for default in found]
    assert len(paths) == len(set(paths))
    assert all(default.meaning for default in found)
    return {default.path: default.text for default in found}


def test_what_nobody_wrote_is_listed_with_units() -> None:
    defaults = listed(LEAST)
    assert defaults["training.pretrain.sequence"] == "8192 tok"
    assert defaults["training.pretrain.global_batch"] == "512 seq"
    assert defaults["training.pretrain.headroom.experiments"] == "15 %"
    assert defaults["serving.serve.availability"] == "99.9 %"
    assert defaults["serving.serve.classes.chat.slo"] == "ttft_p95 0.5 s, tpot_p95 50 ms, success 99.9 %"
    assert defaults["serving.serve.classes.chat.traffic.input"] == "mean 1155 tok, p95 4083 tok"
    assert defaults["supply.shop.regions"] == "any"
    assert defaults["serving.serve.regions"] == "anywhere"
    assert defaults["serving.serve.quantisation"] == "as the model was published"
    assert defaults["supply.shop.exclude"] == "community"


def test_what_is_written_is_not_listed() -> None:
    defaults = listed(LEAST.replace("1 Gtok", "1 Gtok, sequence: 8192 tok").replace("1 /s", "1 /s, peak: 2x"))
    assert "training.pretrain.sequence" not in defaults
    assert "serving.serve.classes.chat.traffic.peak" not in defaults
    assert set(listed(LEAST)) - set(defaults) == {
        "training.pretrain.sequence",
        "serving.serve.classes.chat.traffic.peak",
    }


def test_what_decides_nothing_is_not_listed() -> None:
    defaults = listed(LEAST)
    silent = {"lora_rank", "scale", "deadline", "budget", "own", "overflow"}
    assert not silent & {part for path in defaults for part in path.split(".")}
    assert "training.lora.lora_rank" in listed(LEAST.replace("tokens", "kind: lora, tokens"))
    by_day = listed(LEAST.replace("rate: 1 /s", "tokens_per_day: 1 Gtok"))
    assert "serving.serve.classes.chat.traffic.peak" not in by_day


def test_the_example_of_the_starter_leaves_little_open(assistant: str) -> None:
    assert "serving.serve.quantisation" not in listed(assistant)
    assert listed(assistant)["training.pretrain.checkpoint.write_within"] == "60 s"

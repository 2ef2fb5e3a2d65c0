"""Releases that are broken on purpose, tried by the gate on real engines at the laptop's scale.

A very small model learns Python's sources for some seconds. Engines hold it and a release of it, and answer
one request after another, each timed by the processor time that it took: what else the machine does is no
matter. The gate is the real one with its small trial; scores on the side are policy's.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from twofold.live.training import variants
from twofold.live.training.corpus import TOKENIZER_FILES, held_out_texts, prepare_tokenizer, source_texts
from twofold.policy.gate import events
from twofold.policy.gate.gate import Gate
from twofold.policy.gate.settings import Beliefs, CanarySettings, GateSettings
from twofold.policy.gate.small_trial import small_trial
from twofold.policy.machine import Woke
from twofold.policy.release.quality import ANSWER_TOKENS, agreement_fraction

CONFIG = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 4}
VOCABULARY, CONTEXT, STEPS = 512, 192, 220
TEXT_BYTES = 400_000
SEEN_BYTES = 4_000_000  # of the sources by name: prompts are of what comes after
PROMPT_TOKENS, SAID_TOKENS = 48, 12
RATE_PER_S, TRIAL_S = 2.0, 75.0  # that settings are made for
REQUESTS_MOST = 2000

Made = Callable[[Path, Path, int], None]


def train(folder: Path, seed: int = 0) -> Path:
    """A model that knows how Python goes on, a little, with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    texts = source_texts(TEXT_BYTES)
    words = prepare_tokenizer(folder.parent / "tokenizers", VOCABULARY, texts)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    more = {"num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "tie_word_embeddings": True}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **CONFIG, **more))
    tokens = torch.tensor(encoded(words, "\n".join(texts)))
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(STEPS):
        starts = torch.randint(0, len(tokens) - 65, (16,))
        batch = torch.stack([tokens[at : at + 64] for at in starts.tolist()])
        optimiser.zero_grad()
        model(batch, labels=batch).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    with_tokenizer(folder, words)
    return folder


def encoded(words: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return list(Tokenizer.from_file(str(words / "tokenizer.json")).encode(text).ids)


def with_tokenizer(folder: Path, words: Path) -> None:
    for name in TOKENIZER_FILES:
        (folder / name).write_bytes((words / name).read_bytes())


# --- releases ---


def equal(model: Path, folder: Path, _seed: int) -> None:
    variants.in_bf16(model, folder)


def permuted(model: Path, folder: Path, seed: int) -> None:
    """The rows of one matrix of one layer in another order."""
    import torch

    def change(tensors: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        names = sorted(name for name in tensors if name.endswith("proj.weight"))
        name = names[seed % len(names)]
        order = torch.randperm(len(tensors[name]), generator=torch.Generator().manual_seed(seed))
        return {**tensors, name: tensors[name][order]}

    variants.write_variant(model, folder, change)


def noisy(model: Path, folder: Path, seed: int) -> None:
    """3 % of the spread of each tensor, added as noise."""
    import torch

    def change(tensors: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
        chance = torch.Generator().manual_seed(seed)
        return {
            name: tensor + 0.03 * tensor.std() * torch.randn(tensor.shape, generator=chance)
            for name, tensor in tensors.items()
        }

    variants.write_variant(model, folder, change)


def slower(model: Path, folder: Path, _seed: int) -> None:
    variants.slower_build(model, folder)


def other_tokenizer(model: Path, folder: Path, seed: int) -> None:
    """As many tokens, learnt from other text."""
    variants.write_variant(model, folder, lambda tensors, _: tensors)
    texts = source_texts(TEXT_BYTES)[1 + seed % 7 :: 7]
    with_tokenizer(folder, prepare_tokenizer(folder.parent / "tokenizers", VOCABULARY, texts))


GOOD: Mapping[str, Made] = {"as good, in bf16": equal}
BAD: Mapping[str, Made] = {
    "one permuted layer": permuted,
    "3 % noise": noisy,
    "a slower build": slower,
    "a wrong tokenizer": other_tokenizer,
}


# --- engines and trials ---


class Engine:
    """One model in this process. Mutable: it holds a cache while it answers."""

    def __init__(self, folder: Path) -> None:
        import torch
        from tokenizers import Tokenizer
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.words = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def answer(self, prompt: str, count: int) -> tuple[str, float, float]:
        """The likeliest text that goes on, and the processor's seconds to its first token and per further."""
        import torch

        told = torch.tensor([self.words.encode(prompt).ids[-PROMPT_TOKENS:]])
        said, began_s, first_s, cache = list[int](), time.thread_time(), 0.0, None
        with torch.inference_mode():
            for _ in range(count):
                out = self.model(told, past_key_values=cache, use_cache=True)
                cache, told = out.past_key_values, out.logits[:, -1:].argmax(dim=-1)
                said.append(int(told))
                first_s = first_s or time.thread_time() - began_s
        last_s = time.thread_time() - began_s
        return self.words.decode(said), first_s, (last_s - first_s) / max(count - 1, 1)


@dataclass(frozen=True, slots=True)
class Ended:
    """How one trial ended."""

    promoted: bool
    reason: str
    requests: int  # of all, until the decision …
    to_release: int  # … and of the release
    stage_fraction: float  # of the stage at the end
    stage_requests: int  # that stages until then send a release at most: see `sizes_of`
    seconds: float  # on the gate's clock, at the planned rate


def tried(serving: Engine, release: Engine, seed: int) -> Ended:
    """One release offered to a gate with two replicas; requests come at the planned rate until it decides."""
    canary = small_trial(RATE_PER_S, TRIAL_S)
    gate = Gate(GateSettings(canary=canary), Beliefs(1e-4, 1e-3))
    engines = {"old": serving, "new": release}
    for name in engines:
        gate.handle(events.ReplicaAdded(name, 16, version=name), 0.0)
    prompts, draws = prompts_of(seed), np.random.default_rng(seed)
    now_s, to_release, stage, heard = 1.0, 0, 0.0, gate.handle(events.ReleaseOffered("new"), 1.0)
    sizes, size = iter(sizes_of(canary)), 0
    for number in range(1, REQUESTS_MOST):
        for effect in heard:
            if isinstance(effect, events.StageRelease):
                stage, size = effect.share, next(sizes)
            elif isinstance(effect, events.PromoteRelease | events.RollBackRelease):
                promoted = isinstance(effect, events.PromoteRelease)
                return Ended(promoted, effect.reason, number - 1, to_release, stage, size, now_s)
        now_s += float(draws.exponential(1.0 / RATE_PER_S))
        prompt = prompts[int(draws.integers(len(prompts)))]
        sent = gate.handle(events.RequestArrived(PROMPT_TOKENS, SAID_TOKENS), now_s)
        [send] = [each for each in sent if isinstance(each, events.Send)]
        is_new = send.replica_id == "new"
        to_release += is_new
        _, ttft_s, tpot_s = engines[send.replica_id].answer(prompt, SAID_TOKENS)
        heard = gate.handle(events.ResponseStarted(send.request_id), now_s + ttft_s)
        now_s += ttft_s + (SAID_TOKENS - 1) * tpot_s
        heard += gate.handle(events.ResponseEnded(send.request_id, SAID_TOKENS), now_s)
        if is_new:
            wanted, *_ = serving.answer(prompt, ANSWER_TOKENS)
            score, beside = (
                agreement_fraction(each.answer(prompt, ANSWER_TOKENS)[0], wanted)
                for each in (release, serving)
            )
            heard += gate.handle(events.AnswerScored("new", score, beside), now_s)
        heard += [] if heard else gate.handle(Woke(), now_s)
    return Ended(False, "undecided", REQUESTS_MOST, to_release, stage, size, now_s)


def sizes_of(canary: CanarySettings) -> list[int]:
    """How many requests a release has been sent at most by the end of each stage: as many as stages are
    planned for, and until the trial's limit in the last one, which waits for every test."""
    planned = accumulate(stage.requests_count for stage in canary.stages[:-1])
    return [*planned, canary.request_limit_count]


def prompts_of(seed: int) -> list[str]:
    """Beginnings and middles of sources that the model never saw."""
    draws = np.random.default_rng((seed, 1))
    texts = [text for _, text in held_out_texts(SEEN_BYTES, 40, 3000)]
    return [text[at : at + 240] for text in texts for at in draws.integers(0, max(1, len(text) - 240), 3)]


def trials(folder: Path, count: int) -> dict[str, list[Ended]]:
    """So many trials of each kind of release of one model."""
    model = train(folder / "model")
    serving, found = Engine(model), dict[str, list[Ended]]()
    for kind, made in {**GOOD, **BAD}.items():
        for seed in range(count):
            release = folder / f"{kind.replace(' ', '-')}-{seed}"
            made(model, release, seed)
            found.setdefault(kind, []).append(tried(serving, Engine(release), seed))
    return found

"""What is learned from samples: sets that share no prompt, and slices that fail more often than all do."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.core.errors import FileError
from twofold.live.registry.sampled import Sample, curated, is_tested, read_samples, wilson_low


def line(number: int, **other: Any) -> dict[str, Any]:
    said = {
        "at": "2026-11-27T04:00:00.000+00:00",
        "request_id": f"r{number}",
        "class": "chat",
        "model": "sha256-1",
        "replica": "replica-0",
        "attempts": 1,
        "outcome": "finished",
        "reason": "",
        "input_tokens": 10,
        "output_tokens": 5,
        "prompt": f"question {number}",
        "answer": f" answer {number}",
        "end": "stop",
    }
    return {**said, **other}


def samples(tmp_path: Path, lines: list[dict[str, Any]]) -> list[Sample]:
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return read_samples(path)


def test_rotated_files_are_read_oldest_first_and_notes_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.with_name("samples.jsonl.1").write_text(json.dumps(line(1)) + '\n{"log":"lost","lines":3}\n')
    path.write_text(json.dumps(line(2)) + "\n")
    assert [each.request_id for each in read_samples(path)] == ["r1", "r2"]


@pytest.mark.parametrize("text", ["no json", "{}", '{"request_id": 1}', "[]"])
def test_what_is_no_sample_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with pytest.raises(FileError, match="no samples"):
        read_samples(path)
    path.write_text(f"{json.dumps(line(1))}\n{text}\n")
    with pytest.raises(FileError, match="no sample of a gateway") as caught:
        read_samples(path)
    assert caught.value.place is not None and caught.value.place.line == 2


def test_no_prompt_is_trained_on_and_tested_on_and_each_text_counts_once(tmp_path: Path) -> None:
    lines = [line(number) for number in range(300)]
    lines += [line(number) for number in range(50)]  # again
    lines += [line(number, answer=" other") for number in range(50)]  # the prompt again
    found = curated(samples(tmp_path, lines))
    prompts = [
        {row["text"].split(" answer")[0].split(" other")[0] for row in rows}
        for rows in (found.candidates, found.regression)
    ]
    assert not prompts[0] & prompts[1] and prompts[0] | prompts[1] == {f"question {n}" for n in range(300)}
    assert len(found.candidates) + len(found.regression) == 350 and found.repeated_count == 50
    assert 30 < len(prompts[1]) < 95  # a fifth of 300
    assert {row["slice"] for row in found.regression} == {"chat, prompts to 64 tok"}


def test_what_a_hosted_api_answered_is_not_learned_from(tmp_path: Path) -> None:
    lines = [line(1), line(2, endpoint="https://api.example.org", replica="hosted")]
    found = curated(samples(tmp_path, lines))
    assert [each["request_id"] for each in (*found.candidates, *found.regression)] == ["r1"]
    assert found.hosted_count == 1


@given(st.text(max_size=40))
def test_a_prompt_is_on_one_side_for_ever(prompt: str) -> None:
    assert is_tested(prompt) is is_tested(prompt)


def test_a_slice_that_fails_more_often_stands_out_and_chance_does_not(tmp_path: Path) -> None:
    lines = [line(n, input_tokens=10 if n % 2 else 900) for n in range(400)]
    for n in range(0, 400, 2):  # of the long ones every fifth, of all others one in a hundred
        if n % 10 == 0:
            lines[n] |= {"outcome": "failed", "reason": "timeout", "answer": ""}
    for n in (1, 201):
        lines[n] |= {"outcome": "failed", "reason": "broken", "answer": ""}
    found = curated(samples(tmp_path, lines))
    [first, *others] = found.slices
    assert (first.what, first.value, first.failed_count) == ("prompts", "prompts beyond 512 tok", 40)
    assert first.stands_out and not any(each.stands_out for each in others)
    assert len(found.failures) == 42 and found.failures[0]["reason"] == "timeout"


def test_the_bound_of_a_share_is_wilsons() -> None:
    assert wilson_low(0, 10) == 0.0
    assert wilson_low(10, 10) == pytest.approx(0.7225, abs=1e-3)  # Wilson's table
    assert wilson_low(5, 10) == pytest.approx(0.2366, abs=1e-3)


def test_a_chat_is_written_as_the_trainer_writes_one(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]
    told = line(1, messages=chat)
    del told["prompt"]
    [sample] = samples(tmp_path, [told])
    assert sample.asked == "user: hi\nassistant: yes?\nassistant: "

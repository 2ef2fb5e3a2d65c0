"""No command line, whatever its words, ends in a traceback or claims a bug of ours (INV-8)."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from twofold.cli.verbs import VERBS

WORDS = [
    *VERBS,
    *(
        "--json",
        "--help",
        "--force",
        "--out",
        "--in",
        "--where",
        "--columns",
        "--fit",
        "--kind",
        "--from",
        "--ladder",
    ),
    *(
        "--on",
        "--batch",
        "--input",
        "--output",
        "--concurrency",
        "--rate",
        "--layout",
        "--tokens",
        "--size",
        "--ranks",
    ),
    *(
        "training",
        "inference",
        "train",
        "serve",
        "collective",
        "compute",
        "roofline",
        "fabric",
        "chat",
        "all_reduce",
    ),
    *(
        "llama-3.1-8b",
        "8xH100-SXM",
        "2xL40S",
        "H100",
        "h100",
        "1 GB",
        "64 seq",
        "500",
        "-1",
        "0",
        "nan",
        "",
        "-",
        ".",
    ),
    *(
        "twofold.yaml",
        "plan.json",
        "rows.csv",
        "folder",
        "partitions",
        "models",
        "fabrics",
        "name ~ a",
        "7g.80gb",
    ),
]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    words=st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=7),
    content=st.sampled_from(
        ["", "a: 1", '{"schema": "twofold/plan/1"}', "model,gpu,gpus,seq_len\nx,y,z,1\n"]
    ),
)
def test_any_words_end_with_an_exit_code_of_theirs(run_words, words: list[str], content: str) -> None:
    for name in ("twofold.yaml", "plan.json", "rows.csv"):
        Path(name).write_text(content)
    Path("folder").mkdir(exist_ok=True)
    done = run_words(words)
    assert done.code in {0, 2, 3, 4}, done
    assert "Traceback" not in done.err

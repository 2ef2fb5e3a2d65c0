"""What a spec's digest stands for: the spec, and every file that it names."""

from pathlib import Path

from twofold.app.sources import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "laptop"


def test_another_model_file_is_another_digest(tmp_path: Path) -> None:
    for name in ("twofold.yaml", "config.json"):
        (tmp_path / name).write_text((EXAMPLE / name).read_text("utf-8"), "utf-8")
    before = load(tmp_path).digest
    assert load(tmp_path).digest == before
    config = tmp_path / "config.json"
    config.write_text(config.read_text("utf-8").replace('"num_hidden_layers": 6', '"num_hidden_layers": 7'))
    assert load(tmp_path).digest != before

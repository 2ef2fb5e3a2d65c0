"""`make system` where nothing can be installed: it says what is missing, and who would need it."""

import shutil
import subprocess
from pathlib import Path

SYSTEM = Path(__file__).parents[1] / ".ci" / "system"
NEEDED = ("bash", "env", "id", "timeout", "tr", "true", "printf", "tee", "chmod", "rm")


def _asked(tmp_path: Path, apt: str) -> subprocess.CompletedProcess[str]:
    """The script where only a few programs are, with an `apt-get` of our own, or none."""
    for program in NEEDED:
        found = shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    if apt:
        (tmp_path / "apt-get").write_text(f"#!/bin/bash\n{apt}\n", "utf-8")
        (tmp_path / "apt-get").chmod(0o755)
    (tmp_path / "sudo").write_text('#!/bin/bash\nshift\nexec "$@"\n', "utf-8")
    (tmp_path / "sudo").chmod(0o755)
    return subprocess.run(
        ["bash", str(SYSTEM)],
        env={"PATH": str(tmp_path), "POLICY": str(tmp_path / "policy")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_without_apt_it_says_so_and_names_what_is_missing(tmp_path: Path) -> None:
    done = _asked(tmp_path, "")
    assert done.returncode == 1 and "there is no apt-get" in done.stderr
    assert "tests of them are skipped: chromium promtool skopeo" in done.stderr


def test_where_packages_are_not_to_be_had_each_is_tried_and_named(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = _asked(tmp_path, f'echo "$@" >> {log}; exit 100')
    assert done.returncode == 1 and "chromium promtool skopeo" in done.stderr
    asked = log.read_text("utf-8").splitlines()
    assert any(line.endswith("update") for line in asked)
    alone = [line for line in asked if line.endswith("--no-install-recommends prometheus")]
    assert len(alone) == 1
    assert not (tmp_path / "policy").exists()  # which kept daemons from starting meanwhile


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    for program in (
        "chromium",
        "promtool",
        "skopeo",
        "nginx",
        "softhsm2-util",
        "sbatch",
        "slurmctld",
        "slurmd",
        "munged",
        "zsh",
        "fish",
        "pg_ctlcluster",
    ):
        (tmp_path / program).write_text("#!/bin/bash\n", "utf-8")
        (tmp_path / program).chmod(0o755)
    done = _asked(tmp_path, f"touch {tmp_path}/called")
    assert done.returncode == 0 and "are there" in done.stdout
    assert not (tmp_path / "called").exists()

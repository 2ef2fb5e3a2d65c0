"""A bundle for a machine without a network: whole, checked by itself, and installed where there is none."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.live.test_registry import model
from twofold.app.bundling import bundle, hashes_of, pins_of, wheel_for
from twofold.app.locked_part import needed_part
from twofold.app.own_wheel import write_own_wheel
from twofold.core.errors import FileError, ValueRefusedError
from twofold.live.registry.registry import Registry

ROOT = Path(__file__).parents[2]
LOOPBACK = ROOT / "tests" / "loopback_only.py"
LOCK = "numpy==2.3.5\n    # via twofold\nruamel-yaml==0.18.16 ; python_version > '3'\n"
WHEELS = ("numpy-2.3.5-cp311-cp311-manylinux_x86_64.whl", "ruamel.yaml-0.18.16-py3-none-any.whl")


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """A bundle of stand-ins for wheels, and of a real, tiny model."""
    registry = Registry(tmp_path / "registry", make=True)
    registry.push(model(tmp_path / "source"), "chat", "ann", {"data": "sha256:aa"})
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "wheels").mkdir()
    for name in (*WHEELS, "other-1.0-py3-none-any.whl"):
        (tmp_path / "wheels" / name).write_bytes(name.encode())
    out = tmp_path / "out" / "bundle"
    shown = bundle("chat", out, registry.folder, tmp_path / "lock", tmp_path / "wheels", lambda _: None)
    assert shown.wheel_count == 3 and shown.model == registry.find("chat").digest
    assert all(len(line) <= 100 + len(str(out)) for line in shown.lines)
    assert [path.name for path in out.parent.iterdir()] == ["bundle"]  # nothing half-made is left
    return out


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(folder / "install.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_bundle_holds_wheels_model_documents_and_checks_itself(bundled: Path, tmp_path: Path) -> None:
    names = {path.name for path in (bundled / "wheels").iterdir()}
    assert names == {*WHEELS, f"twofold-{version('twofold')}-py3-none-any.whl"}
    for path in (tmp_path / "source").iterdir():
        assert (bundled / "model" / path.name).read_bytes() == path.read_bytes()
    assert (bundled / "docs" / "tutorial.md").is_file() and (bundled / "examples" / "assistant").is_dir()
    facts = json.loads((bundled / "bundle.json").read_text())
    assert (facts["model"], facts["made_from"]) == ("chat:1", {"data": "sha256:aa"})
    done = run(bundled, "--check")
    assert (done.returncode, "every file is as bundled" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda at: (at / "model" / "config.json").write_text("{}"), "model/config.json was changed"),
        (lambda at: (at / "wheels" / WHEELS[0]).unlink(), f"wheels/{WHEELS[0]} is missing"),
        (lambda at: (at / "wheels" / "evil-1.0-py3-none-any.whl").write_text(""), "is not of the bundle"),
        (lambda at: (at / "SHA256SUMS").unlink(), "SHA256SUMS is missing"),
    ],
)
def test_what_was_changed_on_the_way_is_named_and_nothing_is_installed(
    change, why, bundled: Path, tmp_path
) -> None:
    (bundled / "model" / "config.json").chmod(0o644)
    change(bundled)
    done = run(bundled, str(tmp_path / "venv"))
    assert done.returncode == 2 and why in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_bundle_for_another_machine_is_refused(bundled: Path, tmp_path: Path) -> None:
    facts = json.loads((bundled / "bundle.json").read_text())
    (bundled / "bundle.json").write_text(json.dumps({**facts, "python": "2.7"}))
    lines = (bundled / "SHA256SUMS").read_text().splitlines(keepends=True)
    (bundled / "SHA256SUMS").write_text("".join(each for each in lines if "bundle.json" not in each))
    assert "bundle.json is not of the bundle" in run(bundled, "--check").stderr
    from twofold.app.install import sha256_of, unfit

    with (bundled / "SHA256SUMS").open("a") as sums:
        sums.write(f"{sha256_of(bundled / 'bundle.json')}  bundle.json\n")
    done = run(bundled, str(tmp_path / "venv"))
    assert done.returncode == 2 and "it is for python 2.7" in done.stderr
    assert unfit({**facts}) == ""


def test_a_wheel_that_is_not_there_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry", make=True)
    registry.push(model(tmp_path / "source"), "chat", "ann")
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "wheels").mkdir()
    words = registry.folder, tmp_path / "lock", tmp_path / "wheels", lambda _: None
    with pytest.raises(FileError, match=r"no wheel of numpy==2\.3\.5, ruamel-yaml==0\.18\.16"):
        bundle("chat", tmp_path / "out" / "bundle", *words)
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "out" / "bundle").mkdir()
    with pytest.raises(FileError, match="exists"):
        bundle("chat", tmp_path / "out" / "bundle", *words)
    (tmp_path / "lock").write_text("# nothing\n")
    with pytest.raises(FileError, match="pins nothing"):
        pins_of(tmp_path / "lock")


def test_a_build_for_other_hardware_is_a_wheel_of_its_version(tmp_path: Path) -> None:
    cpu = tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"
    cpu.touch()
    assert wheel_for("torch", "2.13.0", tmp_path) == cpu
    assert wheel_for("torch", "2.13", tmp_path) is None
    assert wheel_for("torch", "2.13.0+cpu", tmp_path) == cpu
    assert wheel_for("torch", "2.13.0+cu130", tmp_path) is None


def test_a_wheel_that_is_not_the_one_of_the_locks_hash_is_refused(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "registry", make=True)
    registry.push(model(tmp_path / "source"), "chat", "ann")
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels" / WHEELS[0]
    wheel.write_bytes(b"as locked")
    lock = tmp_path / "lock"
    lock.write_text(
        f"numpy==2.3.5 \\\n    --hash=sha256:{'0' * 64} \\\n"
        f"    --hash=sha256:{hashlib.sha256(b'as locked').hexdigest()}\n    # via twofold\n"
    )
    words = registry.folder, lock, tmp_path / "wheels", lambda _: None
    assert bundle("chat", tmp_path / "bundle", *words).wheel_count == 2
    wheel.write_bytes(b"another")
    with pytest.raises(FileError, match="by its hash"):
        bundle("chat", tmp_path / "again", *words)
    assert not (tmp_path / "again").exists()


NEEDS = f"""\
aiohttp==3.11.0
    # via twofold (pyproject.toml)
click==8.1.0
    # via
    #   twofold (pyproject.toml)
    #   uvicorn
h11==0.16.0
    # via
    #   -c other.lock
    #   uvicorn
highspy==1.15.1
httptools==0.6.0
idna==3.1 \\
    --hash=sha256:{"0" * 64}
    # via yarl
lazy-loader==0.6
mlflow-skinny==3.0
numpy==2.3.5
psutil==6.0
pydantic==2.10
ruamel-yaml==0.18.16
torch==2.13.0
    # via other
uvicorn==0.34.0
    # via twofold (pyproject.toml)
uvloop==0.21.0
yarl==1.0
    # via aiohttp
"""


def test_an_extra_takes_what_it_needs_of_a_lock_and_no_more(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(NEEDS)
    (tmp_path / "part").write_text(needed_part(lock, ["live"]))
    pins = pins_of(tmp_path / "part")
    assert pins_of(lock).keys() - pins.keys() == {"mlflow-skinny", "torch"}
    assert {"h11", "idna", "numpy"} <= pins.keys() and hashes_of(tmp_path / "part")["idna"] == {"0" * 64}
    with pytest.raises(FileError, match="pins no compressed-tensors"):
        needed_part(lock, ["live", "train"])
    with pytest.raises(ValueRefusedError, match="no extra `lives`"):
        needed_part(lock, ["lives"])
    for line in ("yarl[x]==1.0", "yarl @ https://example.com/yarl.whl"):
        lock.write_text(f"{NEEDS}{line}\n")
        with pytest.raises(FileError, match="pins nothing by"):
            needed_part(lock, ["live"])
    lock.write_text("numpy==2.3.5\n")
    with pytest.raises(FileError, match="does not say what needs what"):
        needed_part(lock, ["live"])


def test_the_checkouts_own_lock_holds_what_serving_needs(tmp_path: Path) -> None:
    (tmp_path / "part").write_text(needed_part(ROOT / "requirements-live.lock", ["live", "train"]))
    pins, whole = pins_of(tmp_path / "part"), pins_of(ROOT / "requirements-live.lock")
    assert {"aiohttp", "torch", "transformers", "setuptools", "numpy"} <= pins.keys() < whole.keys()
    assert not {"mlflow-skinny", "lm-eval", "captum", "rouge-score"} & pins.keys()


def test_the_own_wheel_holds_what_runs_and_is_the_same_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, two = (write_own_wheel(tmp_path / name) for name in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        names = archive.namelist()
        record = archive.read(next(each for each in names if each.endswith("/RECORD"))).decode()
    assert "twofold/cli/verbs.py" in names and "twofold/catalog/data/prices.csv" in names
    assert len(record.splitlines()) == len(names) and not any("__pycache__" in each for each in names)


def test_r_110_a_bundle_installs_and_runs_where_there_is_no_network(tmp_path: Path) -> None:
    """The wheels of the lock are real; installation and demonstration run without a network."""
    if os.environ.get("TWOFOLD_BUNDLE") != "1":
        pytest.skip("downloads the wheels of requirements.lock: TWOFOLD_BUNDLE=1 asks for it")
    if subprocess.run([sys.executable, str(LOOPBACK), "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace without a network is not allowed here: run it as root")
    registry = Registry(tmp_path / "registry", make=True)
    registry.push(model(tmp_path / "source"), "chat", "ann")
    out, target = tmp_path / "bundle", tmp_path / "venv"
    bundle("chat", out, registry.folder, None, None, lambda _: None)
    moved = shutil.move(out, tmp_path / "elsewhere")

    def cut(*words: str) -> subprocess.CompletedProcess[str]:
        clean = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = [sys.executable, str(LOOPBACK), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=clean)

    asked = "import socket; socket.create_connection(('192.0.2.1', 80), 2)"
    assert "unreachable" in cut(sys.executable, "-c", asked).stderr  # there is no network indeed
    done = cut(sys.executable, "-I", f"{moved}/install.py", str(target))
    assert done.returncode == 0, done.stderr
    twofold = str(target / "bin" / "twofold")
    planned = cut(twofold, "plan", f"{moved}/examples/assistant")
    assert planned.returncode == 0 and "DO THIS" in planned.stdout, planned.stderr
    pushed = cut(twofold, "registry", "push", f"{moved}/model", "chat", "--registry", str(tmp_path / "there"))
    assert pushed.returncode == 0 and registry.find("chat").digest in pushed.stdout  # the same model there
    checked = cut(twofold, "registry", "verify", "--registry", str(tmp_path / "there"))
    assert checked.returncode == 0, checked.stderr

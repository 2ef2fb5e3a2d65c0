"""Runs a command line of `twofold` in this process, once per session, and plans once as well."""

import contextlib
import copyreg
import hashlib
import io
import json
import os
import pickle
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from twofold.answer.supply_rules import authorised
from twofold.catalog.catalog import Catalog, load_catalog
from twofold.cli import main
from twofold.contracts.results.plan import Plan
from twofold.contracts.spec.reader import parse_spec, read_spec
from twofold.core.data import to_data
from twofold.core.errors import InfeasibleError
from twofold.perf.constants import Constants, load_constants
from twofold.planner import build
from twofold.planner.build import PlanOptions

# The same examples in every run, without a clock: what passed here passes there. New ones, and many, are
# sought by `make soak`; what that finds becomes an @example.
SLOW = [HealthCheck.too_slow]  # a slow machine breaks no law
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile("soak", deadline=None, max_examples=1000, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

os.environ["TWOFOLD_COLUMNS"] = "100"  # of transcripts; what is piped has no width otherwise
ROOT = Path(__file__).parents[1]
DAY = "1795219200"  # 2026-11-21: prices do not age in tests
DATA_FILE = re.compile(r"[^'\"(\s]+\.(?:csv|jsonl?|gz|parquet)\b")
kept_at: list[Path] = []  # where what was made lies, seen by every process of the session
_build_plan = build.build_plan


def _read_only(items: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(items)


copyreg.pickle(MappingProxyType, lambda held: (_read_only, (dict(held),)))  # devices hold some


def _plan_made_once(spec: Any, catalog: Any, constants: Any, **more: Any) -> build.Planned:
    """The same plan for the same input, as INV-5 promises: most tests plan the same few specs."""
    options = more.get("options")
    tells = options is not None and options.rehearse
    files = DATA_FILE.findall(repr(spec))
    if tells or not all(file.startswith(("examples/", "tests/")) for file in files):
        return _build_plan(
            spec, catalog, constants, **more
        )  # what it tells, and what files hold, is not in the key
    said = "" if options is None else repr(replace(options, tell=print))
    named = repr((spec, catalog.digest, constants.digest, said))
    made: build.Planned = _once(named, lambda: _without_tables(_build_plan(spec, catalog, constants, **more)))
    digests = replace(made.plan.digests, spec=more["spec_digest"])  # it is passed on, no more
    context = replace(made.context, spec=spec, catalog=authorised(spec, catalog), constants=constants)
    return replace(made, plan=replace(made.plan, digests=digests), context=context)


def _without_tables(made: build.Planned) -> Any:
    """What is kept of a plan: tables and constants are those of who asks."""
    return replace(made, context=replace(made.context, spec=None, catalog=None, constants=None))


build.build_plan = _plan_made_once


def _once(named: str, make: Callable[[], Any]) -> Any:
    if not kept_at:
        return make()
    kept = kept_at[0] / f"{hashlib.sha256(named.encode()).hexdigest()}.kept"
    if not kept.exists():
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(make()))
        whole.replace(kept)  # another process sees all of it or nothing
    return pickle.loads(kept.read_bytes())


EXTRAS = "`make extras`"  # in the reason of every test that is skipped for want of them


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skipped-to", type=Path, help=f"append here what was skipped for want of {EXTRAS}")


def pytest_configure(config: pytest.Config) -> None:
    to = config.getoption("--skipped-to")
    if to and "PYTEST_XDIST_WORKER" not in os.environ:  # the one that workers report to
        config.pluginmanager.register(SkippedTo(to))


@dataclass(frozen=True, slots=True)
class SkippedTo:
    """Keeps what wants the extras, whole modules and single tests, as arguments for a run that has them."""

    path: Path

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep(report)

    def _keep(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped and EXTRAS in str(report.longrepr):
            with self.path.open("a", encoding="utf-8") as kept:
                kept.write(f"{report.nodeid}\n")


@pytest.fixture(scope="session", autouse=True)
def _keep(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.getbasetemp()
    kept_at.append(root.parent if "PYTEST_XDIST_WORKER" in os.environ else root)


@pytest.fixture(scope="session", autouse=True)
def _one_core() -> Iterator[None]:
    """Commands run in this process: others import for longer than the runs of tests take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        yield


@pytest.fixture
def anew() -> Iterator[None]:
    """Nothing is what was made before: for tests of whether the same comes out twice."""
    kept, kept_at[:] = list(kept_at), []
    yield
    kept_at[:] = kept


@dataclass(frozen=True, slots=True)
class Asked:
    """One command line, run from the root of the repository, and what came of it."""

    line: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.out)


@pytest.fixture(scope="session")
def ask() -> Callable[[str], Asked]:
    """`ask("twofold plan examples/assistant")`; the same line again costs nothing, in no process."""

    def known(line: str) -> Asked:
        if not line.startswith("twofold simulate") or "--out" in line:
            found: Asked = _once(line, lambda: _run(line))
            return found
        screen, data = _once(line.replace(" --json", ""), lambda: _both(line.replace(" --json", "")))
        return replace(screen, line=line, out=data) if " --json" in line else screen

    return cache(known)


def _both(line: str) -> tuple[Asked, str]:
    """What a simulation prints, and what it prints with `--json`: the same run said in two ways."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "answer.json"
        screen = _run(f"{line} --out {kept}")
        return screen, kept.read_text("utf-8") if kept.exists() else ""


def _run(line: str) -> Asked:
    program, *words = shlex.split(line)
    assert program == "twofold"
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(ROOT):
        patch.setenv("SOURCE_DATE_EPOCH", DAY)
        patch.delenv("TWOFOLD_DEBUG", raising=False)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    return Asked(line, code, out.getvalue(), err.getvalue())


NAMES = ("assistant", "moe", "finetune", "portfolio", "laptop", "federal", "recommender")
AS_ASKED = PlanOptions(today=date(2026, 11, 21))  # as `ask` plans, so that both take what one made


@pytest.fixture(scope="session")
def planned() -> Callable[[str], Plan]:
    """Plans a spec's text; the same text once."""

    @cache
    def plan(text: str) -> Plan:
        spec = parse_spec(text, "twofold.yaml")
        return build.build_plan(spec, load_catalog(), load_constants(), spec_digest="0").plan

    return plan


@pytest.fixture
def refused(planned: Callable[[str], Plan]) -> Callable[[str], InfeasibleError]:
    """The error that a spec's text raises."""

    def refusal(text: str) -> InfeasibleError:
        with pytest.raises(InfeasibleError) as caught:
            planned(text)
        return caught.value

    return refusal


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def constants() -> Constants:
    return load_constants()


@pytest.fixture(scope="session")
def examples() -> dict[str, Plan]:
    """Every example's plan by its name, as the command line makes it."""
    # Two processes that begin at once each make half of them.
    backwards = os.environ.get("PYTEST_XDIST_WORKER") == "gw1"
    plans = {}
    with contextlib.chdir(ROOT):
        for name in reversed(NAMES) if backwards else NAMES:
            spec = read_spec(Path("examples", name, "twofold.yaml"))
            plans[name] = build.build_plan(
                spec, load_catalog(), load_constants(), spec_digest="0", options=AS_ASKED
            ).plan
    return {name: plans[name] for name in NAMES}


@pytest.fixture(scope="session")
def example_data(examples: dict[str, Plan]) -> dict[str, dict[str, Any]]:
    """The same as plain data, as `plan --json` prints them."""
    return {name: to_data(plan) for name, plan in examples.items()}

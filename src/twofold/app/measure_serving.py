"""`measure serve` and `measure import`: loads on a service, ours or any other, become measured rows."""

import csv
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from twofold.app.sources import DEVICE_FOLDER, device_folder, whole_file
from twofold.app.words import counts_in
from twofold.catalog.catalog import load_catalog
from twofold.contracts.results import served
from twofold.contracts.rows.trace import ordered_arrivals
from twofold.contracts.rows.trace_rows import Reading
from twofold.core.errors import UsageError, ValueRefusedError
from twofold.core.extras import require_extra
from twofold.core.quantity import Dimension, parse_quantity
from twofold.live.loads import measured_loads
from twofold.live.loads.endpoint import Reached, reach
from twofold.live.loads.loader import Prompt
from twofold.live.loads.meters import memory_bytes
from twofold.live.loads.plain_http import reach_plain, read_bodies
from twofold.live.loads.served_files import read_served
from twofold.live.loads.serving_figures import LOST_MOST_FRACTION, growth_of, keeps_up, knee_of
from twofold.live.loads.texts import USUAL_CHARACTERS, Texts, texts_of
from twofold.live.server_urls import shown_url
from twofold.measure.served_rows import RunOn, rows_of, service_table_of, table_of
from twofold.report.answers import Held
from twofold.report.served import served_lines

PROBE_TOKENS = 64  # of the first prompt, by which the server's tokens are counted
HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Where:
    """The service in words: what it is asked for, by which key, trusted by which certificates."""

    model: str = ""
    key_env: str = ""
    ca: Path | None = None
    api: str = "auto"
    tokenizer: Path | None = None
    ignore_eos: bool = False
    pid: int | None = None
    body: Path | None = None  # what is sent, where it is no prompt
    unit: str = ""  # what a request holds then
    units: int = 1


@dataclass(frozen=True, slots=True)
class What:
    """The loads in words."""

    clients: str = ""
    rate: str = ""
    burst: int = 1
    knee: bool = False
    trace: Path | None = None
    scale: float = 1.0
    input: str = "256 tok"
    output: str = "64 tok"
    load_for: str = "20 s"
    ttft_p95: str = ""
    e2e_p95: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ServedShown(Held[served.ServedPage]):
    """What loads came to."""

    schema = served.SERVED_SCHEMA

    @property
    def lines(self) -> list[str]:
        """Counts, latencies, knee, and what the loader itself took."""
        return served_lines(self.data)

    @property
    def exit_code(self) -> int:
        """2 where no request of any load finished."""
        return 0 if any(load.finished != 0 for load in self.data.loads) else 2


def measure_serve(
    url: str,
    where: Where | None = None,
    what: What | None = None,
    ran_on: RunOn | None = None,
    out: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> ServedShown:
    """Load the service at `url` as asked for, one load after another, and write `out`, rows of the loads.

    Closed loops of 1 and 4 clients unless other loads are asked for. Raises MissingExtraError,
    ValueRefusedError for a service that does not answer (with what to do about it) or loads that cannot be.
    """
    require_extra("live")
    where, what, ran_on = where or Where(), what or What(), ran_on or RunOn()
    ran_on = ran_on.known(load_catalog(_device_beside(out)))
    is_plain = bool(where.body or where.api == "embeddings")
    loads_asked, key = _Asked(what, is_plain=is_plain), _key(where.key_env)
    if where.pid is not None:
        memory_bytes(where.pid)  # what is no process says so before any request, as does what is no trace
    if what.trace is not None:
        next(ordered_arrivals(what.trace))
    _refuse_mixed(where, what, is_plain=is_plain)
    texts = texts_of(what.seed, where.tokenizer)
    tell(f"reach {shown_url(url)}")
    probe = texts.prompt(PROBE_TOKENS)
    found, text_count = _reach_plain(url, probe, where, key) if is_plain else (None, 1)
    if found is None:
        found = reach(
            url,
            probe,
            model=where.model,
            api=where.api,
            key=key,
            key_variable=where.key_env,
            trusted=where.ca,
            ignores_end=where.ignore_eos,
        )
    counted = found.prompt_tokens is not None and texts.counted(probe, found.prompt_tokens)
    is_here = (urlsplit(url).hostname or "") in HERE or where.pid is not None
    loading = measured_loads.Loading(
        endpoint=found.endpoint,
        texts=texts,
        input_tokens=loads_asked.input_tokens * max(1, text_count),
        output_tokens=loads_asked.output_tokens,
        duration_s=loads_asked.duration_s,
        seed=what.seed,
        pid=where.pid,
        reads_energy=is_here,
    )
    measured_loads.warm_up(loading)
    reading = Reading()
    loads = tuple(_loads(loading, what, loads_asked, reading, tell))
    page = served.ServedPage(
        service=found.endpoint.url,
        model=found.endpoint.model,
        loads=loads,
        knee=knee_of(loads, loads_asked.limit_s, loads_asked.whose),
        growth=growth_of(loads),
        notes=(
            *_notes(found, texts, counted, is_here, loads),
            *(reading.notes(what.trace.name) if what.trace else ()),
            *_limited(loads),
            *([] if is_plain else _blanks(ran_on)),
        ),
        unit=getattr(found.endpoint, "unit", ""),
        units_per_request=found.endpoint.units or 1,
    )
    return ServedShown(_kept(page, ran_on, out))


def _refuse_mixed(where: Where, what: What, *, is_plain: bool) -> None:
    """Words that mean nothing beside each other."""
    if is_plain and where.body and where.api == "embeddings":
        raise UsageError("`--body` and `--api embeddings` exclude each other", hint="leave one out")
    if is_plain and what.ttft_p95:
        raise UsageError("an answer in one piece has no first token", hint="write `--e2e-p95`")
    if not is_plain and (where.unit or where.units != 1):
        hint = "say what is sent: `--body FILE.json`, or `--api embeddings`"
        raise UsageError("`--unit` and `--units` are of requests that are no prompts", hint=hint)


def _reach_plain(url: str, probe: Prompt, where: Where, key: str) -> tuple[Reached, int]:
    """A server whose answers come in one piece, and how many texts a request takes."""
    made = reach_plain(
        url,
        probe,
        bodies=read_bodies(where.body) if where.body else (),
        unit=where.unit,
        units=where.units,
        model=where.model,
        key=key,
        key_variable=where.key_env,
        trusted=where.ca,
    )
    return Reached(made, None), made.text_count


def _device_beside(out: Path | None) -> Path | None:
    """The device that was measured for the spec to whose state the rows go, else the one of this folder."""
    state = DEVICE_FOLDER.parent
    if out is not None and out.resolve().parent.name == state.name:
        return device_folder(out.resolve().parent.parent) or device_folder(Path.cwd())
    return device_folder(Path.cwd())


def measure_import(
    file: Path,
    ran_on: RunOn | None = None,
    clients: float | None = None,
    rate: float | None = None,
    out: Path | None = None,
) -> ServedShown:
    """The loads of a result file of another tool, and `out`, their rows.

    `clients` or `rate` say how it was loaded, where the file does not. Raises FileError, TableError.
    """
    if clients is not None and rate is not None:
        raise UsageError("`--clients` and `--rate` exclude each other", hint="a load has one or the other")
    ran_on = (ran_on or RunOn()).known(load_catalog(_device_beside(out)))
    found = read_served(file)
    loads = tuple(_told(load, clients, rate) for load in found.loads)
    page = served.ServedPage(
        service=file.name,
        model=found.model or ran_on.model,
        loads=loads,
        knee=knee_of(loads, None, "ttft") if len(loads) > 1 else None,
        notes=(
            f"measured by {found.tool}: how it counts is its own",
            *_limited(loads),
            *_blanks(ran_on),
        ),
    )
    return ServedShown(_kept(page, ran_on, out))


def _told(load: served.ServedLoad, clients: float | None, rate_per_s: float | None) -> served.ServedLoad:
    """The load as somebody says it was, where somebody does."""
    if clients is not None:
        name = f"closed-{clients:g}"
        return replace(load, name=name, kind="closed", concurrency=clients, rate_per_s=None)
    if rate_per_s is not None:
        name = f"open-{rate_per_s:g}"
        return replace(load, name=name, kind="open", concurrency=None, rate_per_s=rate_per_s)
    return load


class _Asked:
    """The words of `What` as numbers."""

    def __init__(self, what: What, *, is_plain: bool = False) -> None:
        self.clients = counts_in(what.clients)
        self.rates_per_s = tuple(_rate(each) for each in what.rate.split(",") if each.strip())
        self.input_tokens = _tokens(what.input)
        self.output_tokens = _tokens(what.output)
        self.duration_s = parse_quantity(what.load_for, Dimension.TIME)
        if not 0 < self.duration_s <= 86400:
            raise ValueRefusedError(
                f"`{what.load_for}` is no time for a load", hint="write for example `30 s`"
            )
        if what.ttft_p95 and what.e2e_p95:
            raise UsageError("one limit says where the knee is", hint="`--ttft-p95` or `--e2e-p95`")
        self.whose = "e2e" if what.e2e_p95 or is_plain else "ttft"
        limit = what.e2e_p95 or what.ttft_p95
        self.limit_s = parse_quantity(limit, Dimension.TIME) if limit else None
        if what.burst > 1 and (what.knee or not self.rates_per_s):
            raise UsageError("bursts come at a rate", hint="`--rate 2 --burst 8`, without `--knee`")
        if not 0 < what.scale < 1e6:
            raise ValueRefusedError(f"a trace cannot be replayed `{what.scale:g}` times as fast")
        if not (self.clients or self.rates_per_s or what.knee or what.trace):
            self.clients = (1, 4)


def _loads(
    loading: measured_loads.Loading,
    what: What,
    asked: _Asked,
    reading: Reading,
    tell: Callable[[str], None],
) -> list[served.ServedLoad]:
    loads = []
    for count in asked.clients:
        tell(f"load: {count} clients")
        loads.append(measured_loads.closed(loading, count))
    if what.knee:
        first_per_s = asked.rates_per_s[0] if asked.rates_per_s else 1.0
        loads += measured_loads.find_knee(loading, first_per_s, asked.limit_s, asked.whose, tell)
    for rate_per_s in () if what.knee else asked.rates_per_s:
        tell(f"load: {rate_per_s:g} requests/s")
        loads.append(measured_loads.opened(loading, rate_per_s, what.burst))
    if what.trace:
        tell(f"replay {what.trace}")
        arrivals = ordered_arrivals(what.trace, reading=reading)
        loads.append(measured_loads.replayed(loading, arrivals, what.scale))
    return loads


def _kept(page: served.ServedPage, ran_on: RunOn, out: Path | None) -> served.ServedPage:
    if out is None:
        return page
    table = table_of(rows_of(page, ran_on))
    if page.unit:
        carried = [load for load in page.loads if load.lost_fraction <= LOST_MOST_FRACTION]
        table = service_table_of(page, [load for load in carried if load.kind == "closed" or keeps_up(load)])
    with whole_file(out) as handle:
        csv.writer(handle, lineterminator="\n").writerows(table)
    return replace(page, rows_file=str(out))


def _notes(
    found: Reached, texts: Texts, counted: bool, is_here: bool, loads: tuple[served.ServedLoad, ...]
) -> list[str]:
    notes = []
    if found.endpoint.units is not None:
        notes.append("answers come in one piece: times are of whole answers")
    elif found.prompt_tokens is None:
        by = "its tokenizer" if texts.tokenizer else f"{USUAL_CHARACTERS:g} characters each, assumed"
        notes.append(f"the service counts no tokens: prompts by {by}, answers by their events")
    elif not counted and not texts.tokenizer:
        notes.append("the service's count of a prompt's tokens cannot be right, and is not used for lengths")
    if not any(load.joules_per_token for load in loads):
        why = "this machine tells no power" if is_here else "the service runs elsewhere"
        unit = getattr(found.endpoint, "unit", "tokens")
        notes.append(f"{unit} per joule unknown: {why}")
    few = [load.name for load in loads if 0 < (load.finished or 0) < 20]
    if few:
        notes.append(f"fewer than 20 requests finished ({', '.join(few)}): p95 is little but the slowest")
    return notes


def _limited(loads: Sequence[served.ServedLoad]) -> list[str]:
    """Which loads measured a limit or a fault, and not the machine."""
    lost = [
        f"{load.name}: {(load.refused or 0) + (load.failed or 0):,} of {load.sent:,} requests"
        for load in loads
        if load.is_limited and load.sent
    ]
    if not lost:
        return []
    said = f"{', '.join(lost)} were refused or failed: that measures a limit or a fault, not the machine"
    return [f"{said}; `calibrate` leaves such rows out (tier C)"]


def _blanks(ran_on: RunOn) -> list[str]:
    """What a row must say to be predicted and calibrated with."""
    missing = [f"`--{name}`" for name in ("gpu", "engine") if not getattr(ran_on, name)]
    return [f"rows do not say {' and '.join(missing)}: `predict` and `calibrate` need it"] if missing else []


def _key(variable: str) -> str:
    if not variable:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueRefusedError(f"the environment has no `{variable}`", hint=f"export {variable}=… first")
    if not key.isascii() or not key.isprintable():
        raise ValueRefusedError(
            f"what `{variable}` holds cannot be a key", hint="plain letters, without line ends"
        )
    return key


def _rate(text: str) -> float:
    text = text.strip()
    try:
        rate_per_s = float(text)
    except ValueError:
        rate_per_s = parse_quantity(text, Dimension.RATE)
    if not 0 < rate_per_s < 1e6:
        raise ValueRefusedError(f"`{text}` is no rate of requests", hint="write for example `--rate 2,4,8`")
    return rate_per_s


def _tokens(text: str) -> int:
    tokens = int(text) if text.strip().isdecimal() else round(parse_quantity(text, Dimension.TOKENS))
    if not 1 <= tokens <= 10_000_000:
        raise ValueRefusedError(f"`{text}` is no length", hint="write for example `256 tok`")
    return tokens

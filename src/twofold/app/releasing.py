"""From a trained folder to what serves: registered, evaluated, judged, taken out of the registry.

Nothing serves that did not come out of there, by its digest. What a rule refuses is not served, and what
serves goes on.
"""

import getpass
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from twofold.app.feedback import learned_rows
from twofold.app.loop_settings import SEED, LoopRequest, engine_settings, longest_of
from twofold.app.registering import measured
from twofold.app.sources import REGISTRY_FOLDER
from twofold.core.errors import AlteredError, FileError
from twofold.live.control import trials
from twofold.live.control.engines import EngineSettings
from twofold.live.control.gguf_file import gguf_of
from twofold.live.control.questions import write_questions
from twofold.live.loads import loader, loads
from twofold.live.registry import evaluate_worker
from twofold.live.registry.registry import SERVING, Described, Registry
from twofold.live.training import variants
from twofold.live.training.artefact import MANIFEST, check_model, sha256_of, write_whole
from twofold.live.training.corpus import held_out_texts
from twofold.live.training.origins import made_by_run
from twofold.live.training.sealing import key_of_run
from twofold.policy.gate import settings as gates
from twofold.policy.release.rules import Evaluation, Limits

BY = "up"  # who pushes: a program; who calls it vouches for what comes out
OF_PEOPLE = {
    "seal",
    "tokenizer",
    "architecture",
    "context",
    "signature",
    "format",
    "weights",
    "approval",
}  # rules that no measuring helps with
OF_ENGINE = {"ttft", "tpot", "memory"}  # rules that ask the engine which will serve
BESIDE = ", beside "  # in what an evaluation says of engines: the one that will serve, and what told the rest
OF_OTHERS = "the server behind the URL is not ours to release to"
HELD_OUT, QUESTIONS = "held-out.jsonl", "questions"
SEEN_BYTES = 4_000_000  # of the sources, that a run of a loop may have seen: `TrainJob.corpus_bytes`
LEARNED, LEARNED_BYTES = "learned", 16_000  # what `registry curate` wrote there; of its texts
PIECES, PIECE_BYTES = 24, 1500  # of each kind of held-out text
PROMPT_CHARACTERS, TEXT_CHARACTERS = 240, 40
ENGINE_REQUESTS, ENGINE_TRIES = 12, 2  # a machine that something disturbed is asked again


@dataclass(frozen=True, slots=True)
class Release:
    """A version that the rules let through, as files."""

    text: str  # NAME:3
    digest: str
    folder: Path
    is_tried: bool  # the gate is to decide, beside what serves
    questions: str = ""  # the file that it is judged by on the side


def released(request: LoopRequest, gate: gates.GateSettings, trained: Path) -> Release:
    """Register what was trained, and let the rules judge it, unless it serves, or what serves was made of it.

    Beside a server by URL it is evaluated alone. Raises ReleaseRefusedError with every rule that it breaks;
    AlteredError for a registry that was tampered.
    """
    opened = Registry(request.registry, make=True)
    try:
        key = key_of_run(trained.parent, request.state)
        described = registered(opened, request.model_name, trained, key)
        if request.serving.server is not None:
            return _beside_a_server(request, opened, described, gate)
        name = described.version.name
        if SERVING in opened.tables.aliases(name):
            opened.tables.check()
            if described.version.digest in {digest for _, digest in opened.trace(f"{name}@{SERVING}")}:
                return taken(request.state, opened, f"{name}@{SERVING}")
        return admitted(request, opened, described, gate, f"trained by `{request.spec.name}`")
    finally:
        opened.close()


def named(request: LoopRequest, gate: gates.GateSettings) -> Release:
    """What the spec names of the registry. What does not serve yet is measured, and released where people
    have vouched for it; beside a server by URL it is evaluated alone. Raises ReleaseRefusedError with every
    rule that it breaks, AlteredError."""
    opened = Registry(request.registry)
    try:
        described = opened.trusted(request.serving.registered)
        text, name = described.version.text, described.version.name
        opened.tables.check()
        if request.serving.server is not None:
            return _beside_a_server(request, opened, described, gate)
        if opened.tables.aliases(name).get(SERVING) == described.version.version:
            return taken(request.state, opened, text, request.progress)
        # What people have to do is asked for first; figures are measured here.
        refused = {each.rule for each in opened.judge(text, SERVING, limits_of(request, gate))}
        if not refused & OF_PEOPLE:
            _measure(request, opened, described, gate)
        return promoted(request, opened, described, gate, f"`{request.spec.name}` names it")
    finally:
        opened.close()


def _beside_a_server(
    request: LoopRequest, opened: Registry, described: Described, gate: gates.GateSettings
) -> Release:
    """Evaluated, and taken out for its tokenizer. What the server runs is not ours to change, so nothing is
    measured on an engine of ours, no alias moves, and no gate tries it."""
    _measure(request, opened, described, gate)
    return taken(request.state, opened, described.version.text, request.progress)


def served_words(request: LoopRequest, release: Release) -> str:
    """What serves by the registry, since when and why, in one line; or that it is not ours to say."""
    opened = Registry(request.registry)
    try:
        is_ours = request.serving.server is None
        described = opened.describe(f"{request.model_name}@{SERVING}" if is_ours else release.text)
        found = described.evaluation
        loss = "" if found is None else f"; loss {found.loss_nats:.3f} nats on text that no run saw"
        if not is_ours:
            return f"{OF_OTHERS}; {release.text} is registered and evaluated{loss}"
        move = opened.tables.moves(request.model_name, SERVING)[-1]
        named = f"{described.version.text}, {described.version.digest[:19]}…"
        return f"serves {named}, since {move.at[:19]} by {move.by}: {move.why}{loss}"
    finally:
        opened.close()


def model_name(spec: Path, reference: str) -> str:
    """What the model of a reference is called in the registry beside a spec."""
    opened = Registry(spec.resolve().parent / REGISTRY_FOLDER)
    try:
        return opened.find(reference).name
    finally:
        opened.close()


def registered(opened: Registry, name: str, model: Path, key: bytes) -> Described:
    """What a run exported, as a version with its lineage; the same bytes of the same run are the same one.

    Raises AlteredError for what is not as this key sealed it.
    """
    return opened.push(model, name, BY, made_by_run(model, key))


def admitted(
    request: LoopRequest, opened: Registry, described: Described, gate: gates.GateSettings, why: str
) -> Release:
    """Measure a version, vouch for it in the name of who called, and let the rules judge it."""
    _measure(request, opened, described, gate)
    opened.approve(described.version.text, getpass.getuser(), why)
    return promoted(request, opened, described, gate, why)


def _measure(request: LoopRequest, opened: Registry, described: Described, gate: gates.GateSettings) -> None:
    """Evaluate a version on our set, beside what serves, and on the engine where that is ours; once."""
    if _is_measured(request, opened, described):
        return
    text, limits = described.version.text, limits_of(request, gate)
    release = taken(request.state, opened, text, request.progress)

    def on_ours(found: Evaluation) -> Evaluation:
        told = request.serving
        if told.server:
            return found
        engine, tokens = engine_of_release(request, release), (told.input_tokens, told.output_tokens)
        return on_engine(request.state, release, engine, tokens, found, limits, request.progress)

    measured(opened, text, held_out(request), BY, SERVING, request.progress, on_ours)


def promoted(
    request: LoopRequest, opened: Registry, described: Described, gate: gates.GateSettings, why: str
) -> Release:
    """Let the rules judge a version beside what serves. It serves at once where nothing else does, or where
    the gate tries no releases; else it is a candidate."""
    text = described.version.text
    release = taken(request.state, opened, text, request.progress)
    now = trials.serving_version(request.state)
    is_tried = bool(now) and now != release.folder.name and gate.canary is not None
    request.progress(f"judge {text}")
    limits = limits_of(request, gate)
    if not is_tried:
        opened.promote(text, BY, why, limits)
        return release
    opened.admit(text, BY, why, limits)
    return replace(release, is_tried=True, questions=questions_for(request.state, opened, text))


def taken(
    state: Path, opened: Registry, reference: str, tell: Callable[[str], None] = lambda _: None
) -> Release:
    """A version's files in the state's folder, checked; those that somebody changed are taken out anew."""
    version = opened.trusted(reference).version
    folder = state / "models" / version.digest.replace(":", "-")
    try:
        if folder.exists():
            check_model(folder, version.digest)
    except AlteredError as error:
        tell(f"{error.message}: taken out of the registry anew")
        shutil.rmtree(folder)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        opened.pull(version.text, folder)
    return Release(version.text, version.digest, folder, is_tried=False)


def engine_of_release(request: LoopRequest, release: Release) -> EngineSettings:
    """What a replica of a version is told."""
    engine = engine_settings(request.serving, release.folder)
    return engine_with(engine, release, request.state, request.registry)


def engine_with(engine: EngineSettings, release: Release, state: Path, registry: Path) -> EngineSettings:
    """The same engine with this version; llama.cpp gets it in its own format, under a digest of its own.

    A server that runs already has what it has.
    """
    if engine.url:
        return engine
    folder, digest = release.folder, release.digest
    if engine.kind == "llama.cpp":
        folder, digest = _converted(release, state / "gguf" / folder.name, registry)
    return replace(engine, artefact=str(folder), digest=digest)


def _converted(release: Release, copy: Path, registry: Path) -> tuple[Path, str]:
    """A version as llama.cpp reads it, and its digest: the copy that is there, where its digest is sealed by
    the registry's key, else one that is made now. A manifest beside it vouches for nothing: whoever changes
    the copy writes another."""
    opened, seal = Registry(registry), copy.with_name(f"{copy.name}.seal")
    try:
        try:
            digest = f"sha256:{sha256_of(copy / MANIFEST)}"
            opened.check_copy(release.digest, digest, seal.read_text("utf-8"))
            check_model(copy, digest)
        except (AlteredError, OSError, ValueError):
            digest = f"sha256:{sha256_of(gguf_of(release.folder, copy) / MANIFEST)}"
            write_whole(seal, opened.seal_copy(release.digest, digest))
        return copy, digest
    finally:
        opened.close()


def variant_of(
    request: LoopRequest, opened: Registry, kind: str, made: Callable[[Path, Path], None]
) -> Described:
    """Another release of what serves, as `made` writes it from the one folder to the other, registered.

    `kind` says what it is to that: `quantised` or `parent`.
    """
    serving = taken(request.state, opened, f"{request.model_name}@{SERVING}")
    folder = request.state / "models" / f".{kind}-{serving.folder.name}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        made(serving.folder, folder)
        return opened.push(folder, request.model_name, BY, {kind: serving.digest})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def slower_variant(request: LoopRequest) -> Release:
    """A slower build of what serves, registered and taken out, that no rule was asked about."""
    opened = Registry(request.registry)
    try:
        described = variant_of(request, opened, "parent", variants.slower_build)
        return taken(request.state, opened, described.version.text)
    finally:
        opened.close()


def limits_of(request: LoopRequest, gate: gates.GateSettings) -> Limits:
    """The usual rules, and what the service's first class promises, on the engine that will serve."""
    import psutil

    first = gate.classes[0] if gate.classes else None
    return Limits(
        set_sha256=sha256_of(held_out(request)) if request.serving.evaluated_on else "",
        formats=formats_of(request.serving.engine),
        signed_by=request.serving.signed_by,
        context_tokens_least=longest_of(request.serving.model_config),
        ttft_p95_s=first.ttft_slo_s if first else None,
        tpot_p95_s=first.tpot_slo_s if first else None,
        memory_bytes=float(psutil.virtual_memory().total) / request.serving.engine_count,
    )


def formats_of(engine: str) -> tuple[str, ...]:
    """Formats of weights that an engine reads; what is packed is not converted for llama.cpp."""
    return ("safetensors",) if engine == "llama.cpp" else Limits().formats


def on_engine(
    state: Path,
    release: Release,
    engine: EngineSettings,
    tokens: tuple[int, int],
    found: Evaluation,
    limits: Limits,
    tell: Callable[[str], None],
) -> Evaluation:
    """What was measured, with times and memory of the engine that will serve, for one client and nobody else.

    `tokens` are those of a usual prompt and its answer. Measured again where it misses what is promised: a
    machine that something disturbed is no slow model.
    """
    input_tokens, output_tokens = tokens
    best, prompts = found, loader.prompts_of(release.folder, input_tokens, seed=SEED)
    with trials.engine_alone(state, engine) as (base, model):
        for _ in range(ENGINE_TRIES):
            tell(f"evaluate {release.text} on {engine.kind}")
            load = loader.hold_closed(
                loader.bare_endpoint(base, model),
                cycle(prompts),
                1,
                max_tokens=output_tokens,
                request_count=ENGINE_REQUESTS,
                warmup_count=2,
            )
            point = loads.load_point("alone", load, concurrency=1)
            tried = replace(
                found,
                ttft_p95_s=point.ttft.p95_s if point.ttft else None,
                tpot_p95_s=point.tpot.p95_s if point.tpot else None,
                memory_bytes=trials.alone_memory_bytes(state),
                engine=f"{_on(engine)}{found.engine.rpartition(BESIDE)[2]}",
            )
            best = tried if best is found else _faster(best, tried)
            if _keeps(best.ttft_p95_s, limits.ttft_p95_s) and _keeps(best.tpot_p95_s, limits.tpot_p95_s):
                break
    return best


def is_of_engine(found: Evaluation, engine: EngineSettings) -> bool:
    """Whether times and memory were measured on this engine."""
    return found.engine.startswith(_on(engine)) and found.ttft_p95_s is not None


def _on(engine: EngineSettings) -> str:
    return f"{engine.kind}{BESIDE}"


def _faster(one: Evaluation, other: Evaluation) -> Evaluation:
    ttft = [each.ttft_p95_s for each in (one, other) if each.ttft_p95_s is not None]
    tpot = [each.tpot_p95_s for each in (one, other) if each.tpot_p95_s is not None]
    return replace(other, ttft_p95_s=min(ttft, default=None), tpot_p95_s=min(tpot, default=None))


def _keeps(figure: float | None, most: float | None) -> bool:
    return most is None or (figure is not None and figure <= most)


def _is_measured(request: LoopRequest, opened: Registry, described: Described) -> bool:
    """Whether it was measured on this set, beside what serves, and on the engine where that is ours."""
    found = described.evaluation
    name = described.version.name
    beside = opened.find(f"{name}@{SERVING}").digest if SERVING in opened.tables.aliases(name) else ""
    return (
        found is not None
        and found.set_sha256 == sha256_of(held_out(request))
        and found.beside == beside
        and (found.ttft_p95_s is not None or request.serving.server is not None)
    )


def held_out(request: LoopRequest) -> Path:
    """The set that releases are evaluated on, beside the state: the spec's own, or our small one, which is
    what was learned from requests, where somebody curated it there, then text that no run of a loop has
    seen, in two slices. Raises FileError for a set of the spec that cannot be read."""
    path, own = request.state / HELD_OUT, request.serving.evaluated_on
    lines = own_set(own) if own else _small_set(request.state / LEARNED)
    if not path.exists() or path.read_text("utf-8") != lines:
        write_whole(path, lines)
        path.chmod(0o600)  # it may hold what people asked
    return path


def own_set(path: Path) -> str:
    """The lines of the set that a spec names. Raises FileError for what is none."""
    hint = "write a JSON object with `slice` and `text` on each line of a file whose name ends in `.jsonl`"
    try:
        lines = path.read_bytes().decode("utf-8")  # as it is: its digest is that of the file
        if path.suffix != evaluate_worker.LINES:
            raise ValueError(f"its name does not end in `{evaluate_worker.LINES}`")
        if not evaluate_worker.texts_of(path.name, lines):
            raise ValueError("it has no lines of JSON")
    except (OSError, ValueError) as error:
        raise FileError(f"`evaluated_on`: `{path}` is no evaluation set: {error}", hint=hint) from error
    return lines


def _small_set(learned: Path) -> str:
    rows = learned_rows(learned, LEARNED_BYTES)
    rows += [{"slice": kind, "text": text} for kind, text in held_out_texts(SEEN_BYTES, PIECES, PIECE_BYTES)]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def questions_for(state: Path, opened: Registry, text: str) -> str:
    """The file of questions that a release is judged by on the side while it is tried; "" without our set."""
    asked = tuple(_questions(state / HELD_OUT))
    if not asked:
        return ""
    path = state / QUESTIONS / f"{opened.find(text).digest.replace(':', '-')}.json"
    write_whole(path, write_questions(opened.wanted(text), asked))
    return str(path)


def _questions(texts: Path) -> Iterator[tuple[str, str]]:
    for each in evaluate_worker.read_texts(texts) if texts.is_file() else ():
        text = each.text
        for at in range(0, len(text) - PROMPT_CHARACTERS - TEXT_CHARACTERS, 3 * PROMPT_CHARACTERS):
            end = at + PROMPT_CHARACTERS
            yield text[at:end], text[end : end + TEXT_CHARACTERS]

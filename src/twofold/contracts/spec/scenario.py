"""A scenario: what happens to a plan in the twin, read with the care of a spec; and those that are shipped.

Variants, the same file with a few keys other, are merged as nodes before anything is read, so that an error
in one names its own line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from twofold.contracts.names import did_you_mean
from twofold.contracts.spec import fields
from twofold.contracts.spec.fields import Listed, Part, Quantity, first_twice, refusal
from twofold.contracts.spec.reader import keys_of, problems, read_text
from twofold.contracts.spec.scenario_fleet import ClusterChange, EngineChange
from twofold.contracts.spec.scenario_parts import Clients, FaultEvent, FleetChange, TrafficChange
from twofold.contracts.spec.scenario_policies import Policies
from twofold.contracts.spec.yaml_nodes import Mapping, Node, Scalar, plain, read_nodes
from twofold.core.errors import InputErrors, Place, ShapeError, UnknownNameError
from twofold.core.quantity import Dimension

VARIANTS = "variants"
OVERRIDE = "--sweep"  # what errors call the place of a value that the command line gave
BASE_VERSION = "base"  # what runs before anything is released
NODE_FAILURE, NODE_HANG = NODE_FAULTS = ("node-failure", "node-hang")  # these befall a training cluster
OF_SERVING = (
    "warm_up_s", "traffic", "clients", "fleet", "engine", "policies", "beliefs", "metrics",
    "success_fraction", "once_every_s",
)  # fmt: skip
Error = Annotated[float, Quantity(Dimension.FRACTION, "%", highest=0.9)]
FOLDER = "scenarios"  # of the package


class BeliefChange(Part):
    """How far the machines' beliefs lie from the world."""

    error_fraction: Error | None = Field(
        default=None,
        description="a run is repeated with beliefs so much too low and too high; else by 30 %, or at both "
        "ends of the range of the plan's own times where that is wider",
    )


class Metrics(Part):
    """How late the gate knows what replicas report."""

    every_s: fields.Seconds = Field(default=5.0, description="between two scrapes of a replica")
    delay_s: fields.Seconds = Field(default=1.0, description="from a scrape until the gate knows it")


class Scenario(Part):
    """What is other than the plan says. An empty one is the plan's own day at its peak."""

    name: fields.Name = Field(default="as-planned", description="its name on screens")
    about: fields.Text = Field(
        default="the plan's day, with what this scenario changes", description="in a line"
    )
    horizon_s: fields.Span | None = Field(
        default=None, description="until when requests arrive; else as long as figures need"
    )
    warm_up_s: fields.Seconds | None = Field(
        default=None, description="from the start, left out of all figures"
    )
    traffic: TrafficChange = Field(default=TrafficChange(), description="how requests arrive")
    clients: Clients = Field(default=Clients(), description="what clients do")
    fleet: FleetChange = Field(default=FleetChange(), description="the fleet")
    engine: EngineChange = Field(default=EngineChange(), description="how its engines are set")
    faults: Annotated[tuple[FaultEvent, ...], Listed] = Field(default=(), description="what goes wrong")
    policies: Policies = Field(default=Policies(), description="the gate's policies")
    beliefs: BeliefChange = Field(default=BeliefChange(), description="what the machines believe")
    metrics: Metrics = Field(default=Metrics(), description="how late they know")
    cluster: ClusterChange | None = Field(default=None, description="the training cluster")
    success_fraction: fields.Availability | None = Field(
        default=None,
        description="of the requests that get their whole answer here; else as the plan's goal, and under "
        "faults, bursts and cold starts at least 99 %",
    )
    once_every_s: fields.Span | None = Field(
        default=None, description="how often this happens: what fails here is charged to the year's goal"
    )

    @property
    def is_disturbed(self) -> bool:
        """Whether something goes wrong that steady traffic knows nothing of."""
        return bool(self.faults or self.traffic.bursts or self.fleet.start == "cold")

    def idle_fields(self) -> dict[str, str]:
        if self.cluster is None:
            return {} if self.is_disturbed else {"once_every_s": "is of faults and bursts, and here are none"}
        return dict.fromkeys(OF_SERVING, "is of serving, and this scenario is of a training cluster")

    @model_validator(mode="after")
    def _befalls_what_is_there(self) -> "Scenario":
        versions = [BASE_VERSION, *(fault.version for fault in self.faults if fault.kind == "release")]
        for fault in self.faults:
            if self.cluster is None and fault.kind in NODE_FAULTS:
                raise refusal(
                    f"a `{fault.kind}` befalls a training cluster, and this scenario has none",
                    "write `cluster:`, or another `kind`, such as `replica-crash`",
                )
            if self.cluster is not None and fault.kind not in NODE_FAULTS:
                raise refusal(
                    f"a `{fault.kind}` befalls serving, not a training cluster",
                    f"write `kind: {NODE_FAILURE}`, or `slow` and `failures` under `cluster`",
                )
        twice = first_twice(versions)
        if twice is not None:
            what = "is what runs" if twice == BASE_VERSION else "is released twice"
            raise refusal(f"the version `{twice}` {what}", "write another `version`")
        return self

    @model_validator(mode="after")
    def _begins_before_the_end(self) -> "Scenario":
        if self.horizon_s is None:
            return self
        if self.warm_up_s is not None and self.warm_up_s >= self.horizon_s:
            raise refusal(
                "the warm-up is as long as the horizon: nothing is measured",
                "write a shorter `warm_up`, or a longer `horizon`",
            )
        events: list[tuple[str, float]] = [(fault.kind, fault.at_s) for fault in self.faults]
        events += [("burst", burst.at_s) for burst in self.traffic.bursts]
        late = next((kind for kind, at_s in events if at_s >= self.horizon_s), None)
        if late is not None:
            raise refusal(
                f"the {late} begins after the horizon", "write an earlier `at`, or a longer `horizon`"
            )
        return self


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scenario is read besides its text."""

    classes: frozenset[str] = frozenset()  # of the service, where they are known
    folder: Path | None = None  # in which the files that it names lie
    variant: str = ""  # of the file's `variants`; "": the scenario itself
    overrides: tuple[tuple[str, str], ...] = ()  # path and text of values that stand for the file's


def read_scenario(path: Path, reading: Reading = Reading()) -> Scenario:
    """The scenario in a file.

    Raises InputErrors with everything that is wrong, or the one error that keeps the file from being read.
    """
    return parse_scenario(read_text(path), str(path), replace(reading, folder=path.parent))


def parse_scenario(text: str, file: str, reading: Reading = Reading()) -> Scenario:
    """The scenario in a text; `file` is what errors call it."""
    root = read_nodes(text, file)
    if not isinstance(root, Mapping):
        hint = f"keys: {', '.join(keys_of(Scenario))}"
        raise ShapeError("a scenario needs keys", place=root.place, hint=hint)
    root = chosen(root, reading.variant, file)
    for key, value in reading.overrides:
        root = merged(root, override(key, value))
    context = {"classes": reading.classes, "folder": reading.folder}
    try:
        read = Scenario.model_validate(plain(root), context=context)
    except ValidationError as error:
        raise InputErrors(problems(error, root, Scenario, "a scenario")) from error
    return read.model_copy(update={"name": f"{read.name}:{reading.variant}"}) if reading.variant else read


def merged(base: Mapping, change: Mapping) -> Mapping:
    """Both, the change's where both speak: mappings are merged key by key, lists and texts replaced."""
    entries, keys = dict(base.entries), dict(base.keys)
    for key, value in change.entries.items():
        under = entries.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        entries[key] = merged(under, value) if both else value  # type: ignore[arg-type]  # both are mappings
        keys[key] = change.keys[key]
    return Mapping(base.place, entries, keys)


def chosen(root: Mapping, variant: str, file: str) -> Mapping:
    """The scenario without its variants, or one of them. Raises UnknownNameError where it has no such one."""
    base = Mapping(root.place, dict(root.entries), dict(root.keys))
    place, held = base.keys.pop(VARIANTS, root.place), base.entries.pop(VARIANTS, Mapping(root.place))
    if not isinstance(held, Mapping):
        hint = "write a name for each, and below it the keys that are other"
        raise ShapeError(f"`{VARIANTS}` needs keys", place=place, hint=hint)
    changes: dict[str, Mapping] = {}
    for name, change in held.entries.items():
        if not isinstance(change, Mapping):
            raise ShapeError(f"the variant `{name}` needs keys", place=held.keys[name], hint="what is other?")
        changes[name] = change
    if variant and variant not in changes:
        own = root.entries.get("name")
        scenario = own.text if isinstance(own, Scalar) else Path(file).stem
        hint = did_you_mean(variant, changes, f"variants: {', '.join(changes) or 'it has none'}")
        raise UnknownNameError(f"`{variant[:64]}` is not a variant of `{scenario}`", hint=hint)
    return merged(base, changes[variant]) if variant else base


def override(path: str, value: str) -> Mapping:
    """`a.b` and a text as nodes: {a: {b: text}}."""
    node: Node = Scalar(value, Place(OVERRIDE, 1, 1))
    for key in reversed(path.split(".")):
        node = Mapping(Place(OVERRIDE, 1, 1), {key: node}, {key: Place(OVERRIDE, 1, 1)})
    assert isinstance(node, Mapping)
    return node


@cache
def scenario_names() -> tuple[str, ...]:
    """The names of the packaged scenarios."""
    found = (path.name for path in files("twofold").joinpath(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def find_scenario(
    text: str, classes: Iterable[str] = (), overrides: tuple[tuple[str, str], ...] = ()
) -> Scenario:
    """A packaged scenario by its name, or the one in a file; `NAME:VARIANT` is a variant of it.

    `classes` are those of the service; `overrides` stand for values of the file. Raises UnknownNameError
    where it is neither, InputErrors where the file is wrong.
    """
    name, _, variant = text.partition(":")
    reading = Reading(frozenset(classes), variant=variant, overrides=overrides)
    if name in scenario_names():
        content = files("twofold").joinpath(FOLDER, f"{name}.yaml").read_text("utf-8")
        return parse_scenario(content, f"{name}.yaml", reading)
    path = Path(text)
    if not path.exists() and variant:
        path = Path(name)
    elif variant:
        reading = replace(reading, variant="")  # a file whose name holds the sign
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_scenario(path, reading)
    hint = did_you_mean(name, scenario_names(), f"a file, or one of: {', '.join(scenario_names())}")
    raise UnknownNameError(f"`{text[:64]}` is not a scenario", hint=hint)

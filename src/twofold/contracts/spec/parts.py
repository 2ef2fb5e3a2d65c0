"""Parts that training runs and services share: which model, and on which machines."""

import re
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationInfo, model_serializer, model_validator

from twofold.contracts.names import fold
from twofold.contracts.spec.fields import (
    AcceleratorName,
    FilePath,
    ModelName,
    NodeName,
    Part,
    PositiveCount,
    Text,
    refusal,
)
from twofold.perf.software import SPEC_ENGINES

if TYPE_CHECKING:
    Engine = str
else:
    Engine = Literal[SPEC_ENGINES]

_CLUSTER = re.compile(
    r"(?:(?P<nodes>\d{1,6})\s*[x×]\s*)?(?P<count>\d{1,6})\s*[x×]\s*(?P<accelerator>[A-Za-z].{0,60})"
)
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.A)  # of a hub
_ADDRESS = re.compile(r"(?:https?://)?[\w-]+(?:\.[\w-]+)+/(?=[^/]+/[^/]+/?$)")  # of the hub, before that


class ModelReference(Part):
    """One of: a catalog name, a path to a Hugging Face config.json, `{measured: rows.csv}`, a model of the
    registry beside the spec."""

    name: ModelName | None = Field(default=None, description="the catalogue's name; the text form says it")
    config: FilePath | None = Field(
        default=None, description="a config.json; a text that ends in .json says it"
    )
    measured: FilePath | None = Field(default=None, description="a csv of measured step or service times")
    registry: Text | None = Field(
        default=None,
        description="NAME@serving or a digest, in `.twofold-registry` beside the spec; its text form says it",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        is_path = value.strip().endswith(".json") or value.strip().startswith((".", "/", "~"))
        if not is_path and ("@" in value or value.strip().startswith("sha256:")):
            return {"registry": value.strip()}
        return {"config": value} if is_path else {"name": value}

    @model_validator(mode="after")
    def _one_of(self) -> "ModelReference":
        if (self.name, self.config, self.measured, self.registry).count(None) != 3:
            hint = "write a catalog name, a path, {measured: rows.csv}, or NAME@serving"
            raise refusal("a model is one thing", hint)
        return self

    @model_serializer
    def _as_text(self) -> str | dict[str, str]:
        if self.measured:
            return {"measured": str(self.measured)}
        return str(self.registry or self.config or self.name)

    @property
    def repository(self) -> str:
        """The hub's repository that it names, maybe another than the catalogue's own; "" for a mere model."""
        name = _ADDRESS.sub("", self.name or "", count=1).rstrip("/")
        return name if REPOSITORY.fullmatch(name) else ""

    @property
    def label(self) -> str:
        """How a screen names it."""
        return self.name or self.registry or Path(self.config or self.measured or "").stem


class FixedCluster(Part):
    """Machines that are given: `64x8xH100-SXM` (nodes × per node), `4xH200` (one node), {node: …}."""

    accelerator: AcceleratorName | None = Field(default=None, description="an accelerator, or a `node`")
    accelerators_per_node: PositiveCount | None = Field(
        default=None, description="in one node, no more than a server holds"
    )
    node: NodeName | None = Field(default=None, description="a node type of the catalogue")
    count: PositiveCount = Field(default=1, description="nodes")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return parse_cluster(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of(self) -> "FixedCluster":
        if (self.node is None) == (self.accelerator is None):
            raise refusal("give a `node` or an `accelerator`", "write for example `8x8xH100-SXM`")
        return self

    @model_validator(mode="after")
    def _fits_servers(self, info: ValidationInfo) -> "FixedCluster":
        """`512xH100-SXM` is one server of 512, which nobody builds: several are meant."""
        names = info.context.get("names") if isinstance(info.context, dict) else None
        most = names.per_server.get(fold(self.accelerator or "")) if names else None
        size, name = self.accelerators_per_node or 1, self.accelerator
        if most is not None and size > most:
            nodes = self.count * ceil(size / most)
            what = f"no server holds {size} of `{name}`, which `{size}x{name}` says"
            raise refusal(
                what, f"write nodes × accelerators in each, `{nodes}x{most}x{name}`; {most} is the most"
            )
        return self


def parse_cluster(text: str) -> dict[str, str]:
    """The keys of a FixedCluster from `64x8xH100-SXM`, `4xH200` or `H200`."""
    match = _CLUSTER.fullmatch(text.strip())
    if not match:
        if re.fullmatch(r"[A-Za-z].{0,60}", text.strip()):
            return {"accelerator": text.strip(), "accelerators_per_node": "1"}
        raise refusal(f"`{text[:64]}` is not a cluster", "write for example `64x8xH100-SXM` or `4xH200`")
    return {
        "accelerator": match["accelerator"].strip(),
        "accelerators_per_node": match["count"],
        "count": match["nodes"] or "1",
    }

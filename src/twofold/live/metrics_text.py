"""Series as Prometheus' text format has them: https://prometheus.io/docs/instrumenting/exposition_formats/."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
NUMBER = r"(?:[-+]?(?:[0-9.][-+0-9.eE]*|Inf)|NaN)"
SAMPLE = re.compile(rf"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{{(.*)\}})?(\s+{NUMBER}(?:\s+-?\d+)?)\s*")
TYPED = re.compile(r"# (HELP|TYPE) ([A-Za-z_:][A-Za-z0-9_:]*)(?: .*)?")
SUFFIXES = ("_bucket", "_sum", "_count", "_created")  # of samples that belong to a family without them

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    meaning: str
    samples: tuple[tuple[str, Labels, float], ...]  # what is added to the name, its labels, its value


@dataclass(slots=True)
class Histogram:
    """How many values were at most as large as each bucket. Mutable, of fixed size."""

    buckets: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.buckets) + 1)

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.total += value

    def samples(self, labels: Labels) -> Iterator[tuple[str, Labels, float]]:
        """Buckets count all that are no larger, the last one all."""
        below = 0
        for bucket, count in zip((*self.buckets, float("inf")), self.counts, strict=True):
            below += count
            yield "_bucket", {**labels, "le": bound_text(bucket)}, below
        yield "_sum", labels, self.total
        yield "_count", labels, below


def families_text(families: Iterable[Family]) -> str:
    """Each family together, a line per sample."""
    lines: list[str] = []
    for family in families:
        lines += f"# HELP {family.name} {family.meaning}", f"# TYPE {family.name} {family.kind}"
        for suffix, labels, value in family.samples:
            lines.append(f"{family.name}{suffix}{_labels_text(labels)} {number_text(value)}")
    return "\n".join((*lines, ""))


def number_text(value: float) -> str:
    """A number as this format and the queries of alarms write it.

    >>> number_text(0.5), number_text(2.0), number_text(float("inf"))
    ('0.5', '2', '+Inf')
    """
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def bound_text(bucket: float) -> str:
    """A bucket as clients of Prometheus label it, and alarms ask for it.

    >>> bound_text(2), bound_text(float("inf"))
    ('2.0', '+Inf')
    """
    return "+Inf" if bucket == float("inf") else repr(float(bucket))


def with_label(texts: Mapping[str, str], label: str) -> str:
    """The series of several programs under their own names, each sample with the program that it is of.

    Lines that are no samples are left out, as are samples that carry the label already.

    >>> print(with_label({"a": "x 1", "b": 'x{k="v"} 2'}, "replica"), end="")
    x{replica="a"} 1
    x{replica="b",k="v"} 2
    """
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for program, text in texts.items():
        own = f'{label}="{escaped(program)}"'
        for line in text.splitlines():
            if typed := TYPED.fullmatch(line):
                heads.setdefault(typed[2], {}).setdefault(typed[1], line)
            elif not line.startswith("#") and (sample := SAMPLE.fullmatch(line)):
                name, labels, value = sample.groups()
                if f'{label}="' in (labels or ""):
                    continue
                both = f"{own},{labels}" if labels else own
                samples.setdefault(_family_of(name, heads), []).append(f"{name}{{{both}}}{value}")
    lines = [
        line for name, each in samples.items() for line in (*sorted(heads.get(name, {}).values()), *each)
    ]
    return "".join(f"{line}\n" for line in lines)


def _family_of(name: str, heads: Mapping[str, object]) -> str:
    plain = next((name.removesuffix(each) for each in SUFFIXES if name.endswith(each)), name)
    return name if name in heads or plain not in heads else plain


def escaped(text: str) -> str:
    """A label's value, or text in a query, between double quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _labels_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{escaped(value)}"' for key, value in labels.items()) + "}"

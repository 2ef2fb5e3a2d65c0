"""The kinds of values a spec is made of: text in the file, SI numbers and frozen data inside."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from twofold.catalog.names import checkpoint
from twofold.contracts.names import unknown_name
from twofold.core import errors
from twofold.core.errors import FileError, InputError, ValueRefusedError
from twofold.core.quantity import DAY_S, Dimension, natural_quantity, parse_quantity

YEARS = range(2000, 2201)  # that a plan can speak of
_UNITS = "usd_per_kwh|w_per_min|bytes_per_s|per_s|bytes|count|fraction|ratio|s|sequences|tokens|usd|w"


class Part(BaseModel):
    """A part of a spec: frozen, and a key it does not have is an error.

    A field's key in the file is its name without the unit, `at` of `at_s`, unless the field says another.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        alias_generator=lambda name: re.sub(f"_({_UNITS})$", "", name),
    )
    text_form: ClassVar[str] = ""  # the key that a text alone stands for

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {cls.text_form: value} if cls.text_form and isinstance(value, str) else value

    def idle_fields(self) -> dict[str, str]:
        """Fields that decide nothing here because of what others say, each with the reason."""
        return {}

    @model_validator(mode="after")
    def _writes_nothing_idle(self) -> Self:
        for name, reason in self.idle_fields().items():
            if name in self.model_fields_set:
                key = type(self).model_fields[name].alias or name
                raise refusal(f"`{key}` {reason}", f"remove `{key}`")
        return self


def refusal(message: str, hint: str = "", kind: type[InputError] = ValueRefusedError) -> PydanticCustomError:
    """One of our errors on its way through pydantic; the reader takes it out again and adds the place."""
    error = kind(message, hint=hint)
    return PydanticCustomError("twofold", "{message}", {"message": message, "error": error})


def need_one(whose: str, values: Mapping[str, object]) -> None:
    """Refuse an amount that is said in none of these ways, or in several."""
    given = [f"`{key}`" for key, value in values.items() if value is not None]
    if len(given) != 1:
        what = f"gives {' and '.join(given)}" if given else "says no amount"
        raise refusal(f"{whose} {what}", f"write one of {', '.join(f'`{key}`' for key in values)}")


def first_twice(names: Sequence[str]) -> str | None:
    """The first name that stands more than once."""
    return next((name for name in names if names.count(name) > 1), None)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a float field as text with a unit of `dimension` in the file; `unit` is what hints write."""

    dimension: Dimension
    unit: str
    lowest: float = 0.0  # in SI, itself allowed
    highest: float = float("inf")
    zero: str = "allowed"  # or why it is not

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write, when_used="json"),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "examples": [self.example()]}

    def read(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            what = f"a {self.dimension.value} is one text with a unit"
            raise refusal(what, f"write for example `{self.example()}`", kind=errors.UnitError)
        try:
            number = parse_quantity(str(value), self.dimension, self.unit)
        except errors.QuantityError as error:
            raise refusal(error.message, error.hint, kind=type(error)) from error
        if number == 0 and self.zero != "allowed":
            raise refusal(f"`{value}` is zero", self.zero, kind=errors.QuantityError)
        if not self.lowest <= number <= self.highest:
            hint = f"write a value between `{self.write(self.lowest)}` and `{self.write(self.highest)}`"
            raise refusal(f"`{value}` is out of range", hint, kind=errors.QuantityError)
        return number

    def write(self, value: float) -> str:
        return natural_quantity(value, self.dimension)

    def example(self) -> str:
        number = 80 if self.dimension is Dimension.FRACTION and self.lowest > 0.1 else 10
        return f"{number}{'' if self.unit == 'x' else ' '}{self.unit}"


def _count(value: object) -> int:
    digits = str(value).replace("_", "").replace(",", "")
    if isinstance(value, (bool, dict, list)) or not re.fullmatch(r"\d{1,12}", digits, re.ASCII):
        what = f"`{_shown(value)}` is not a whole number from 0 on"
        raise refusal(what, "write for example `8`", kind=errors.QuantityError)
    return int(digits)


def _positive_count(value: object) -> int:
    number = _count(value)
    if number == 0:
        raise refusal(f"`{value}` is zero", "write a whole number from 1", kind=errors.QuantityError)
    return number


def _loss(value: object) -> float:
    try:
        number = float(str(value)) if not isinstance(value, (bool, dict, list)) else inf
    except ValueError:
        number = inf
    if not 0.0 < number <= MOST_NATS:
        what = f"`{_shown(value)}` is no loss in nats per token: a number between 0 and {MOST_NATS:g}"
        raise refusal(what, "write for example `2.1`", kind=errors.QuantityError)
    return number


def _name(value: object) -> str:
    """A name appears in paths such as `training.pretrain.step_s`, so dots and spaces are out."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", value):
        raise refusal(f"`{_shown(value)}` is not a name", "letters, digits, `-` and `_`, at most 64")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 1024:
        raise refusal("one line of text is needed here")
    return value.strip()


def _flag(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false", "yes", "no"):
        raise refusal(f"`{_shown(value)}` is neither yes nor no", "write `true` or `false`")
    return text in ("true", "yes")


def _day(value: object) -> date:
    try:
        day = value if isinstance(value, date) else date.fromisoformat(str(value).strip())
    except ValueError as error:
        raise refusal(f"`{_shown(value)}` is not a day", "write for example `2026-03-01`") from error
    if day.year not in YEARS:
        raise refusal(f"`{day}` is out of range", f"write a day from {YEARS[0]} to {YEARS[-1]}")
    return day


def _every(value: object) -> object:
    """`every 8 weeks`; the word is optional."""
    return re.sub(r"^\s*every\s+", "", value) if isinstance(value, str) else value


def _path(value: object, info: ValidationInfo) -> Path:
    """Paths in a spec are relative to its file, which the reader names; there they must exist."""
    folder = info.context.get("folder") if isinstance(info.context, dict) else None
    path = Path(_text(value))
    if folder is None:
        return path
    try:
        is_file = (folder / path).is_file()
    except (OSError, ValueError):  # too long, or holding a NUL
        is_file = False
    if not is_file:
        raise refusal(f"`{_shown(value)}` is not a file", f"it is looked for in `{folder}`", kind=FileError)
    return Path(folder / path)


def _known(*tables: str) -> BeforeValidator:
    """A name that one of the catalogue's tables holds, where the reader was given the catalogue's names."""

    def check(value: object, info: ValidationInfo) -> str:
        text = _text(value)
        names = info.context.get("names") if isinstance(info.context, dict) else None
        error = unknown_name(text, tables, names) if names else None
        if error is not None and tables == ("models",) and names:
            # A repository's name: whose it is and in which format say nothing of whether we know the model.
            error = unknown_name(checkpoint(text).base, tables, names) and error
        if error is not None:
            raise refusal(error.message, error.hint, kind=type(error))
        return text

    return BeforeValidator(check)


def _shown(value: object) -> str:
    text = str(value) if not isinstance(value, (dict, list)) else "…"
    return text if len(text) <= 64 else text[:63] + "…"


MORE_THAN_ZERO = "write more than zero"
CENTURY_S, BUSIEST_PER_S, GREATEST_RATIO = 36_525 * DAY_S, 1e9, 1e6  # more is a slip
MOST_NATS = 20.0  # a guess among 485 million words: a worse model has learnt to be wrong
_TIME = partial(Quantity, Dimension.TIME, highest=CENTURY_S)
Seconds = Annotated[float, _TIME("s", zero=MORE_THAN_ZERO)]
Latency = Annotated[float, _TIME("ms", zero="no answer takes no time")]
Span = Annotated[float, _TIME("d", zero=MORE_THAN_ZERO)]
Every = Annotated[float, _TIME("weeks", zero=MORE_THAN_ZERO), BeforeValidator(_every)]
_TOKENS = partial(Quantity, Dimension.TOKENS, zero=MORE_THAN_ZERO)
Tokens = Annotated[float, _TOKENS("tok", highest=1e12)]
ManyTokens = Annotated[float, _TOKENS("Gtok", highest=1e17)]  # more than was ever written: a slip
Samples = Annotated[float, Quantity(Dimension.SEQUENCES, "seq", highest=1e17, zero=MORE_THAN_ZERO)]
Rate = Annotated[float, Quantity(Dimension.RATE, "/s", highest=BUSIEST_PER_S, zero=MORE_THAN_ZERO)]
NO_BUDGET = "no plan costs nothing: leave `budget` out to plan without one"
Dollars = Annotated[float, Quantity(Dimension.MONEY, "$", highest=1e12, zero=NO_BUDGET)]  # more: a slip
Fraction = Annotated[float, Quantity(Dimension.FRACTION, "%", highest=1.0)]
Headroom = Annotated[float, Quantity(Dimension.FRACTION, "%", highest=10.0)]
Availability = Annotated[float, Quantity(Dimension.FRACTION, "%", lowest=0.5, highest=0.9999999)]
Confidence = Annotated[float, Quantity(Dimension.FRACTION, "%", lowest=0.5, highest=0.99)]
Multiplier = Annotated[
    float, Quantity(Dimension.MULTIPLIER, "x", highest=GREATEST_RATIO, zero=MORE_THAN_ZERO)
]
PeakRatio = Annotated[float, Quantity(Dimension.MULTIPLIER, "x", lowest=1.0, highest=1000.0)]

Count = Annotated[int, BeforeValidator(_count), WithJsonSchema({"type": ["integer", "string"]})]
PositiveCount = Annotated[
    int, BeforeValidator(_positive_count), WithJsonSchema({"type": ["integer", "string"], "minimum": 1})
]
ZoneCount = Annotated[PositiveCount, Field(le=100)]  # no region has more than a few
Flag = Annotated[bool, BeforeValidator(_flag), WithJsonSchema({"type": "boolean"})]
Loss = Annotated[float, BeforeValidator(_loss), WithJsonSchema({"type": ["number", "string"]})]
Name = Annotated[str, BeforeValidator(_name)]
Text = Annotated[str, BeforeValidator(_text)]
Day = Annotated[date, BeforeValidator(_day)]
ModelName = Annotated[str, _known("models")]
AcceleratorName = Annotated[str, _known("accelerators")]
NodeName = Annotated[str, _known("nodes")]
RegionName = Annotated[str, _known("regions")]
ProviderName = Annotated[str, _known("providers")]
OfferName = Annotated[str, _known("providers", "accelerators")]  # what a shop may leave out
FrameworkName = Annotated[str, _known("frameworks")]
MandateName = Annotated[str, _known("mandates")]
FilePath = Annotated[Path, BeforeValidator(_path)]


class Unsaid(NamedTuple):
    """What an empty list means, in the words of the plan's defaults."""

    text: str


# For tuples: one value is a list of one.
Listed = BeforeValidator(lambda value: [value] if isinstance(value, (str, dict)) else value)

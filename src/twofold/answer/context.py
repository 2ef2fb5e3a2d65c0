"""What every part of a plan is computed from: the spec's words resolved, prices, energy at the meter."""

from dataclasses import dataclass, replace
from datetime import date
from math import inf, isfinite

import numpy as np

from twofold.answer.offers import Offer, own_offers
from twofold.answer.uncertainty import Draws, estimate_of
from twofold.catalog.capacity import CONTRACT, gate_of, supplied
from twofold.catalog.catalog import Catalog
from twofold.catalog.model_config import read_model_config
from twofold.catalog.parts import is_share
from twofold.catalog.places import Fit, fit_of
from twofold.catalog.types import Model, Price, Region
from twofold.contracts.results.parts import Machine, PriceUsed
from twofold.contracts.spec.parts import ModelReference
from twofold.contracts.spec.spec import Spec
from twofold.contracts.spec.training_run import TrainingRun
from twofold.core import record
from twofold.core.errors import ValueRefusedError
from twofold.core.estimate import Estimate, Source
from twofold.core.quantity import J_PER_KWH
from twofold.perf.constants import Constants
from twofold.training.job import TrainingJob

STALE_DAYS = 365
# Optimisers that keep one moment of 4 bytes or less; the models know Adam's two and this one.
ONE_MOMENT = {"adam8bit", "adafactor", "muon", "sgd"}


@dataclass(frozen=True, slots=True)
class Context:
    """One spec with the tables and the draws that all of its parts share."""

    spec: Spec
    catalog: Catalog
    constants: Constants
    draws: Draws
    today: date | None  # None: the age of prices is not judged
    in_full: bool = True  # with what only long screens and data show: other ways, mixes, derivations


def model_of(reference: ModelReference, catalog: Catalog) -> Model:
    """The shape that a spec names, from the catalogue or from a Hugging Face config.json."""
    if reference.config:
        model = read_model_config(reference.config)
        return replace(model, name=reference.registry) if reference.registry else model
    if reference.registry:
        what = (
            f"`{reference.registry}` is looked up in the registry beside a spec, and this one is in no file"
        )
        raise ValueRefusedError(what, hint="give the spec's path")
    if reference.name:
        return token_model(catalog.model(reference.name))
    raise ValueRefusedError(
        f"`{reference.label}` is measured rows: they stand for a whole run or service, not for a model in it",
        hint="name a catalog model or a config.json here",
    )


def token_model(model: Model) -> Model:
    """The same model, where it reads and writes tokens. Raises ValueRefusedError for a diffusion model."""
    if model.arch == "diffusion":
        raise ValueRefusedError(
            f"{model.name} is a diffusion model: it has no tokens to estimate by",
            hint="plan it from a spec, with `model: {measured: rows.csv}`",
        )
    return model


def training_job(run: TrainingRun, model: Model) -> TrainingJob:
    """What the spec says about a run, as the models want it."""
    return TrainingJob(
        model=model,
        kind=run.kind,
        sequence_tokens=int(run.sequence_tokens),
        global_batch_sequences=run.global_batch_sequences,
        precision=run.precision,
        framework=run.framework,
        optimizer="sgd" if run.optimizer in ONE_MOMENT else "adam",
        lora_rank=run.lora_rank if run.kind == "lora" else 0,
    )


def price_warnings(
    offer: Offer, context: Context, regions: tuple[str, ...] = (), machine: Machine | None = None
) -> tuple[str, ...]:
    """What to know about a price: whom to ask for the `machine`, that it is none, not there, or old."""
    name = offer.accelerator.name
    if offer.owned:
        return (f"your own {name}: planned in accelerator-hours; the bill has its energy, no rent",)
    warnings = list(gate_warnings(machine)) if machine else []
    named = (offer.fixed_count or 0) * offer.node.accelerator_count
    held = sum(
        each.held
        for each in own_offers(context.catalog, context.spec.supply, regions)
        if each.accelerator.name == name
    )
    if 0 < held < named:  # of more machines than are one's own, none is taken in the place of rented ones
        warnings.append(f"`on:` names {named:,} × {name}, you have {held:,}, so all of them are rented")
    price, asked = offer.price, regions or context.spec.supply.shop.regions
    if price is None:
        return (*warnings, f"no price for {name}: counted in accelerator-hours")
    if is_share(price):
        shared = f"{price.accelerator_count} slices of {price.provider} {price.instance}"
        warnings.append(f"the price of {name} is a share: all {shared} are rented together")
    if fit_of(context.catalog, price.provider, price.region, asked) is Fit.WIDER:
        where = f"says only `{price.region}`" if price.region else "says no region"
        holds = f"ask whether it holds in {', '.join(asked)}"
        warnings.append(f"the price of {price.provider} {price.instance} {where}: {holds}")
    if context.today and (context.today - day_of(price.date)).days > STALE_DAYS:
        warnings.append(f"stale price: {price.provider} {price.instance} was seen {price.date}")
    return tuple(warnings)


def gate_warnings(machine: Machine) -> tuple[str, ...]:
    """What stands between a list price and the machines, and that a contract's price is no list's."""
    assumed = "; its price is assumed: no list has it"
    gated = [price for price in machine.prices if price.gate]
    return tuple(f"{price.gate}{assumed if price.term == CONTRACT else ''}" for price in gated)


def day_of(text: str) -> date:
    """A day from a date of any precision; the middle of the year or month where no more is known."""
    return date.fromisoformat(text + {4: "-07-01", 7: "-15"}.get(len(text), ""))


def price_used(
    offer: Offer, context: Context, accelerator_count: int = 0, *, is_job: bool = False, part: str = ""
) -> PriceUsed | None:
    """The price row with its range: what the same part costs elsewhere, or next quarter.

    And what stands between it and so many accelerators, of one job or of replicas that stand alone. `part`:
    of a machine, `base_` for what is held under the rest.
    """
    price = offer.price
    if price is None:
        return None
    usual = price.usd_per_accelerator_h
    source = Source.ASSUMED if price.term == CONTRACT or is_share(price) else Source.VENDOR
    spread = estimate_of(usual, usual * np.ravel(context.draws["price"]), "USD/h", source)
    can = supplied(price, context.catalog)
    most = min(can.gang_count if is_job else can.most_count, offer.quoted_count or inf)
    if price.term == CONTRACT:  # as many as are agreed on
        most = inf
    at, listed = f"machine.{part}price.usd_per_accelerator_h", f"{part}listed"
    record.note(at, spread, "list price", listed, "doubt")
    return PriceUsed(
        price.provider,
        price.instance,
        price.region,
        price.term,
        price.date,
        spread,
        offer.discount_fraction,
        offer.support_fraction,
        offer.egress_usd_per_tb,
        gate_of(price, accelerator_count, is_job, context.catalog),
        can.kind,
        int(most) if isfinite(most) else None,
        *can.least_of(accelerator_count),
    )


def machine_of(
    offer: Offer,
    accelerator_count: int,
    context: Context,
    per_node: int | None = None,
    *,
    is_job: bool = False,
) -> Machine:
    """So many accelerators of an offer's nodes, or of parts of them, at its price.

    A job has all of them on one fabric.
    """
    node, size = offer.node, per_node or offer.node.accelerator_count
    count = -(-accelerator_count // size)
    return Machine(
        accelerator=offer.accelerator.name,
        node=node.name,
        node_count=count,
        accelerators_per_node=size,
        accelerator_count=accelerator_count,
        fabric=node.fabric,
        price=price_used(offer, context, accelerator_count, is_job=is_job and count > 1),
        fabric_bytes_per_s=offer.nic_bytes_per_s,
    )


def facility_energy(accelerators_j: Estimate, price: Price | None, context: Context) -> Estimate:
    """From the accelerators' energy to the meter: the rest of the servers, and cooling.

    Formula  accelerators × node factor × PUE
    Why      Processors, fans, memory and network cards draw as long as accelerators do.
    Units    J.
    Source   constants `node_power_factor` and `pue_ratio`; the region's PUE where it is known.
    """
    nodes = context.constants.estimate("node_power_factor")
    region = region_of(price, context)
    pue = region.pue if region else context.constants.get("pue_ratio")
    energy_j = Estimate(
        accelerators_j.value * nodes.value * pue,
        accelerators_j.low * nodes.low * pue,
        accelerators_j.high * nodes.high * pue,
        "J",
        Source.ASSUMED,
    )
    said = "energy of the accelerators × node factor × PUE"
    return record.note("meter_j", energy_j, said, "accelerators_j", "node", "region_pue" if region else "pue")


def region_of(price: Price | PriceUsed | None, context: Context) -> Region | None:
    """The region of a price, None where the catalogue does not know the place."""
    return context.catalog.place(price.provider, price.region) if price else None


def carbon(energy_j: Estimate, price: Price | None, context: Context) -> Estimate | None:
    """Grams of CO2 at the grid of the price's region; None where that is unknown."""
    region = region_of(price, context)
    if region is None:
        return None
    grams = replace(energy_j.times(region.grid_gco2_per_kwh / J_PER_KWH, "gCO2"), source=Source.ASSUMED)
    return record.note("carbon_gco2", grams, "energy × grid", "meter_j", "grid")

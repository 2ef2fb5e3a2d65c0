"""Rules on supply: other prices do not count, and a shop without an authorised machine is refused early."""

import pytest

from twofold.answer.supply_rules import authorised
from twofold.catalog.catalog import Catalog
from twofold.contracts.spec.reader import parse_spec
from twofold.core.errors import InfeasibleError, ValueRefusedError

RUN = "training: {model: llama-3.1-8b, tokens: 1 Gtok}\n"
SERVICE = """serving:
  model: llama-3.1-8b
  REGIONS
  classes:
    chat:
      traffic: {rate: 1 /s, input: {mean: 500 tok}, output: {mean: 100 tok}}
      slo: {ttft_p95: 1 s}
"""


def narrowed(text: str, catalog: Catalog) -> Catalog:
    return authorised(parse_spec(text, "twofold.yaml"), catalog)


def refusal(text: str, catalog: Catalog) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        narrowed(text, catalog)
    return caught.value


def test_without_rules_the_catalogue_is_as_it_was(catalog: Catalog) -> None:
    assert narrowed(RUN, catalog) is catalog
    assert not catalog.is_restricted


def test_with_rules_only_authorised_prices_count_and_the_digest_stays(catalog: Catalog) -> None:
    narrow = narrowed(f"{RUN}compliance: il5\n", catalog)
    assert {price.provider for price in narrow.prices()} == {"aws", "gcp"}
    assert 0 < len(narrow.prices()) < len(catalog.prices())
    assert set(narrow.prices()) <= set(catalog.prices())
    assert (narrow.digest, narrow.whole) == (catalog.digest, catalog)
    assert set(narrow.prices_for("H100-SXM5-80GB")) == {
        price for price in narrow.prices() if price.accelerator == "H100-SXM5-80GB"
    }


def test_a_provider_outside_is_refused_with_the_reason_and_what_would_fit(catalog: Catalog) -> None:
    error = refusal(f"{RUN}supply: {{shop: {{providers: [lambda]}}}}\ncompliance: fedramp-high\n", catalog)
    lines = dict(error.lines)
    assert "no authorised machine can train `pretrain` under fedramp-high" in error.message
    assert "no authorisation of lambda for fedramp-high is known" in lines["refused"]
    assert "aws us-gov" in lines["would fit"] or "gcp us-" in lines["would fit"]


def test_a_service_abroad_is_refused(catalog: Catalog) -> None:
    text = SERVICE.replace("REGIONS", "regions: [aws:eu-west-1]")
    error = refusal(f"{text}compliance: fedramp-moderate\n", catalog)
    assert "serve `serve`" in error.message
    assert "would fit" in dict(error.lines)


def test_an_air_gapped_system_needs_machines_of_its_own(catalog: Catalog) -> None:
    error = refusal(f"{RUN}compliance: air-gapped\n", catalog)
    lines = dict(error.lines)
    assert "machines of your own" in lines["would fit"]
    assert "us-iso-east-1" in lines["would fit"]  # closed regions exist; nobody prices them in public
    own = "supply: {own: [{node: DGX-H100, count: 4}]}\n"
    assert narrowed(f"{RUN}{own}compliance: air-gapped\n", catalog).prices() == ()


def test_a_node_of_a_cloud_by_name_needs_an_authorised_region(catalog: Catalog) -> None:
    run = "training: {model: llama-3.1-8b, tokens: 1 Gtok, on: {node: NODE, count: 2}}\n"
    outside = run.replace("NODE", "p4de.24xlarge")
    assert "no authorised machine" in refusal(f"{outside}compliance: il5\n", catalog).message
    assert narrowed(f"{run.replace('NODE', 'p5.48xlarge')}compliance: il5\n", catalog).is_restricted
    assert narrowed(f"{run.replace('NODE', 'DGX-H100')}compliance: air-gapped\n", catalog).is_restricted


def test_a_part_that_is_sold_outside_only_does_not_count_as_one_without_a_price(catalog: Catalog) -> None:
    text = f"{RUN}supply: {{shop: {{accelerators: [MI300X]}}}}\ncompliance: il5\n"
    assert "no authorised machine" in refusal(text, catalog).message


def test_custom_without_rules_is_bad_input(catalog: Catalog) -> None:
    with pytest.raises(ValueRefusedError, match="needs rules of yours"):
        narrowed(f"{RUN}compliance: custom\n", catalog)

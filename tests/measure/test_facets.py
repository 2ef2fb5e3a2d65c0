"""What rows are about, as groups and goals name it."""

from twofold.catalog import load_catalog
from twofold.measure.facets import FACETS, Facets, facets_of, fitted_sources, is_known
from twofold.perf import load_known

CATALOG = load_catalog()


def facets(half: str, **row: str) -> Facets:
    (found,) = facets_of(half, [row], CATALOG)
    return found


def test_names_are_those_of_the_catalogue_and_of_families_of_software() -> None:
    found = facets("training", gpu="H100-80GB", framework="NeMo 24.07", precision="fp8", arch="dense")
    assert (found.gpu, found.framework, found.precision) == ("H100-SXM5-80GB", "megatron", "8 bits")
    assert facets("training", gpu="no-such-gpu", framework="").gpu == "no-such-gpu"


def test_the_kind_of_model_is_what_the_row_states_or_the_catalogue_knows() -> None:
    assert facets("training", experts="8").arch == "moe"
    assert facets("training", arch="dense", model="mixtral-8x7b").arch == "dense"
    kinds = {name: facets("inference", model=name).arch for name in ("llama-3.1-8b", "mixtral-8x7b")}
    assert kinds == {"llama-3.1-8b": "dense", "mixtral-8x7b": "moe"}
    assert facets("inference", model="deepseek-r1").arch == "mla"
    assert facets("training", model="deepseek-v3").arch == "moe"
    assert facets("inference", model="nobody-knows").arch == ""


def test_a_row_is_known_when_other_sources_brought_its_parts() -> None:
    seen = load_known().seen[0]
    half, gpu, software = seen.half, seen.accelerator, seen.software.partition(" ")[0]
    assert is_known(half, "mine", gpu, software)
    assert not is_known(half, "mine", "a GPU of tomorrow", software)
    assert not is_known(half, "mine", gpu, "an engine of tomorrow")


def test_what_one_source_alone_brought_is_not_known_without_it() -> None:
    alone = {(row.accelerator, row.sources) for row in load_known().seen if row.half == "inference"}
    bringers: dict[str, set[str]] = {}
    for gpu, sources in alone:
        bringers.setdefault(gpu, set()).update(sources)
    gpu, (source,) = next((gpu, tuple(found)) for gpu, found in bringers.items() if len(found) == 1)
    engine = next(row for row in load_known().seen if row.accelerator == gpu and row.half == "inference")
    name = engine.software.partition(" ")[0]
    assert not is_known("inference", source, gpu, name)
    assert is_known("inference", "mine", gpu, name)


def test_sources_of_the_fits_are_known_by_half() -> None:
    assert "vtrain-single" in fitted_sources("training")
    assert "vtrain-single" not in fitted_sources("inference")


def test_every_facet_that_scores_group_by_is_one() -> None:
    assert set(FACETS) <= set(Facets.__slots__)
    assert facets("training", source="a", gpu="H200").key(("source", "gpu")) == ("a", "H200-SXM5-141GB")

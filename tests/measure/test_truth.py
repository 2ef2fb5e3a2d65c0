"""Tables of measured rows are read as they were meant, or refused with the line."""

from pathlib import Path

import pytest

from twofold.catalog.catalog import load_catalog
from twofold.core.errors import InputError
from twofold.measure.truth import FACETS, Facets, facets_of, fitted_sources, framework_of, is_known, read_rows
from twofold.perf.known import load_known


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "runs.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_a_mark_of_byte_order_is_no_part_of_the_first_column(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n1,H100\n", "utf-8-sig")) == [{"id": "1", "gpu": "H100"}]


def test_a_short_row_is_filled_with_blanks_and_blank_lines_are_none(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n\n1\n")) == [{"id": "1", "gpu": ""}]


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("gpus,gpus\n1,2\n", "has two columns `gpus`", 1),
        ("id;gpu\n1;H100\n", "separates its columns by other than commas", 1),
        ("id,tokens\n1,2\n2,1,234\n", "3 cells where the header has 2", 3),
    ],
)
def test_what_would_put_figures_under_a_wrong_name_is_refused(
    tmp_path: Path, text: str, what: str, line: int
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        read_rows(written(tmp_path, text))
    assert caught.value.place is not None and caught.value.place.line == line
    assert caught.value.hint


def test_trailing_empty_cells_harm_nobody(tmp_path: Path) -> None:
    assert read_rows(written(tmp_path, "id,gpu\n1,H100,,\n")) == [{"id": "1", "gpu": "H100"}]


CATALOG = load_catalog()


def facets(half: str, **row: str) -> Facets:
    (found,) = facets_of(half, [row], CATALOG)
    return found


def test_names_are_those_of_the_catalogue_and_of_families_of_software() -> None:
    found = facets("training", gpu="H100-80GB", framework="NeMo 24.07", precision="fp8", arch="dense")
    assert (found.gpu, found.framework, found.precision) == ("H100-SXM5-80GB", "megatron", "8 bits")
    assert facets("training", gpu="no-such-gpu", framework="").gpu == "no-such-gpu"


def test_megatron_without_a_release_is_of_the_years_of_its_accelerators() -> None:
    for gpu, framework, called in (
        ("A100-80GB", "Megatron-LM", "Megatron-LM 2023"),
        ("H100-80GB", "Megatron-LM", "Megatron-LM"),
        ("A100-80GB", "Megatron-LM 0.14", "Megatron-LM 0.14"),
    ):
        assert framework_of({"gpu": gpu, "framework": framework}) == called


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

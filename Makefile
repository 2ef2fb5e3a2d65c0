# Every target makes .venv itself; only python3 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# What training and serving need beside: PyTorch and an engine.
EXTRAS := .venv/.extras
ALONE := tests/live tests/app/test_loop_live.py tests/app/test_looping.py

.PHONY: demo loop extras test check bench golden fit accuracy lock clean

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(STAMP)

$(EXTRAS): $(STAMP) requirements-live.lock
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-live.lock
	touch $(EXTRAS)

extras: $(EXTRAS)

demo: $(STAMP)
	$(BIN)/twofold plan examples/assistant/twofold.yaml

loop: $(EXTRAS)
	$(BIN)/twofold up examples/laptop
	$(BIN)/twofold down examples/laptop

# Two at a time; what starts processes and listens to clocks of its own runs after that, alone.
test: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest $(ALONE)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m bench

golden: $(STAMP)
	$(BIN)/python -m pytest tests/cli tests/test_docs.py --golden

fit: $(STAMP)
	$(BIN)/python -m twofold.measure.fit ../shared/truth
	$(BIN)/python -m twofold.measure.fit_kernel_classes ../shared/truth

accuracy: $(STAMP)
	$(BIN)/python -m twofold.measure.accuracy ../shared/truth docs/accuracy.md

lock: $(STAMP)
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --extra dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --constraint requirements-dev.lock --extra train --extra live --output-file requirements-live.lock pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements-live.lock # the plain release: any index has it

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache

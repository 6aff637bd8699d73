# `make` sets everything up and runs the pipeline; `make test` sets up and runs the tests.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PORT   ?= 5000
# cpu or cuda. Only Linux has two builds; without an NVIDIA driver the CPU build is 15 times smaller.
TORCH  ?= $(if $(filter Linux,$(shell uname -s)),$(if $(shell command -v nvidia-smi 2>/dev/null),cuda,cpu),default)
TORCH_VERSION := $(shell sed -n 's/^torch==//p' constraints.txt)

# DVC runs stage commands with this PATH, so `python` is the environment's.
export PATH := $(abspath $(BIN)):$(PATH)
export DVC_NO_ANALYTICS := true
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := all
.PHONY: all setup repro test lint ui chat doctor bench clean help

all: setup repro  ## set up and run the pipeline (the default)

setup: $(STAMP)  ## create .venv and install, with the tested versions

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made. On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@if [ "$(TORCH)" = cpu ]; then \
	  echo "No NVIDIA driver found (or TORCH=cpu): taking the CPU build of torch. make TORCH=cuda changes that."; \
	  $(BIN)/python -m pip install --quiet --no-deps --retries 1 \
	    --extra-index-url https://download.pytorch.org/whl/cpu torch==$(TORCH_VERSION); \
	fi
	@echo "Installing (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@git rev-parse --git-dir >/dev/null 2>&1 || $(BIN)/dvc config --local core.no_scm true
	@touch $@

repro:
ifdef PRESET
ifneq ($(wildcard presets/model/$(PRESET).yaml),)
	@$(BIN)/sifirdan preset $(PRESET)
else
	@test -f presets/$(PRESET).yaml || { echo "There is no presets/$(PRESET).yaml; there are: $(notdir $(basename $(wildcard presets/*.yaml presets/model/*.yaml)))"; exit 1; }
	@for kept in presets/*.yaml; do cmp -s $$kept params.yaml && exit 0; done; \
	  git rev-parse --git-dir >/dev/null 2>&1 || { cp params.yaml params.before.yaml; \
	  echo "There is no Git here to keep your params.yaml; it is copied to params.before.yaml"; exit 0; }; \
	  git diff --quiet HEAD -- params.yaml || { \
	  echo "params.yaml has changes of yours; commit or copy them first, then: make PRESET=$(PRESET)"; exit 1; }
	@cmp -s presets/$(PRESET).yaml params.yaml || { cp presets/$(PRESET).yaml params.yaml && \
	  echo "params.yaml is now the preset $(PRESET); git checkout params.yaml takes the default back"; }
endif
endif
	@$(BIN)/python -m stages
	@# a stage that fails, say publish without a network, keeps only those after it from running
	@$(BIN)/dvc repro --keep-going

test: setup  ## set up and run all tests (plain `pytest` leaves the slow ones out)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "slow or not slow" $(ARGS)

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

ui: setup  ## compare runs in the browser: MLflow on 127.0.0.1, PORT=5000
	@$(BIN)/sifirdan ui --port $(PORT)

chat: setup  ## talk to your model in the terminal
	@$(BIN)/sifirdan chat

doctor: setup  ## what this machine has and what is missing
	@$(BIN)/sifirdan doctor

bench: setup  ## run the benchmarks (over an hour; nothing else may run meanwhile)
	@for file in bench/*.py; do echo "$$file"; $(BIN)/python -m bench.$$(basename $$file .py); done

clean:  ## delete the environment and caches, not your data, models or runs
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16
	@echo; echo "  with: PRESET=name (params.yaml from presets/), TORCH=cpu|cuda, PYTHON=python3.12, PORT=5000, ARGS=... (test)"

# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup
PORT ?= 5006
EXPLORE ?= 1
STUDY ?= demo

.PHONY: setup demo test test-fast bench lint clean browser

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, found " + sys.version.split()[0] + "; run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,train]'
	touch $@

# Debian's Chromium for the browser tests; elsewhere they fail with the line that installs it.
browser:
	@if ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null; fi

demo: setup
	$(BIN)/workbench run studies/$(STUDY).toml
	@if [ "$(EXPLORE)" != 0 ]; then $(BIN)/workbench explore --port $(PORT); fi

# One process for each core, one thread for each process: tiny models do not gain from threads.
# The processes that tests start read byte code that the first of them wrote.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto --dist loadfile
FAST := not thorough and not real and not browser and not gpu

test: setup browser
	$(PYTEST) -m "$(FAST)"
	$(PYTEST) -m "(thorough or real or browser) and not gpu"

test-fast: setup
	$(PYTEST) -m "$(FAST)"

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	@for script in capture sweep store; do \
	  echo "benchmarks/$$script.py"; $(BIN)/python benchmarks/$$script.py --quick || exit 1; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

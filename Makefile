# Everything from nothing: `make demo` and `make test` build .venv on first use.
PYTHON ?= python3
VENV := .venv
FRAMEWORKS := .venv-frameworks
BROWSER := .venv-browser
TENSORFLOW := .venv-tensorflow
JAX := .venv-jax
ANY := .venv-any
WORK := .venv-work
TOOLS := .venv-tools
DIST := .venv-dist
RAY := .venv-ray
BIN := $(VENV)/bin

QUICK := tests/unit tests/rules tests/golden tests/contract
COVERED := $(QUICK) $(addprefix tests/integration/test_,feed.py job_tree.py launch.py nvidia.py observer.py probe.py \
  record_inside.py reporting.py thread_states.py watch.py)
PYTHONS ?= 3.10 3.12 3.13

# Tests start hundreds of processes: each would compile the package anew where the environment forbids to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-quick test-tensorflow test-jax test-ray coverage pythons frameworks browser tools check format docs zoo zoo-tensorflow zoo-work zoo-jax zoo-any bench dist clean

demo: $(VENV)/.demo
	$(BIN)/fuelline demo

test: $(VENV)/.dev
	$(BIN)/pytest -q -n 2

test-quick: $(VENV)/.dev
	@echo "Unit tests, rules, golden reports, contracts. Left to make test: what starts jobs, and most examples of properties."
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -q -n 2 --dist worksteal -m "not integration" $(QUICK)

# With the processes that tests start, torch jobs among them. The rest of tests/integration compares jobs with and without the
# recorder, or looks at their time, which coverage.py within them would change.
coverage: $(VENV)/.dev
	$(BIN)/pytest -q -n 2 --cov --cov-report= -m "not bare" $(COVERED)
	$(BIN)/python tests/coverage_by_room.py

# A wheel, as it is published: one build has to serve every Python.
pythons: $(VENV)/.demo
	rm -rf build/wheel
	$(BIN)/pip wheel -q --no-deps --wheel-dir build/wheel .
	tests/on_pythons.sh build/wheel/*.whl $(PYTHONS)

frameworks: $(FRAMEWORKS)/.installed
	$(FRAMEWORKS)/bin/pytest -q tests/integration/frameworks

# Pages in a real browser: Debian's Chromium, or that of CHROMIUM. Skipped in `make test`, which has no driver for it.
browser: $(BROWSER)/.installed
	$(BROWSER)/bin/pytest -q tests/browser

# Trackers, notebook and assistant: the real libraries, offline. Skipped in `make test`, which has none of them.
tools: $(TOOLS)/.installed
	$(TOOLS)/bin/pytest -q tests/tools

test-tensorflow: $(TENSORFLOW)/.installed
	$(TENSORFLOW)/bin/pytest -q tests/integration/frameworks/test_tensorflow.py

test-jax: $(JAX)/.installed
	$(JAX)/bin/pytest -q tests/integration/frameworks/test_jax.py

# A head and nodes on this machine, in network namespaces where that is allowed.
test-ray: $(RAY)/.installed
	$(RAY)/bin/pytest -q tests/integration/frameworks/test_ray_workers.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

zoo: $(VENV)/.dev
	$(BIN)/python -m bench.zoo

zoo-work: $(WORK)/.installed
	$(WORK)/bin/python -m bench.zoo --work --runs 3

zoo-tensorflow: $(TENSORFLOW)/.installed
	$(TENSORFLOW)/bin/python -m bench.zoo --tensorflow --runs 3

zoo-jax: $(JAX)/.installed
	$(JAX)/bin/python -m bench.zoo --jax --runs 3

zoo-any: $(ANY)/.installed
	$(ANY)/bin/python -m bench.zoo --any --runs 3

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# What is published, in dist/. The wheel is built from the sdist, which proves that this can be done; auditwheel
# reads which glibc the compiled parts need and tags the wheel accordingly. A wheel without both parts is not published.
dist: $(DIST)/.installed
	rm -rf dist
	$(DIST)/bin/python -m build --outdir dist/built .
	test "$$($(DIST)/bin/python -m zipfile -l dist/built/*.whl | grep -c 'abi3\.so')" = 2
	PATH="$(CURDIR)/$(DIST)/bin:$$PATH" $(DIST)/bin/auditwheel repair --wheel-dir dist dist/built/*.whl
	mv dist/built/*.tar.gz dist && rm -r dist/built
	$(DIST)/bin/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(FRAMEWORKS) $(TENSORFLOW) $(JAX) $(ANY) $(WORK) $(BROWSER) $(TOOLS) $(DIST) $(RAY) $(PYTHONS:%=.venv-%) bench/out build dist

$(VENV)/.demo: pyproject.toml constraints.txt hatch_build.py $(wildcard src/fuelline/ingest/kineto/scanner/*) src/fuelline/record/_buffer.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt -e . torch numpy pillow
	touch $@

$(VENV)/.dev: $(VENV)/.demo requirements-dev.txt requirements-test.txt
	$(BIN)/pip install -q -r requirements-dev.txt
	touch $@

# Apart from .venv, so that `make test` stays without these heavy packages.
$(FRAMEWORKS)/.installed: pyproject.toml constraints.txt requirements-dev.txt requirements-test.txt requirements-frameworks.txt
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/pip install -q -e . -r requirements-dev.txt -r requirements-frameworks.txt
	touch $@

$(BROWSER)/.installed: pyproject.toml constraints.txt requirements-test.txt requirements-browser.txt
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/pip install -q -e . -r requirements-browser.txt
	touch $@

$(WORK)/.installed: pyproject.toml requirements-test.txt requirements-work.txt
	$(PYTHON) -m venv $(WORK)
	$(WORK)/bin/pip install -q -e . -r requirements-test.txt -r requirements-work.txt
	touch $@

$(TOOLS)/.installed: pyproject.toml constraints.txt requirements-test.txt requirements-tools.txt
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install -q -e . -r requirements-tools.txt
	touch $@

$(TENSORFLOW)/.installed: pyproject.toml requirements-test.txt requirements-tensorflow.txt
	$(PYTHON) -m venv $(TENSORFLOW)
	$(TENSORFLOW)/bin/pip install -q -e . -r requirements-test.txt -r requirements-tensorflow.txt
	touch $@

$(JAX)/.installed: pyproject.toml requirements-test.txt requirements-jax.txt
	$(PYTHON) -m venv $(JAX)
	$(JAX)/bin/pip install -q -e . -r requirements-test.txt -r requirements-jax.txt
	touch $@

# Two of these libraries bring PyPI's torchvision, which is built for CUDA and fails to load beside a torch for CPUs.
$(ANY)/.installed: pyproject.toml constraints.txt requirements-test.txt requirements-any.txt
	$(PYTHON) -m venv $(ANY)
	$(ANY)/bin/pip install -q -c constraints.txt -e . -r requirements-test.txt -r requirements-any.txt
	$(ANY)/bin/pip uninstall -q -y torchvision
	touch $@

$(RAY)/.installed: pyproject.toml constraints.txt requirements-test.txt requirements-ray.txt
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/pip install -q -e . -r requirements-test.txt -r requirements-ray.txt
	touch $@

$(DIST)/.installed: requirements-dist.txt
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/pip install -q -r requirements-dist.txt
	touch $@

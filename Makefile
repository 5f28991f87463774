# Everything needed is set up on the way: `make test` in a fresh clone is enough.

VENV := .venv
RUN := $(VENV)/bin/python -m
export PYTHON

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint bench viewer docs clean
.DELETE_ON_ERROR:

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo ## build the pyramid of a real picture and check every pixel
	@$(VENV)/bin/ziggurat demo

# Tests start some hundred processes, none of which is to compile our sources once more; halves of the list of tests
# share what files have set up, and whoever is done first takes of the other's.
test: export PYTHONDONTWRITEBYTECODE :=
test: lint viewer/.ready ## lint, type-check and run all tests
	$(RUN) pytest -n 2 --dist worksteal

lint: $(VENV)/.ready-test ## check format, style and types
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy

bench: $(VENV)/.ready-bench ## run all benchmarks, fifty minutes, and write benchmarks/RESULTS.md
	$(RUN) benchmarks

viewer: ## build the web page of `ziggurat view`, which takes node and npm
	@.ci/build-viewer && touch viewer/.ready

# Tests of the page are skipped where it cannot be built, and nothing else is.
viewer/.ready: viewer/package.json viewer/build.mjs .ci/build-viewer $(wildcard viewer/src/*)
	@.ci/build-viewer && touch $@ || [ $$? -eq 3 ]

docs: $(VENV)/.ready-docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict

clean: ## remove the environment and everything that was built
	rm -rf viewer/.ready viewer/node_modules src/ziggurat/static
	rm -rf $(VENV) build dist site ziggurat-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# One stamp per set of extras; pip runs again only when the requirements change.
$(VENV)/.ready-%: pyproject.toml constraints.txt
	@$(RUN) pip --version >/dev/null 2>&1 || { python=$$(.ci/find-python) && "$$python" -m venv --clear $(VENV); }
	@echo "Installing ziggurat[$*] into $(VENV) ..."
	@$(RUN) pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@

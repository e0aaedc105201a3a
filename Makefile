# Needs Python 3.11 or later and make; everything else is installed into .venv.
# `make test` also installs the database servers it lacks (see tests/services).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
# Four workers on two cores: many tests wait, for processes, beats and restarts, while others compute.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help venv demo test check unit docs site transcripts pictures rates services format clean chaos bench compare matrix djangos hashes

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 12

venv: $(STAMP)  ## Build .venv with the package (editable) and all tools

# The build backend is installed first and used without isolation, so that it is pinned too.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) hatchling editables
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## See Ratchet at work
	@$(BIN)/python -m ratchet demo

test: $(STAMP) check  ## Everything: checks, then all tests on real servers
	@$(BIN)/python -m tests.services install
	@$(BIN)/python -m tests.run -n $(WORKERS) --dist worksteal

check: $(STAMP)  ## Lint, format, types, floors
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(STAMP)  ## Only the tests that need no server
	@$(BIN)/python -m pytest tests/unit -n $(WORKERS) --dist worksteal

# Django 6 needs Python 3.12, and has tasks of its own: 6.0 takes no arguments of ours in @task, 6.1 does.
PYTHON312 ?= python3.12
DJANGOS ?= 6.0 6.1
djangos: $(STAMP)  ## The Django tests on Django 6 too, in environments of their own (PYTHON312=… DJANGOS="6.1")
	@$(BIN)/python -m tests.services install
	@for version in $(DJANGOS); do \
		place=build/django-$$version; mkdir -p build; \
		test -x $$place/bin/python || $(PYTHON312) -m venv $$place || exit 1; \
		grep -vi '^django==' constraints.txt > $$place/constraints.txt; \
		install="$$place/bin/python -m pip --disable-pip-version-check install --quiet -c $$place/constraints.txt"; \
		$$install hatchling editables && $$install --no-build-isolation -e '.[dev]' "django==$$version.*" || exit 1; \
		$$place/bin/python -m pytest -q -n $(WORKERS) tests/unit/contrib/test_django*.py tests/integration/test_django*.py \
			tests/docs/test_framework_pages.py tests/examples || exit 1; \
	done

chaos: $(STAMP)  ## Hurt a cluster and check its history (CHAOS="kill,freeze" STORES="sqlite" pick; CHAOS_OPTIONS=--write)
	@$(BIN)/python -m tests.services install
	@$(BIN)/python -m tests.chaos $(if $(CHAOS),--scenarios $(CHAOS)) $(if $(STORES),--stores $(STORES)) $(CHAOS_OPTIONS)

matrix: $(STAMP)  ## Kit and lifecycle on other versions of servers, Python and drivers (ROWS="postgresql-14 python-3.13" picks; takes hours)
	@$(BIN)/python -m tests.services install
	@$(BIN)/python -m tests.matrix $(ROWS)

# The newest patch release of the oldest Python: pins may need more than its first one. Versions and hashes, no address.
hashes:  ## Write constraints-hashes.txt: the versions of constraints.txt with the hashes of all their files
	@test -x build/uv/bin/uv || { $(PYTHON) -m venv build/uv && build/uv/bin/python -m pip --disable-pip-version-check install --quiet uv==0.13.8; }
	@{ echo '# The versions of constraints.txt with the hashes of their files, written by `make hashes`:'; \
		echo '# pip install --require-hashes --no-deps -r constraints-hashes.txt'; \
		build/uv/bin/uv --quiet pip compile --generate-hashes --no-deps --no-annotate --no-header --python-version 3.11.9 constraints.txt; \
	} > build/hashes.txt
	@mv build/hashes.txt constraints-hashes.txt

format: $(STAMP)  ## Apply the formatter and the safe fixes
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

docs: $(STAMP)  ## Generate the reference pages and schema.sql from the code
	@$(BIN)/python docs/generate.py

site: $(STAMP)  ## Build the site of the docs into build/site; a warning or a broken link is an error (VERSIONS="v0.2.0" adds older ones)
	@$(BIN)/python docs/generate.py --check
	@$(BIN)/python -m docs.book build/site $(VERSIONS)

transcripts: $(STAMP)  ## Run the commands of the docs and write what they print into the pages
	@$(BIN)/python docs/transcripts.py

pictures: $(STAMP)  ## Take the pictures of the dashboard for the docs
	@$(BIN)/python -m tests.services install
	@$(BIN)/python docs/pictures.py

rates: $(STAMP)  ## Measure what the page about stores says and write it there; wants a quiet machine
	@$(BIN)/python -m tests.services install
	@RATCHET_MEASURED=docs/reference/measured.json RATCHET_TOIL_JOBS=20000 \
		$(BIN)/python -m pytest tests/cluster/test_work_processes.py -q
	@RATCHET_MEASURED=docs/reference/measured.json $(BIN)/python -m bench --only sizing --dry
	@$(BIN)/python docs/generate.py

services: $(STAMP)  ## Run PostgreSQL and PgBouncer in the foreground and print their URLs
	@$(BIN)/python -m tests.services up --pgbouncer

bench: $(STAMP)  ## Measure Ratchet and its peers side by side (BENCH="--scale 0.1" for a quick look)
	@$(BIN)/python -m bench --peers pgqueuer,procrastinate,huey $(BENCH)

compare: $(STAMP)  ## Measure this tree beside an earlier commit (BASE=HEAD~1 BENCH="--scale 0.1")
	@$(BIN)/python -m bench --base $(or $(BASE),HEAD~1) $(BENCH)

clean:  ## Remove what was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov

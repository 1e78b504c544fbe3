# Everything a newcomer types. The first target explains the rest.

VENV := .venv
BIN  := $(VENV)/bin
WORKERS := 2
DEMO_HOME := $(CURDIR)/.farm

.PHONY: help demo test test-slow test-all check-types check-style check-imports tests-listed test-exhaustive test-site test-kernels test-kernels-all check-gpu-static check-gpu-static-all first-contact test-conformance test-deploy test-faults test-attack mutate soak fuzz bench bench-all bench-farm bench-cpu docs sbom lock clean

help:
	@echo "make demo             measure nine models on three delegates, print the table, build the site"
	@echo "make test             ruff, mypy, import-linter, pytest"
	@echo "make test-slow        the tests that take seconds each (8 minutes); CI runs them, too"
	@echo "make test-all         every suite below in turn, but the benchmarks; goes on where it was stopped (hours)"
	@echo "make test-exhaustive  the long sweeps that 'make test' leaves out"
	@echo "make test-site        the site in a real browser: pages, five questions in five clicks, axe on every kind of page"
	@echo "make test-kernels     every operator's kernels under Oclgrind, a case in six: races, accesses outside buffers (needs oclgrind); writes benchmarks/results/kernel_checks.md"
	@echo "make test-kernels-all the same in every case"
	@echo "make check-gpu-static every kernel for GPUs, compiled for NVIDIA, AMD and Intel without one: those that are new, and a draw (2 minutes); writes benchmarks/results/gpu_static.md"
	@echo "make check-gpu-static-all the same with all of them (7 minutes)"
	@echo "make first-contact    what a machine with a GPU can do, in 10 minutes; writes benchmarks/results/first_contact.md"
	@echo "make test-conformance every promise on embedded and Celery, SQLite and PostgreSQL; the longer labs"
	@echo "make test-deploy      the playbook against three machines booted on this host, as root"
	@echo "make test-faults      41 fault scenarios and the mutations, as root (17 minutes); writes benchmarks/results/faults.md"
	@echo "make test-attack      every attack on a lab, by boundary, as root; writes benchmarks/results/attack.md"
	@echo "make mutate           every protection taken away, one at a time: which test notices (35 minutes); writes benchmarks/results/mutants.md"
	@echo "make soak             random faults for 10 minutes, as root"
	@echo "make fuzz             hostile files for reader, interpreter, gpu, farm model plan and farm import, then atheris"
	@echo "make bench            gpu in fp32, bf16 and int8 beside XNNPACK, and its host's time (15 minutes); writes benchmarks/results/"
	@echo "make bench-all        runtime against its peers, through the farm, starts, honesty of the measuring (hours)"
	@echo "make bench-cpu        the CPU path over all real models and the zoo: speed, memory, loading (hours)"
	@echo "make bench-farm       1,000 devices x 100,000 cells; 50 devices through Celery; writes benchmarks/results/"
	@echo "make docs             the manual as pages, in .manual/"
	@echo "make sbom             every package of an installation with version and hashes, as CycloneDX, in .dist/"
	@echo "make lock             resolve requirements/*.lock anew"
	@echo "make clean            remove .venv, the demo's data (.farm) and what test-all keeps (.suites)"

demo:
	@bash .ci/setup demo
	@FARM_HOME=$(DEMO_HOME) $(BIN)/farm submit examples/models.yaml; code=$$?; \
	 if [ $$code -le 1 ]; then FARM_HOME=$(DEMO_HOME) $(BIN)/farm site build || code=$$?; fi; exit $$code

# One worker more than two cores have: the tests of agents and labs wait for a good part of their time. So does
# mypy beside them, which ends long before; only what it finds is printed, so that pytest's summary stands last.
test test-slow: WORKERS := 3
test test-slow: export PYTHONDONTWRITEBYTECODE :=
SHARED_OUT = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25

test:
	@bash .ci/setup test
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-style check-imports tests-listed
	@nice $(BIN)/mypy >.mypy.log 2>&1 & types=$$!; \
	 $(BIN)/pytest $(SHARED_OUT); code=$$?; \
	 wait $$types || { cat .mypy.log; exit 1; }; exit $$code

test-slow:
	@bash .ci/setup test
	@$(BIN)/pytest $(SHARED_OUT) -m slow

test-all:
	@bash .ci/setup test
	$(BIN)/python -m tests.suites

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-imports:
	$(BIN)/lint-imports

# Every worker lists all tests: their modules are compiled once for all of them, beside mypy, when one has changed.
tests-listed: $(VENV)/.tests-listed

$(VENV)/.tests-listed: $(shell find tests -name '*.py')
	@$(BIN)/pytest --collect-only --quiet >/dev/null || $(BIN)/pytest --collect-only --quiet
	@touch $@

test-exhaustive:
	@bash .ci/setup test
	GUARD_ZONES=1 $(BIN)/pytest $(SHARED_OUT) tests/runtime/ops -k opencl -m "exhaustive or not exhaustive"
	$(BIN)/pytest $(SHARED_OUT) tests/runtime/ops -k "not opencl" -m exhaustive
	$(BIN)/pytest $(SHARED_OUT) --ignore=tests/runtime/ops -m exhaustive

test-site:
	@bash .ci/setup test
	$(BIN)/pytest tests/end_to_end -k test_site -m "exhaustive or not exhaustive"

test-kernels:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-kernels
	$(BIN)/python -m tests.runtime.kernel_checker

test-kernels-all:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-kernels-all
	$(BIN)/python -m tests.runtime.kernel_checker --all

check-gpu-static:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.gpu_static --out benchmarks/results/gpu_static.json

check-gpu-static-all:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.gpu_static --all --out benchmarks/results/gpu_static.json

first-contact:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.first_contact

test-conformance:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-conformance
	$(BIN)/pytest -m "conformance or not conformance" tests/contract tests/orchestrator/trust tests/orchestrator/endpoint

test-deploy:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-deploy
	$(BIN)/pytest -m deploy -x tests/deploy

test-faults:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-faults
	FAULT_REPORT=benchmarks/results/faults.md $(BIN)/pytest -m "faults or not faults" tests/faults

test-attack:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs test-attack
	HONESTY_REPORT=benchmarks/results/dishonesty.md $(BIN)/pytest -m "attack or not attack" tests/agent/runner/test_honesty.py
	ATTACK_REPORT=benchmarks/results/attack.md $(BIN)/pytest -m "attack or not attack" tests/attack $$($(BIN)/python -m tests.attack.elsewhere)

mutate:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs mutate
	$(BIN)/python -m tests.mutants --workers $(WORKERS) --out benchmarks/results/mutants.md

soak:
	@bash .ci/setup test
	@$(BIN)/python -m tests.suites --needs soak
	$(BIN)/python -m tests.faults.soak --minutes 10

fuzz:
	@bash .ci/setup test
	$(BIN)/python -m tests.fuzz.reader --cases 200000
	$(BIN)/python -m tests.fuzz.interpreter --cases 20000
	$(BIN)/python -m tests.fuzz.plan --cases 100000
	$(BIN)/python -m tests.fuzz.gpu --cases 10000
	$(BIN)/python -m tests.fuzz.imports --cases 100000
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/fuzz.lock
	$(BIN)/python -m tests.fuzz.coverage --runs 1000000

bench:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.campaign benchmarks/precisions.yaml --threads 2 --only 'torchvision_*'
	$(BIN)/python -m benchmarks.host_time
	$(BIN)/python -m benchmarks.channel_counts
	$(BIN)/python -m benchmarks.cli_start

bench-all:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.campaign benchmarks/precisions.yaml --threads 1 2
	$(BIN)/python -m benchmarks.campaign benchmarks/runtime_vs_peers.yaml --threads 1 2
	$(BIN)/python -m benchmarks.campaign benchmarks/aa.yaml
	$(BIN)/python -m benchmarks.model_kinds
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.statistics
	$(BIN)/python -m benchmarks.plain_loop
	$(BIN)/python -m benchmarks.benchmark_model
	$(BIN)/python -m benchmarks.ab_sleep
	$(BIN)/python -m benchmarks.measuring_cost

bench-cpu:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.cpu_runtime

bench-farm:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.farm_scale --out benchmarks/results/farm_scale.json
	$(BIN)/python -m benchmarks.farm_lab --out benchmarks/results/farm_lab.json
	$(BIN)/python -m benchmarks.compare_scale
	$(BIN)/python -m benchmarks.site_scale
	$(BIN)/python -m benchmarks.home_scale

docs:
	@bash .ci/setup test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

sbom:
	@bash .ci/setup test
	@mkdir -p .dist
	$(BIN)/cyclonedx-py requirements requirements/lab.lock --pyproject pyproject.toml --short-PURLs \
	    --output-reproducible --output-file .dist/sbom.cdx.json

lock:
	@bash .ci/setup test
	bash requirements/compile

clean:
	rm -rf $(VENV) $(DEMO_HOME) .manual .dist .suites

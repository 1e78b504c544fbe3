# Everything a newcomer types. The first target explains the rest.

VENV := .venv
BIN  := $(VENV)/bin
WORKERS := 2
DEMO_HOME := $(CURDIR)/.farm

.PHONY: help demo test test-exhaustive test-conformance test-faults test-attack mutate soak fuzz bench bench-farm bench-cpu lock clean

help:
	@echo "make demo             measure nine models on three delegates, print the table, build the site"
	@echo "make test             ruff, mypy, import-linter, pytest"
	@echo "make test-exhaustive  the long sweeps that 'make test' leaves out"
	@echo "make test-conformance every promise on embedded and Celery, SQLite and PostgreSQL; the longer labs"
	@echo "make test-faults      34 fault scenarios and the mutations, as root (17 minutes); writes benchmarks/results/faults.md"
	@echo "make test-attack      every attack on a lab, by boundary, as root; writes benchmarks/results/attack.md"
	@echo "make mutate           every protection taken away, one at a time: which test notices (15 minutes); writes benchmarks/results/mutants.md"
	@echo "make soak             random faults for 10 minutes, as root"
	@echo "make fuzz             200,000 hostile files for the reader, 20,000 for the interpreter, then atheris"
	@echo "make bench            runtime against its peers, interleaved; writes benchmarks/results/"
	@echo "make bench-cpu        the CPU path over all real models and the zoo: speed, memory, loading (2 hours)"
	@echo "make bench-farm       1,000 devices x 100,000 cells; 50 devices through Celery; writes benchmarks/results/"
	@echo "make lock             resolve requirements/*.lock anew"
	@echo "make clean            remove .venv and the demo's data (.farm)"

demo:
	@bash .ci/setup demo
	@FARM_HOME=$(DEMO_HOME) $(BIN)/farm submit examples/models.yaml; code=$$?; \
	 if [ $$code -le 1 ]; then FARM_HOME=$(DEMO_HOME) $(BIN)/farm site build || code=$$?; fi; exit $$code

# One worker more than two cores have: the tests of agents and labs wait for a good part of their time.
test: WORKERS := 3
test:
	@bash .ci/setup test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25

test-exhaustive:
	@bash .ci/setup test
	GUARD_ZONES=1 $(BIN)/pytest tests/runtime/ops -k opencl
	$(BIN)/pytest -m exhaustive

test-conformance:
	@bash .ci/setup test
	$(BIN)/pytest -m "conformance or not conformance" tests/contract tests/orchestrator/trust tests/orchestrator/endpoint

test-faults:
	@bash .ci/setup test
	FAULT_REPORT=benchmarks/results/faults.md $(BIN)/pytest -m faults tests/faults

test-attack:
	@bash .ci/setup test
	ATTACK_REPORT=benchmarks/results/attack.md $(BIN)/pytest -m "attack or not attack" tests/attack

mutate:
	@bash .ci/setup test
	$(BIN)/python -m tests.mutants --workers $(WORKERS) --out benchmarks/results/mutants.md

soak:
	@bash .ci/setup test
	$(BIN)/python -m tests.faults.soak --minutes 10

fuzz:
	@bash .ci/setup test
	$(BIN)/python -m tests.fuzz.reader --cases 200000
	$(BIN)/python -m tests.fuzz.interpreter --cases 20000
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/fuzz.lock
	$(BIN)/python -m tests.fuzz.coverage --runs 1000000

bench:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.runtime_vs_peers
	$(BIN)/python -m benchmarks.model_kinds
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.cli_start
	$(BIN)/python -m benchmarks.statistics

bench-cpu:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.cpu_runtime

bench-farm:
	@bash .ci/setup test
	$(BIN)/python -m benchmarks.farm_scale --out benchmarks/results/farm_scale.json
	$(BIN)/python -m benchmarks.farm_lab --out benchmarks/results/farm_lab.json

lock:
	@bash .ci/setup test
	bash requirements/compile

clean:
	rm -rf $(VENV) $(DEMO_HOME)

# Everything is installed by tests/lab/install, once, outside the tree. `make help` lists what there is.
SHELL := /bin/bash
SLURM ?= 22.05
KUBERNETES ?= embedded
ARGS ?=
OPERATIONS ?= 120
MINUTES ?= 0
PYTHON = venv=$$(tests/lab/install venv) && "$$venv/bin/python"
TIERS = $(PYTHON) -m tests.tiers
real_parts = $(if $(filter real,$(KUBERNETES)),kubernetes kruise)
.DEFAULT_GOAL := help
.PHONY: help demo cluster cluster-down test test-unit test-slurm test-contract test-e2e test-cluster test-whole test-monitoring test-lower-bounds lint bench chaos dashboard-picture clean-cache

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20
	@echo 'Variables: SLURM=22.05|24.11|26.05  KUBERNETES=embedded|real  ARGS="more arguments for pytest"'

demo: ## from a submitted job to registered nodes and back, on real Slurm (KUBERNETES=real: and a real control plane)
	@tests/lab/install isolated slurm-22.05 $(real_parts)
	@venv=$$(tests/lab/install venv) && exec env COPILOT_KUBERNETES=$(KUBERNETES) "$$venv/bin/python" -m tests.demo

cluster: ## a whole Slurm cluster on a real Kubernetes node on this machine: images, OpenKruise, manifests/overlays/demo
	@$(PYTHON) -m tests.lab.whole up

cluster-down: ## remove that, data included
	@$(PYTHON) -m tests.lab.whole down

test: ## every tier, the quick ones first; what this machine cannot run is reported
	@$(TIERS) $(if $(ARGS),-- $(ARGS))

test-unit: ## the pure modules, the server, the hooks
	@$(TIERS) --only unit $(if $(ARGS),-- $(ARGS))

test-slurm: ## what the copilot relies on, on a real slurmctld (SLURM=)
	@$(TIERS) --only slurm-$(SLURM) $(if $(ARGS),-- $(ARGS))

test-contract: ## the embedded API server against the real one
	@$(TIERS) --only contract $(if $(ARGS),-- $(ARGS))

test-e2e: ## the whole way, hook to registered node (SLURM=, KUBERNETES=)
	@$(TIERS) --only e2e-$(SLURM)-$(KUBERNETES) $(if $(ARGS),-- $(ARGS))

test-cluster: ## a real node with real pods of the images
	@$(TIERS) --only cluster $(if $(ARGS),-- $(ARGS))

test-whole: ## all of overlays/demo on a real node, users, accounting and failures included
	@$(TIERS) --only whole $(if $(ARGS),-- $(ARGS))

test-monitoring: ## rules and dashboard by promtool and by a real Prometheus; each alert fired by breaking something
	@$(TIERS) --only monitoring $(if $(ARGS),-- $(ARGS))

test-lower-bounds: ## the unit tests on the oldest libraries that pyproject.toml allows
	@venv=$$(tests/lab/install venv-lower-bounds) && "$$venv/bin/python" -m tests.tiers --only unit $(if $(ARGS),-- $(ARGS))

lint: ## types, style, imports, shell scripts, installation, the tree itself
	@$(TIERS) --only lint $(if $(ARGS),-- $(ARGS))

bench: ## measure, as ratios to floors of the same run
	@tests/lab/install isolated slurm-22.05 kubernetes
	@venv=$$(tests/lab/install venv) && exec tests/lab/isolated "$$venv/bin/python" -m pytest -s tests/benchmarks $(ARGS)

chaos: ## random operations under random faults (SEED= OPERATIONS= MINUTES= ONLY=, SLURM=, KUBERNETES=embedded|real|node); docs/reliability.md
ifeq ($(KUBERNETES),node)
	@COPILOT_CHAOS_SEED=$(or $(SEED),4) COPILOT_CHAOS_OPERATIONS=$(OPERATIONS) $(TIERS) --only whole -- -k all_comes_right -s
else
	@tests/lab/install isolated slurm-$(SLURM) $(real_parts)
	@venv=$$(tests/lab/install venv) && exec env COPILOT_SLURM=$(SLURM) COPILOT_KUBERNETES=$(KUBERNETES) tests/lab/isolated "$$venv/bin/python" -m tests.chaos \
		$(if $(SEED),--seed $(SEED)) --operations $(OPERATIONS) --minutes $(MINUTES) $(if $(ONLY),--only $(ONLY))
endif

dashboard-picture: ## draw docs/dashboard.svg anew from what the monitoring tests measure
	@tests/lab/install isolated slurm-22.05 prometheus dashboard
	@venv=$$(tests/lab/install venv) && exec env COPILOT_PICTURE=$(CURDIR)/docs/dashboard.svg tests/lab/isolated "$$venv/bin/python" -m pytest tests/monitoring $(ARGS)

clean-cache: ## remove what tests/lab/install has kept
	@tests/lab/install clean

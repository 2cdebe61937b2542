# The commands of this repository; `make help` lists them. On a fresh machine python3, g++ and make are enough for the
# first block. C++ tests need googletest as well, `make bazel` needs Bazel.

# The environment, and the TensorFlow in it: any version from 2.16 to 2.21. Several can live side by side:
#   make test TENSORFLOW=2.16.2 VENV=.venv216
VENV ?= .venv
TENSORFLOW ?= 2.21.*
PYTHON ?= python3
CXX ?= g++

# What `make test` passes on to pytest, for example ARGS="tests/ordering -x".
ARGS ?=

# Files that `make test` runs at once. Tests wait for processes and networks much of the time; JOBS=0 runs all in one process.
JOBS ?= 2

BIN := $(VENV)/bin
# tf_keras has to be of TensorFlow's minor version.
MINOR := $(shell echo '$(TENSORFLOW)' | cut -d. -f1,2)
STAMP := $(VENV)/installed-$(subst *,x,$(TENSORFLOW))
comma := ,
# tensorflow-io, and with it s3://, exists for this version only; OR-Tools and protoc want a newer protobuf than it has.
EXTRAS := plot,control,test,dev,wheel$(if $(filter 2.16.2,$(TENSORFLOW)),$(comma)io$(comma)s3,$(comma)exact$(comma)proto)

.DEFAULT_GOAL := help
.PHONY: help env native wheels wheel-test compat proto demo results docs test fuzz chaos mixed bits lint cc-build cc-test cc-bench cc-annotations bazel clean

help:  ## this list
	@echo "make TARGET [VENV=$(VENV)] [TENSORFLOW=$(TENSORFLOW)]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: native  ## .venv with TensorFlow and tfsched, installed in place (the other targets call it)

# TensorFlow first: the library is built against it. tf_keras without its dependencies, for it names the distribution
# `tensorflow`, which would be installed over tensorflow-cpu. setuptools 82 is kept out for TensorBoard of 2.16 needs
# its pkg_resources.
$(STAMP): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip 'setuptools>=77.0.3,<82' wheel
	$(BIN)/python -m pip install -q 'tensorflow-cpu==$(TENSORFLOW)'
	$(BIN)/python -m pip install -q --no-deps 'tf_keras==$(MINOR).*'
	$(BIN)/python -m pip install -q --no-build-isolation -e '.[$(EXTRAS)]'
	rm -f $(VENV)/installed-*
	touch $@

# Every time: two environments share the working tree, and the library in it has to be this one's. Takes a moment when
# nothing has changed.
native: $(STAMP)
	@$(BIN)/python -W ignore setup.py -q build_ext --inplace

# TensorFlow releases, for example VERSIONS="2.16.2 2.21.0"; empty: all for `wheels`, the last of each minor version for `compat`.
VERSIONS ?=
# Environments whose TensorFlow the wheel is tried with.
VENVS ?= $(VENV)

wheels: $(STAMP)  ## dist/: a wheel for all supported releases of TensorFlow, or VERSIONS="2.16.2 2.21.0", and the source distribution
	$(BIN)/python -m tools.wheels $(VERSIONS)

wheel-test: $(STAMP)  ## a wheel for the TensorFlows of VENVS=".venv216 .venv", tried in environments without the source tree
	$(BIN)/python -m tools.try_wheel $(VENVS)

compat: wheels  ## the wheel in a new environment for each minor version of TensorFlow, or VERSIONS; writes docs/compatibility.md
	$(BIN)/python -m tools.compat "$$(ls -t dist/tfsched-*.whl | head -n 1)" $(VERSIONS)

proto: $(STAMP)  ## the descriptor of the control service, from its .proto
	$(BIN)/python -m grpc_tools.protoc -I tfsched/control --descriptor_set_out=tfsched/control/control.binpb control.proto

demo: env  ## the main job: resnet50 and seq32, stock TensorFlow against tio and tao, on a limited link
	$(BIN)/tfsched bench --model resnet50,seq32 --settings vanilla,tio,tao --phase forward --bandwidth 1gbit --steps 10 \
	  --json demo.json --plot demo.png

results:  ## docs/results.md and the README's table, from benchmarks/results/*.json (measuring is benchmarks/results.py --measure)
	$(BIN)/python benchmarks/results.py

# An environment of its own, for the site needs no TensorFlow. `build/docs-venv/bin/mkdocs serve` shows it while you write.
DOCS := build/docs-venv

docs:  ## the documentation site in build/site, checked for dead links
	@test -x $(DOCS)/bin/python || { $(PYTHON) -m venv $(DOCS) && $(DOCS)/bin/python -m pip install -q --upgrade pip; }
	@cmp -s pyproject.toml $(DOCS)/pyproject.toml || { $(DOCS)/bin/python website/requirements.py >$(DOCS)/requirements.txt && \
	  $(DOCS)/bin/python -m pip install -q -r $(DOCS)/requirements.txt && cp pyproject.toml $(DOCS)/; }
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --quiet --strict

# A file stays together, for its tests share a cluster; in the order of their names the long ones are not begun last.
test: env  ## pytest; ARGS="tests/ordering -x" to choose, JOBS=0 to debug
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Programs drawn from the seeds SEED, SEED + 1, ...; PROGRAM=file.json runs one that a file holds.
N ?= 100
SEED ?= 0
PROGRAM ?=

fuzz: env  ## N programs drawn from SEED on, run with tfsched and held against stock TensorFlow; PROGRAM=file.json for one
	$(BIN)/python -m tests.fuzz --n $(N) --seed $(SEED) $(if $(PROGRAM),--program $(PROGRAM)) $(ARGS)

chaos: env  ## N faults drawn from SEED on, while clusters train: nothing may hang, be lost or be made twice (root)
	$(BIN)/python -m tests.fuzz.chaos --n $(N) --seed $(SEED) $(ARGS)

mixed: env  ## workers that all-reduce and differ, in every combination of two and three: they train as stock TensorFlow does
	$(BIN)/python -m tests.fuzz.mixed $(ARGS)

bits: env  ## workers that all-reduce train for 200 steps, in many ways, and end in the same bits
	$(BIN)/python -m tests.fuzz.bits $(ARGS)

lint: $(STAMP)  ## ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(sort $(wildcard cc/*/*.cc cc/*/*.h cc/ops/*/*.cc cc/ops/*/*.h))

# --- C++ tests of the core, the barrier's state, all-reduces and the simulator, without TensorFlow and without the environment -------------------------------------------

# SANITIZE=thread or SANITIZE=address builds and runs them under that sanitizer.
SANITIZE ?=
CC_OUT := build/cc/$(or $(SANITIZE),plain)
CC_FLAGS := -std=c++17 $(if $(SANITIZE),-O1 -g1,-O2 -g) -Wall -Wextra -Wno-unused-parameter -I. -pthread -MMD -MP
CC_FLAGS += $(if $(SANITIZE),-fsanitize=$(SANITIZE)$(if $(filter address,$(SANITIZE)),$(comma)undefined) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# Everything that includes no TensorFlow.
PLAIN := core barrier collective
CORE := $(patsubst %.cc,$(CC_OUT)/%.o,$(filter-out %_test.cc %_bench.cc,$(sort $(wildcard $(PLAIN:%=cc/%/*.cc)))))
SIMULATOR := $(patsubst %.cc,$(CC_OUT)/%.o,$(filter-out %_test.cc,$(sort $(wildcard cc/simulator/*.cc))))
TESTS := $(patsubst %.cc,$(CC_OUT)/%,$(sort $(wildcard $(PLAIN:%=cc/%/*_test.cc) cc/simulator/*_test.cc)))
BENCHES := $(patsubst %.cc,$(CC_OUT)/%,$(sort $(wildcard $(PLAIN:%=cc/%/*_bench.cc))))

cc-build: $(TESTS)  ## compiles what cc-test runs

cc-test: $(TESTS)  ## C++ tests of what needs no TensorFlow; SANITIZE=thread|address for a sanitizer (needs libgtest-dev)
	@printf '%s\n' $(TESTS) | xargs -P $(or $(filter-out 0,$(JOBS)),1) -n 1 sh -c 'timeout 300 "$$0" --gtest_brief=1 >"$$0.log" 2>&1; \
	  status=$$?; echo "== $$0"; cat "$$0.log"; exit $$status'

cc-bench: $(BENCHES)  ## cost of one task through the core, of one update through the barrier
	@for bench in $(BENCHES); do $$bench || exit 1; done

# Shared state names its lock (cc/core/thread_annotations.h), and clang looks whether every access holds it. With TensorFlow's
# headers a file takes a while, so of those that include them only the ones with annotations are looked at: a header of such
# through its own source file, if it has one.
CLANG ?= clang++
CLANG_CHECK := -Wno-everything -Wthread-safety -Werror -fsyntax-only -x c++
ANNOTATED = $(shell grep -lE 'TFSCHED_(PT_)?GUARDED_BY|TFSCHED_REQUIRES' $(filter-out $(PLAIN:%=cc/%/%),$(wildcard cc/*/*.cc \
  cc/*/*.h cc/ops/*/*.cc cc/ops/*/*.h)))
ANNOTATED_SOURCES = $(sort $(foreach file,$(ANNOTATED),$(or $(wildcard $(file:.h=.cc)),$(file))))

cc-annotations: $(STAMP)  ## accesses to shared state without its lock, found by clang (needs clang)
	@printf '%s\n' $(CORE:$(CC_OUT)/%.o=%.cc) | xargs -P 2 -n 1 $(CLANG) -std=c++17 -I. $(CLANG_CHECK)
	@flags="$$($(BIN)/python -W ignore setup.py -q compile_flags)" && \
	  printf '%s\n' $(ANNOTATED_SOURCES) | xargs -P 2 -n 1 $(CLANG) $$flags $(CLANG_CHECK)

# The tests themselves without optimization: googletest's macros take a sanitizer's compiler three times as long with it.
$(TESTS:%=%.o): CC_FLAGS += $(if $(SANITIZE),-O0)
$(CC_OUT)/%.o: %.cc Makefile
	@mkdir -p $(@D)
	$(CXX) $(CC_FLAGS) -c $< -o $@

$(filter $(CC_OUT)/cc/simulator/%,$(TESTS)): $(SIMULATOR)
$(TESTS): $(CC_OUT)/%: $(CC_OUT)/%.o $(CORE)
	$(CXX) $(CC_FLAGS) $^ -o $@ -lgtest -lgtest_main

$(BENCHES): $(CC_OUT)/%: $(CC_OUT)/%.o $(CORE)
	$(CXX) $(CC_FLAGS) $^ -o $@

.SECONDARY:
-include $(wildcard $(CC_OUT)/cc/*/*.d)

# --- Bazel -----------------------------------------------------------------------------------------------------------

BAZEL ?= bazel
# `build` compiles what `test` runs.
BAZEL_DO ?= test

# Offline: everything Bazel needs is installed (bazel-bootstrap, bazel-rules-java, bazel-rules-proto, libgtest-dev). The server
# is shut down whatever happens. What Bazel writes stays in build/ (but for the link bazel-out), where `make clean` finds it.
bazel: $(STAMP)  ## the same library and C++ tests with Bazel, without a network; BAZEL_DO=build compiles only
	@run() { $(BAZEL) --output_user_root=$(CURDIR)/build/bazel "$$@"; }; \
	  trap 'run shutdown' EXIT; \
	  PYTHON_BIN_PATH=$(CURDIR)/$(BIN)/python run $(BAZEL_DO) //...

clean:  ## removes what was built; environments stay
	if [ -d build/bazel ]; then chmod -R u+w build/bazel; fi
	rm -rf build dist *.egg-info bazel-out tfsched/ops/libtfsched.so tfsched/ops/libtfsched.json tfsched/simulator/libtfsched_sim.so

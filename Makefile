# Short names for what Cargo, CMake and CTest do. Missing tools are installed by
# cmake/ensure-tool.sh; Rust, a C compiler and Python 3 are all that must be there.

PREFIX = /usr/local
DESTDIR =
# Parallel jobs of the C build. Twice as many C tests run at once, because most wait more than they
# compute.
JOBS = 2

BUILD = build
FIND = cmake/ensure-tool.sh

# A recipe stops at its first failing command, so that a missing tool ends with its sentence.
.SHELLFLAGS = -euc
# Steps run in the order they are written, also under -j; the tools below get JOBS instead of it.
.NOTPARALLEL:
unexport MAKEFLAGS MFLAGS
# Where rustup puts cargo; not every shell has it on its PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: build demo check test lint test-rust test-c fuzz-corpus portable stress fuzz fault soak bench nccl-oracle \
	strangers test-messages cuda-headers cuda-no-device valgrind asan install clean help

build: ## Build the library, nexar-run, the C tests and the examples (default)
	@cmake=$$($(FIND) cmake); pkg_config=$$($(FIND) pkg-config); \
	$$cmake -S . -B $(BUILD) -DPKG_CONFIG_EXECUTABLE="$$pkg_config"; \
	MAKEFLAGS=--no-print-directory $$cmake --build $(BUILD) --parallel $(JOBS)

demo: build ## Run the examples
	@bin=$(BUILD)/examples-c/bin; \
	for example in 01_allreduce 02_mismatch; do \
	  echo "== $$example"; \
	  $$bin/$$example; \
	done; \
	echo "== nexar-run -n 4 03_train"; \
	$(BUILD)/bin/nexar-run -n 4 $$bin/03_train

check: build ## Run the quick checks of daily work: lints, Rust tests of one process, C tests of single calls
	cargo fmt --all --check
	cargo clippy --workspace --locked --all-targets -- -D warnings
	CARGO_INCREMENTAL=0 cargo test --locked --lib --test simulated --test tidy
	@ctest=$$($(FIND) ctest); cd $(BUILD); $$ctest --output-on-failure -j $(JOBS) -L '^(api|collective)$$'

test: lint test-rust fuzz-corpus test-c portable ## Run every check
	@echo "All green: format, lints, documents, Rust tests, fuzz corpus, C tests and examples."

# A workspace of its own, because its library has the name of ours.
NEXAR_RS = --manifest-path standins/nexar-rs/Cargo.toml
NEXAR_RS_LOCKED = $(NEXAR_RS) --target-dir target/nexar-rs --locked

lint: ## Check format and lints of the Rust code
	cargo fmt --all --check
	cargo fmt $(NEXAR_RS) --check
	rustfmt --check --edition 2024 tests/strangers/*.rs
	cargo clippy --workspace --locked --all-targets -- -D warnings
	cargo clippy --locked --lib -- -D warnings
	cargo clippy $(NEXAR_RS_LOCKED) --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items --lib

test-rust: ## Run the Rust tests
	CARGO_INCREMENTAL=0 cargo test --workspace --locked
	CARGO_INCREMENTAL=0 cargo test $(NEXAR_RS_LOCKED)

test-c: build ## Run the C tests and the examples
	@$(FIND) mpicc >/dev/null || echo "Without it the comparison with MPI is skipped."; \
	ctest=$$($(FIND) ctest); cd $(BUILD); $$ctest --output-on-failure -j $$((2 * $(JOBS)))

# A workspace of its own, because the fuzzer needs a nightly compiler. The corpus needs none.
fuzz-corpus: ## Execute every fuzz target on its corpus
	@cd fuzz; for target in $$(basename -s .rs targets/*.rs); do \
	  cargo run --quiet --locked --target-dir ../target/fuzz --bin $$target; \
	done

# The Rust version that Cargo.toml declares, on both processors. Nothing is linked, so any C compiler
# does for ring.
portable: export CC_aarch64_unknown_linux_gnu = gcc
portable: export AR_aarch64_unknown_linux_gnu = ar
portable: export RUSTFLAGS = -D warnings
portable: export CARGO_PROFILE_DEV_OPT_LEVEL = 0
portable: export CARGO_PROFILE_DEV_DEBUG = 0
portable: ## Compile with the declared Rust version, for x86-64 and aarch64 (skipped where rustup cannot get it)
	@version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	targets="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu"; \
	if ! command -v rustup >/dev/null; then \
	  echo "portable: skipped, because rustup is missing"; \
	elif ! rustup --quiet toolchain install $$version --profile minimal --no-self-update; then \
	  echo "portable: skipped, because Rust $$version cannot be downloaded"; \
	else \
	  for target in $$targets; do \
	    if rustup --quiet target add --toolchain $$version $$target; then \
	      rustup run $$version cargo check --locked --lib --target $$target --target-dir target/portable; \
	    else \
	      echo "portable: $$target skipped, because its Rust library cannot be downloaded"; \
	    fi; \
	  done; \
	fi

# Another seed every time; give the SEED that failed to see it again.
SEED := $(shell date +%s)

stress: build ## Run programs drawn at random for ten minutes
	@for n in 2 3 4 5 6; do \
	  case $$n in 3) over=QUIC ;; 4 | 5) over="memory and QUIC" ;; *) over=memory ;; esac; \
	  echo "== $$n processes over $$over, seed $(SEED)"; \
	  case $$over in QUIC) off=1 hosts= ;; memory) off=0 hosts= ;; \
	    *) off=0 hosts=capi-tests/process/two_hosts.sh ;; esac; \
	  NEXAR_SHM_DISABLE=$$off $(BUILD)/bin/nexar-run -n $$n $$hosts \
	    $(BUILD)/capi-tests/stress/random_programs 120 $(SEED) || exit 1; \
	done

test-messages: build ## Send a million messages between two hosts of two ranks each, and compare them
	$(BUILD)/bin/nexar-run -n 4 capi-tests/process/two_hosts.sh \
	  $(BUILD)/capi-tests/stress/messages 1000000 $(SEED)

# Strangers, liars and bad networks are made by a program of the Rust tests.
HOSTILE = $$(cargo test --locked --test hostile --no-run --message-format=json \
  | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
FAULT = cargo test --quiet --locked --test hostile --no-run; hostile=$(HOSTILE); \
  python3 capi-tests/fault/fault.py $(BUILD)/capi-tests --hostile "$$hostile" \
  --page RELIABILITY.md

fault: build ## Do to ranks what the world does, hundreds of times, and renew the table of RELIABILITY.md (90 min)
	@$(FAULT)

soak: build ## The last row of that alone: random programs over bad links, and their memory (30 min)
	@$(FAULT) soak

# For each target; 0 runs the corpus alone.
FUZZ_SECONDS = 300

fuzz: ## Feed what reads the bytes of others with inputs that a fuzzer draws, five minutes each (45 min)
	@JOBS=$(JOBS) fuzz/run.sh $(FUZZ_SECONDS)

# More options after ARGS=, as in ARGS="--ranks 2 --ops allreduce": bench/compare.py --help has them.
QUICK =
ARGS =

bench: build ## Compare the speed of every operation with Open MPI, MPICH, Gloo and nexar 0.2.0 (60 min; QUICK=1: 5 min)
	@for peer in mpicc.openmpi mpicc.mpich c++ gloo; do \
	  $(FIND) $$peer >/dev/null || echo "Without it a column of the comparison stays empty."; \
	done; \
	python3 bench/compare.py $(if $(QUICK),--quick) $(ARGS)

nccl-oracle: build ## Compare the stand-in for NCCL with NVIDIA's library (half a gigabyte)
	@sh capi-tests/nccl/oracle.sh python3 $(BUILD)/capi-tests/nccl/answers \
	  $(BUILD)/lib/nexar/libnccl.so.2 $(BUILD)/pypi

# Each script ends with 0, with SKIPPED and its reason, or with another code and what failed.
strangers: build ## Run programs that nobody here wrote on the library (downloads them from crates.io; 10 min at first)
	@passed= failed= skipped=; \
	for script in tests/strangers/*.sh; do \
	  name=$${script##*/}; name=$${name%.sh}; code=0; \
	  echo "== $$name"; \
	  sh $$script $(BUILD) || code=$$?; \
	  case $$code in \
	    0) passed="$$passed $$name" ;; \
	    $(SKIPPED)) skipped="$$skipped $$name" ;; \
	    *) failed="$$failed $$name" ;; \
	  esac; \
	done; \
	echo "== passed:$${passed:- none}, failed:$${failed:- none}, skipped:$${skipped:- none}"; \
	[ -z "$$failed" ]

# Wheels that contain cuda.h. The first is of the version whose numbers the library is compiled with.
CUDA_HEADERS = nvidia-cuda-runtime-cu12==12.0.107 nvidia-cuda-runtime-cu12==12.4.127 \
  nvidia-cuda-runtime-cu12 nvidia-cuda-runtime
# The exit code of what cannot be tried here, which has said why.
SKIPPED = 77

cuda-headers: ## Compare what is said of CUDA's driver here with NVIDIA's cuda.h (downloads 8 MB)
	@python3 capi-tests/cuda/headers.py $(BUILD)/pypi $(CUDA_HEADERS) || [ $$? = $(SKIPPED) ]

cuda-no-device: build ## Run C tests with NVIDIA's own driver and no device (downloads 3 MB, if they can be had)
	@tests=$(BUILD)/capi-tests; sh capi-tests/cuda/no_device.sh $(BUILD)/libcuda1 $(BUILD)/bin/nexar-run \
	  $(BUILD)/lib $$tests/cuda/gpu_check $$tests/collective/allreduce $$tests/api/stream \
	  || [ $$? = $(SKIPPED) ]

# Only definite leaks count: Rust points into the middle of its Arcs, which valgrind calls possible.
# A forked child has lost what only its parent's other threads knew of: no leaks are counted there.
MEMCHECK = --quiet --error-exitcode=1 --show-leak-kinds=definite --errors-for-leak-kinds=definite

valgrind: build ## Run the C tests of single calls under valgrind
	@valgrind="$$($(FIND) valgrind) $(MEMCHECK)"; \
	for program in $(BUILD)/capi-tests/api/*; do \
	  echo "== $${program##*/}"; \
	  case $$program in */fork | */environment) leaks=no ;; *) leaks=full ;; esac; \
	  $$valgrind --leak-check=$$leaks $$program; \
	done

# The C tests are valgrind's: a program of another compiler cannot be given Rust's sanitizer.
asan: ## Run the Rust tests of one process with the address sanitizer (nightly Rust, a build of its own)
	@rustup toolchain list | grep -q nightly || rustup toolchain install nightly --profile minimal; \
	RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 cargo +nightly test --locked \
	  --target $$(rustc -vV | sed -n 's/host: //p') --target-dir target/asan --lib --test simulated

# Builds only what was never built: `sudo make install` often runs without the user's cargo.
install: $(if $(wildcard $(BUILD)/lib/libnexar.a),,build) ## Install below PREFIX (with DESTDIR in front)
	@cmake=$$($(FIND) cmake); DESTDIR="$(DESTDIR)" $$cmake --install $(BUILD) --prefix "$(PREFIX)"

clean: ## Remove everything that was built
	cargo clean
	rm -rf $(BUILD)

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 20

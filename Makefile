# The tasks by name; CMake does the work. `make help` lists them.
BUILD ?= build
CMAKE ?= cmake
JOBS  ?= $(shell nproc)

.DEFAULT_GOAL := build
.PHONY: help build program deps deps-all test demo check format asan tsan fuzz torture clang arm64 cuda cuda-check check-gpu browser-test bench install clean \
	verify-install test-cpu test-smoke monitor-memory train-deepspeed train-accelerate train-qlora

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

build: ## the program (build/snug), the library (build/libsnug.a) and the tests
	@$(CMAKE) --preset release -B $(BUILD) >/dev/null
	@$(CMAKE) --build $(BUILD) -j $(JOBS)

program: ## the program alone
	@$(CMAKE) --preset release -B $(BUILD) >/dev/null
	@$(CMAKE) --build $(BUILD) -j $(JOBS) --target snug_cli

deps: ## install the packages needed (Debian); without root prints the command
	@tools/deps.sh

deps-all: ## and those of `make check`, `make asan`, `make fuzz`
	@tools/deps.sh all

test: deps build ## build and run every test
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

demo: deps program ## plan and train a small model on real text, then let it write
	@tools/demo.sh $(BUILD)

check: deps-all ## formatting, layers, headers, static analysis
	@tools/check.sh

format: ## run clang-format over the tree
	@git ls-files '*.c' '*.h' | xargs clang-format -i

# On arm64 the search for leaks walks the whole address space, 4 s at the end of every program: there it is left to the
# fuzzers and to CI on x86-64. LEAKS=1 asks for it.
LEAKS ?= $(if $(filter aarch64,$(shell uname -m)),0,1)
asan: deps ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(CMAKE) --preset asan >/dev/null
	@$(CMAKE) --build build-asan -j $(JOBS)
	@ASAN_OPTIONS=detect_leaks=$(LEAKS) ctest --test-dir build-asan --output-on-failure -j $(JOBS)

# Where threads are: the team, the loader, the disk tier, plans made beside a run, the live page.
tsan_tests = base/test_team data/test_loader device/test_disk keys/test_keys search/test_foresee train/test_adapting train/test_elastic \
	train/test_memory_apart watch/test_live watch/test_serve
empty :=
tsan: deps ## those tests in which threads meet under ThreadSanitizer
	@$(CMAKE) --preset tsan >/dev/null
	@$(CMAKE) --build build-tsan -j $(JOBS) --target $(subst /,_,$(tsan_tests))
	@ctest --test-dir build-tsan --output-on-failure -j $(JOBS) -R '^($(subst $(empty) $(empty),|,$(strip $(tsan_tests))))$$'

fuzz: deps-all ## every fuzz target for a short while (FUZZ_SECONDS each, default 10)
	@tools/fuzz.sh

torture: deps build ## kills, I/O errors, failed allocations, odd numbers, combinations of features: thousands of runs, minutes
	@tools/torture/run.sh $(BUILD)

clang: deps-all ## every source past clang, for its warnings
	@tools/clang.sh

arm64: ## cross-compile for arm64 and run the tests under qemu (half an hour; ARM64_TESTS='ops|device' chooses)
	@tools/arm64.sh $(if $(ARM64_TESTS),-R '$(ARM64_TESTS)')

cuda_programs = snug_cli bench_attention bench_conv_cuda bench_elementwise bench_gemm_cuda bench_turns \
	$(patsubst tests/cuda/%.c,cuda_%,$(wildcard tests/cuda/test_*.c))
cuda: deps ## build with CUDA, its tests and benchmarks too (needs nvcc, cuBLAS, cuDNN; no GPU)
	@$(CMAKE) --preset cuda >/dev/null
	@$(CMAKE) --build build-cuda -j $(JOBS) --target $(cuda_programs)

cuda-check: deps build ## see that the CUDA code compiles, links, and lists its kernels: in minutes, for no GPU to run
	@$(CMAKE) --preset cuda-check >/dev/null
	@$(CMAKE) --build build-cuda-check -j $(JOBS) --target $(cuda_programs)
	@build-cuda-check/cuda_test_cuda_kernels

check-gpu: deps ## build for the GPU of this machine, say what it is, and try it
	@tools/check-gpu.sh

verify-install: deps program ## is everything there? what this build and machine are, and a rehearsal of a small run
	@$(BUILD)/snug env
	@mkdir -p $(BUILD)/verify-install
	@$(BUILD)/snug init $(BUILD)/verify-install/tiny.yaml --preset cpu --output-dir $(BUILD)/verify-install/out --force --quiet
	@$(BUILD)/snug train $(BUILD)/verify-install/tiny.yaml --fast-dev-run 2

test-cpu: deps build ## every test that needs no GPU
	@ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -E '^cuda/'

test-smoke: deps program ## the three-branch network, small, on made-up clips: two steps, a checkpoint, read back
	@tools/train-as.sh smoke $(BUILD)

monitor-memory: deps program ## watch the newest run (RUN=output_dir chooses): its memory, speed, health
	@run=$${RUN:-$$(ls -td out/*/.snug-live $(BUILD)/*/*/.snug-live 2>/dev/null | head -1 | xargs -r dirname)}; \
		[ -n "$$run" ] || { echo "no run has trained under out/ yet; RUN=output_dir names one"; exit 1; }; $(BUILD)/snug monitor "$$run"

train-deepspeed: deps program ## the plan that ZeRO-2 with offload stands for: states on the host (STEPS=20)
	@tools/train-as.sh deepspeed $(BUILD)

train-accelerate: deps program ## the plan that device_map=auto stands for: the planner places everything (STEPS=20)
	@tools/train-as.sh accelerate $(BUILD)

train-qlora: deps program ## 4-bit weights with adapters inside a budget (STEPS=20)
	@tools/train-as.sh qlora $(BUILD)

browser-test: deps program ## the pages of a plan and of a run in a headless Chromium: pointer, keys, touch (python3)
	@tools/page_browser.py test $(BUILD)/snug
	@tools/live_browser.py test $(BUILD)/snug

bench: deps build ## matrix products, and a training step beside PyTorch where there is one
	@bench/run.sh $(BUILD)

install: build ## into PREFIX (default /usr/local)
	@$(CMAKE) --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean: ## remove build folders
	@rm -rf build build-asan build-arm64 build-clang build-cuda-check build-debug build-fuzz build-tsan

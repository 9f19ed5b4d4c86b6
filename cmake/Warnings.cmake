# One interface target carries the flags of the whole tree.
add_library(snug_flags INTERFACE)
target_compile_definitions(snug_flags INTERFACE _GNU_SOURCE)
target_compile_options(snug_flags INTERFACE
    -Wall -Wextra -pedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
    -Wconversion -Wundef -Wwrite-strings -Wpointer-arith -Wdouble-promotion -fno-common
    -ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -fopenmp-simd)
# Loops must vectorise without -ffast-math: no errno from math calls, no trapping, but NaN, infinity
# and the order of operations stay as written.
target_compile_options(snug_flags INTERFACE -fno-math-errno -fno-trapping-math)

if(SNUG_NATIVE)
    include(CheckCCompilerFlag)
    check_c_compiler_flag(-march=native SNUG_HAVE_march_native) # clang before 15 does not know it on arm64
    if(SNUG_HAVE_march_native)
        target_compile_options(snug_flags INTERFACE -march=native)
    endif()
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        target_compile_options(snug_flags INTERFACE -mprefer-vector-width=512)
    endif()
endif()
if(SNUG_SANITIZE)
    target_compile_options(snug_flags INTERFACE -fsanitize=address,undefined
        -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(snug_flags INTERFACE -fsanitize=address,undefined)
    # Where the tests spend their time: loops that are UNSANITIZED (src/base/sanitizer.h), and slow while their sums are
    # not in registers. Everywhere else the compiler would take longer than the tests gain.
    set_property(SOURCE src/device/cpu/products/gemm.c src/device/cpu/convolution/tile.c
        src/device/cpu/attention/attention_tiles.c src/device/cpu/attention/attention_grad_tiles.c src/plan/repair.c
        APPEND PROPERTY COMPILE_OPTIONS -O3)
endif()
if(SNUG_SANITIZE_THREADS)
    # Instrumented code looks uninitialised to gcc where it is not. The one fence there is (src/watch/live.c) orders what
    # other processes read, which the sanitizer does not see anyway.
    target_compile_options(snug_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer -Wno-maybe-uninitialized
        -Wno-tsan)
    target_link_options(snug_flags INTERFACE -fsanitize=thread)
endif()
if(SNUG_FUZZ)
    target_compile_options(snug_flags INTERFACE -fsanitize=fuzzer-no-link)
    # What is fuzzed reads files: these folders. The others are there for the linker; clang takes minutes to instrument
    # their kernels.
    file(GLOB_RECURSE not_fuzzed CONFIGURE_DEPENDS src/*.c)
    list(FILTER not_fuzzed EXCLUDE REGEX "/src/(base|graph|ops|config|plan|program|data|io|task)/")
    set_property(SOURCE ${not_fuzzed} APPEND PROPERTY COMPILE_OPTIONS -O0 -fno-sanitize=all)
endif()
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    # A product and a sum stay two roundings, as with gcc under -std=c11: a search decides by times that are nearly the
    # same, and the plan of a card is one plan, whoever compiled the planner and for which processor.
    target_compile_options(snug_flags INTERFACE -ffp-contract=off)
    # `omp simd` is a wish: a loop that this build does not vectorise is slow, not wrong.
    target_compile_options(snug_flags INTERFACE -Wno-pass-failed)
endif()

# Two hundred test programs are linked from one library: lld and gold take a fraction of the time of ld. Programs with
# CUDA code need the C++ library too, which some compilers keep where these do not look.
include(CheckLinkerFlag)
if(NOT SNUG_CUDA AND NOT CMAKE_CROSSCOMPILING)
    foreach(linker lld gold)
        check_linker_flag(C -fuse-ld=${linker} SNUG_HAVE_${linker})
        if(SNUG_HAVE_${linker} AND NOT SNUG_TEST_LINKER)
            set(SNUG_TEST_LINKER -fuse-ld=${linker})
        endif()
    endforeach()
endif()

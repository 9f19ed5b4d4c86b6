#!/bin/sh
# Cross-compiles for arm64 with Debian's compiler and runs the tests under qemu-user: the NEON paths on a
# machine that has none. Libraries of the target are unpacked into the build folder; beside the compiler and qemu
# nothing is installed, and the system's own packages stay as they are.
#
#   tools/arm64.sh [ctest arguments]      e.g. tools/arm64.sh -R 'ops|device'
set -eu
cd "$(dirname "$0")/.."
build=build-arm64
sysroot=$PWD/$build/sysroot
compiler="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ninja-build cmake pkg-config"
libraries="libopenblas-openmp-dev libopenblas0-openmp libgfortran5 libyaml-dev libyaml-0-2 libjansson-dev libjansson4
    libpcre2-dev libpcre2-8-0 libutf8proc-dev libutf8proc2 libxxhash-dev libxxhash0 libcmocka-dev libcmocka0"

install_compiler() {
    missing=
    for p in $compiler; do
        dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || { echo "run this once: sudo apt-get install -y$missing" >&2; exit 1; }
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# The package lists of the other architecture are kept in the build folder.
unpack_libraries() {
    [ ! -f "$sysroot/complete" ] || return 0
    lists=$PWD/$build/apt
    rm -rf "$sysroot" "$lists"
    mkdir -p "$sysroot" "$lists/state/lists/partial" "$lists/cache/archives/partial"
    : >"$lists/status"
    options="-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$lists/state
        -o Dir::State::status=$lists/status -o Dir::Cache=$lists/cache -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086
    apt-get -qq $options update
    # shellcheck disable=SC2086
    (cd "$lists" && apt-get -qq $options download $libraries)
    for p in "$lists"/*.deb; do dpkg -x "$p" "$sysroot"; done
    touch "$sysroot/complete"
}

install_compiler
mkdir -p "$build"
unpack_libraries
lib=$sysroot/usr/lib/aarch64-linux-gnu
export PKG_CONFIG_LIBDIR="$lib/pkgconfig:$lib/openblas-openmp/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$sysroot"
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
export QEMU_SET_ENV="LD_LIBRARY_PATH=$lib:$lib/openblas-openmp"
cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE=cmake/arm64.cmake -DSNUG_SYSROOT="$sysroot" >/dev/null
cmake --build "$build" -j "$(nproc)"
exec ctest --test-dir "$build" --output-on-failure -j "$(nproc)" --timeout 3000 "$@"

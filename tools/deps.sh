#!/bin/sh
# Installs what Snug builds and tests with, from the distribution's packages. Without root it prints
# the one command to run. Already complete: says nothing and needs no network.
set -eu

packages="build-essential pkg-config cmake ninja-build
    libopenblas-openmp-dev libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev libxxhash-dev
    libpng-dev libjpeg-dev libhdf5-dev liburing-dev libncurses-dev libmicrohttpd-dev libcmocka-dev fortunes fortunes-min"
[ "${1:-}" != all ] || packages="$packages clang clang-format cppcheck libclang-rt-dev"

missing=
for p in $packages; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
    echo "installing:$missing"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get update -qq
    # shellcheck disable=SC2086
    $install -qq >/dev/null
else
    echo "Snug needs packages that are not installed. Run this once, then try again:" >&2
    echo "    sudo $install" >&2
    exit 1
fi

# Sourced by the scripts beside it: Debian packages, and installing those that are missing.

# What the library and its programs need to be built.
build_packages="g++ cmake ninja-build libfmt-dev libpugixml-dev libhwy-dev nlohmann-json3-dev libcli11-dev"
# What the tests need besides.
test_packages="ccache clang-format clang-tidy gcc iperf3 iproute2 libgtest-dev libgmock-dev libopenmpi-dev openmpi-bin \
libhwloc-dev libibverbs-dev librsvg2-dev openssh-client pkg-config procps python3-minimal util-linux binutils busybox-static"

say() { printf '%s\n' "$*"; }

# installed PACKAGE
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Runs as root: directly, or with sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo -n true 2>/dev/null || say "sudo asks for your password to install packages."
    sudo "$@"
  else
    return 1
  fi
}

# install_missing PACKAGE...: installs those that are missing; asks the package servers only then.
install_missing() {
  missing=
  for package in "$@"; do installed "$package" || missing="$missing $package"; done
  [ -n "$missing" ] || return 0
  if ! command -v apt-get >/dev/null; then
    say "These Debian packages, or what your system calls them, must be installed:$missing" >&2
    return 1
  fi
  say "Installing:$missing"
  # shellcheck disable=SC2086
  if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
         as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } \
         > "${TMPDIR:-/tmp}/tutti-packages.$$.log" 2>&1; then
    cat "${TMPDIR:-/tmp}/tutti-packages.$$.log" >&2
    rm -f "${TMPDIR:-/tmp}/tutti-packages.$$.log"
    say "Could not install packages: as root, run  apt-get install$missing" >&2
    return 1
  fi
  rm -f "${TMPDIR:-/tmp}/tutti-packages.$$.log"
}

#!/bin/sh
# Proves from the machine code that only kernels use wide vector registers (another function that does would crash on
# older CPUs) and that nothing of Highway's shared library is needed. Usage: check_kernels.sh LIBRARY
set -eu
library=$1
needed=$(nm -C "$library" | grep ' U ' | grep 'hwy::' || true)
if [ -n "$needed" ]; then
  echo "undefined symbols of Highway in $library:" "$needed"
  exit 1
fi
outside=$(objdump -dC "$library" | awk '/^[0-9a-f]+ <.*>:$/ { f = $0 } /%[yz]mm|%k[0-7]/ { print f }' | sort -u |
  grep -v 'N_AVX[23]::' || true)
if [ -n "$outside" ]; then
  echo "vector instructions outside of the kernels in $library:" "$outside"
  exit 1
fi

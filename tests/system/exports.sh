#!/bin/sh
# usage: exports.sh LIBRARY [SANITIZERS]
# The library exports only nccl*, pnccl* and tutti*, each nccl* has its pnccl*, and it needs only the C and C++
# runtimes: it can be dropped into any process.
set -eu
library=$1
sanitizers=${2:-}
status=0
fail() { echo "$1"; status=1; }

exported=$(nm -D --defined-only "$library" | awk '{print $NF}' | sort -u)
[ -n "$exported" ] || fail "$library exports nothing"
foreign=$(echo "$exported" | grep -Ev '^(nccl|pnccl|tutti)' || true)
# The sanitizers' own symbols, and what the compiler emits for them, are none of ours.
[ -z "$sanitizers" ] || foreign=$(echo "$foreign" | grep -Ev '^(__asan|__odr_asan|__tsan|__ubsan|__sanitizer|_init|_fini)' || true)
[ -z "$foreign" ] || fail "exported, but not nccl*, pnccl* or tutti*: $foreign"
for symbol in $(echo "$exported" | grep ^nccl | grep -vx ncclResetDebugInitInternal); do
  echo "$exported" | grep -qx "p$symbol" || fail "$symbol has no p$symbol"
done

soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
[ "$soname" = libnccl.so.2 ] || fail "soname is $soname, not libnccl.so.2"
for needed in $(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $needed in
    libc.so.*|libm.so.*|libstdc++.so.*|libgcc_s.so.*|ld-linux*|libpthread.so.*|libdl.so.*|librt.so.*) ;;
    libasan.so.*|libubsan.so.*|libtsan.so.*) [ -n "$sanitizers" ] || fail "needs $needed" ;;
    *) fail "needs $needed: only the C and C++ runtimes are allowed" ;;
  esac
done
[ $status -ne 0 ] || echo "$(echo "$exported" | wc -l) symbols, all ours"
exit $status

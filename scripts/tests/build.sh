# Builds and unit tests.

# configure_and_build PRESET TARGETS... -- OPTIONS...
configure_and_build() {
  preset=$1; shift
  targets=(); options=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -eq 0 ] || { shift; options=("$@"); }
  cmake --preset "$preset" -DTUTTI_TESTS=ON "${options[@]}"
  cmake --build "build/$preset" -j "$jobs" --target "${targets[@]}"
}

# run_ctest FOLDER ARGUMENTS...
run_ctest() {
  folder=$1; shift
  # One more than processors: many tests wait for most of their time.
  ctest --test-dir "$folder" -j "$((jobs + 1))" --output-on-failure --no-tests=error "$@" | tee "$logs/ctest.$$"
  status=${PIPESTATUS[0]}
  echo "# summary: $(grep -a 'tests passed' "$logs/ctest.$$")"
  rm -f "$logs/ctest.$$"
  return "$status"
}

build_release() { configure_and_build release all; }

needs_release() {
  [ -x "$release/bin/all_reduce_perf" ] && [ -x "$release/bin/test_perf" ] || build_release
}

unit_release() { needs_release; run_ctest build/release; }

# The suite under sanitizers. Not repeated there: the command-line programs, which the same code serves.
sanitized_asan() {
  configure_and_build asan all
  export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1
  export UBSAN_OPTIONS=print_stacktrace=1
  run_ctest build/asan
}

sanitized_tsan() {
  configure_and_build tsan all
  # By default each of these thousand processes sleeps for a second before it exits (races of threads that go on).
  export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:atexit_sleep_ms=100
  # Not the algorithms: pure functions of one thread, whose proofs would take minutes here.
  run_ctest build/tsan -E '^algorithms/'
}

# Without a toolkit's headers and without MPI everything still builds. ccache knows most of it from the release build.
minimal_build() {
  cmake -G Ninja -S . -B build/minimal -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=OFF -DTUTTI_MPI=OFF -DTUTTI_TESTS=OFF
  cmake --build build/minimal -j "$jobs"
  [ ! -e build/minimal/lib/libtutti_perf_mpi.so ] || { echo "MPI was used although it is off"; return 1; }
  build/minimal/bin/all_reduce_perf -b 1K -e 1K -g 2 -n 2
}

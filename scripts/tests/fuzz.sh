# Fuzzers: bytes from outside into whatever reads them.

# Those that the promise "a minute each" is about, and those that are soon through with their small formats.
long_fuzzers="handshake environment config_file msccl_xml"
short_fuzzers="algorithm_json algorithm_file control frames unique_id ras topology_xml graph_xml tuning_file"

# All in parallel on all processors. FUZZ_SECONDS: for each of the long ones (60). What crashes lies in
# build/test-logs/fuzz.
fuzz() {
  seconds=${FUZZ_SECONDS:-60}
  configure_and_build release fuzzers
  mkdir -p "$logs/fuzz"
  cd "$logs/fuzz"
  rm -f -- crash-* slow-* ./*.log
  list=
  for name in $long_fuzzers; do list="$list $name=$seconds"; done
  for name in $short_fuzzers; do list="$list $name=$((seconds / 3))"; done
  export UBSAN_OPTIONS=print_stacktrace=1
  # shellcheck disable=SC2016
  echo "$list" | tr ' ' '\n' | grep . | xargs -P "$jobs" -I ENTRY sh -c '
    name=${0%=*}
    "$1/bin/fuzz_$name" "-max_total_time=${0#*=}" "$2/$name" > "$name.log" 2>&1' ENTRY "$release" "$OLDPWD/tests/fuzz/corpus" ||
    { tail -n 40 ./*.log; ls -- crash-* slow-* 2> /dev/null; return 1; }
  cat ./*.log
  echo "# summary: $(cat ./*.log | awk '/ runs in /{runs += $2; n++} END {printf "%d fuzzers, %d runs", n, runs}')"
}

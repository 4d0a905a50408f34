# What the library chooses against the best that can be measured, with the shipped parameters and with a tuning file from
# a run before: over shared memory, and between three hosts that network namespaces play. CHOICES_BUDGET: seconds for each
# measurement (60). Tables lie in build/test-logs/choices-*.txt. Measures, so the machine must have nothing else to do.

choices_tables() {  # NAME COMMAND...: tutti-tune with what starts its ranks
  name=$1; shift
  "$@" --compare > "$logs/choices-$name-shipped.txt" || { cat "$logs/choices-$name-shipped.txt"; return 1; }
  "$@" -o "$logs/choices-$name.csv" > "$logs/choices-$name-tune.txt" || { cat "$logs/choices-$name-tune.txt"; return 1; }
  TUTTI_TUNING_FILE="$logs/choices-$name.csv" "$@" --compare > "$logs/choices-$name-tuned.txt" ||
    { cat "$logs/choices-$name-tuned.txt"; return 1; }
  for table in shipped tuned; do
    cat "$logs/choices-$name-$table.txt"
    echo "+ $name, $table: $(tail -n 1 "$logs/choices-$name-$table.txt")"
  done
}

choices() {
  needs_release
  budget=${CHOICES_BUDGET:-60}
  tune="$release/bin/tutti-tune -q -b 8 -e 64M -f 8 --budget ${budget}s"
  # shellcheck disable=SC2086
  choices_tables memory $tune -n 2,3,4,8
  if ns_up; then
    ns_limit=$((budget * 2 + 60)); ns_map=node; ns_ranks=8; ns_slots=3
    # shellcheck disable=SC2086
    choices_tables namespaces ns_mpirun --mca mpi_yield_when_idle 1 -x TUTTI_TUNING_FILE $tune -t 1 -n 2,3,4,8
  fi
  echo "# summary: $(for table in memory-shipped memory-tuned namespaces-shipped namespaces-tuned; do
    sed -n "s/.*geometric mean \([0-9.]*\),.*/$table \1/p" "$logs/choices-$table.txt" 2> /dev/null; done | paste -sd ' ')"
}

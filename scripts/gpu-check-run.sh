#!/bin/sh
# Checks and measures Tutti on this machine's GPUs. Needs nothing but a shell, sleep, date, ls, sed and mkdir.
#
#   run OUT [OPTION...]      writes OUT/results.json and OUT/results.md; status 0: everything was right
#
#   --seconds N      everything together (460); what does not fit is skipped, and named
#   --ranks LIST     "1 2 4 8"
#   --max-bytes N    largest size of the table (1073741824)
#   --steps LIST     "baseline suite table nccl sanitizer"
#   --quick          a few cases of the suite, and a table up to 64 KiB
#   --virtual        one virtual GPU of the CPU in place of GPUs
#   --loader WHICH   native or bundled: the machine's C library or the one of this folder (auto)
set -u
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0"; }

out=; seconds=460; ranks="1 2 4 8"; max_bytes=; steps="baseline suite table nccl sanitizer"
quick=0; virtual=0; loader=auto
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --ranks) ranks=$2; shift ;;
    --max-bytes) max_bytes=$2; shift ;;
    --steps) steps=$2; shift ;;
    --quick) quick=1 ;;
    --virtual) virtual=1 ;;
    --loader) loader=$2; shift ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "run: unknown option $1" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
if [ -z "$max_bytes" ]; then max_bytes=1073741824; [ $quick = 0 ] || max_bytes=65536; fi
[ -n "$out" ] || { usage >&2; exit 2; }
[ ! -e "$out/runs" ] || { echo "run: $out has results already" >&2; exit 2; }
mkdir -p "$out/runs" || exit 2
out=$(cd "$out" && pwd)

# Hundredths of a second since the machine started.
ticks() { read -r up _ < /proc/uptime; echo "${up%.*}${up#*.}"; }
start=$(ticks)
passed() { echo $(($(ticks) - start)); }
decimal() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }

# ---- How programs are started: by this machine's loader where its C library will do, else by the folder's own.

interpreter=$here/glibc/$(cat "$here/glibc/loader")
if [ $virtual = 1 ]; then
  libraries=$here/lib/host:$here/lib
  export TUTTI_RUNTIME=host TUTTI_HOST_KERNELS=1 TUTTI_HOST_DEVICES="${TUTTI_HOST_DEVICES:-1}"
else
  libraries=$here/lib
  export TUTTI_RUNTIME=cuda
fi
export NCCL_MULTI_RANK_GPU_ENABLE=1

known_libraries() { { /sbin/ldconfig -p || ldconfig -p; } 2> /dev/null | sed -n "s/.*$1 .*=> //p"; }

# The folder with the driver's library, where the folder's own loader may not look by itself.
driver_folder() {
  for file in $(known_libraries 'libcuda\.so\.1') /usr/lib/*-linux-gnu/libcuda.so.1 /usr/lib64/libcuda.so.1 \
      /usr/lib/libcuda.so.1 /usr/local/nvidia/lib64/libcuda.so.1 /usr/lib/wsl/lib/libcuda.so.1 \
      /run/opengl-driver/lib/libcuda.so.1 /usr/local/cuda/compat/libcuda.so.1; do
    if [ -r "$file" ]; then echo "${file%/*}"; return; fi
  done
}
driver=; [ $virtual = 1 ] || driver=$(driver_folder)
# The system's folder comes last, since it has other libraries too.
libraries=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}${driver:+:$driver}

# For the next programs: settings (NAME=VALUE ...), a folder whose libraries come first, a program that runs them.
settings=; front=; wrapper=
# So that a program's children can be ended with it.
session=; ! command -v setsid > /dev/null 2>&1 || session=setsid

# start_program PROGRAM ARGUMENTS...: becomes this program of the folder.
start_program() {
  program=$here/bin/$1; shift
  for setting in $settings; do export "${setting?}"; done
  # shellcheck disable=SC2086
  if [ "$loader" = native ]; then
    LD_LIBRARY_PATH=${front:+$front:}$libraries exec $session $wrapper "$program" "$@"
  else
    unset LD_LIBRARY_PATH
    exec $session $wrapper "$interpreter" --library-path "${front:+$front:}$here/glibc:$libraries" "$program" "$@"
  fi
}

version_of() { (start_program all_reduce_perf --version) > "$out/library.txt" 2>&1; }
if [ "$loader" = auto ]; then
  loader=native
  version_of || loader=bundled
fi
version_of || { echo "run: programs of $here do not start here:" >&2; cat "$out/library.txt" >&2; exit 2; }

# ---- Programs with a time limit. Nothing here waits for a process that cannot be killed.

pause=0.03; sleep $pause 2> /dev/null || pause=1
child=
end_child() { [ -z "$child" ] || kill "-$1" "-$child" 2> /dev/null || kill "-$1" "$child" 2> /dev/null || true; }

# limited HUNDREDTHS FILE COMMAND...: output goes to FILE; sets status: its exit status, "timeout" or "stuck".
limited() {
  limit=$1; saved=$2; shift 2
  rm -f "$out/.status" "$out/.pid"
  (
    "$@" > "$saved" 2>&1 &
    echo $! > "$out/.pid"
    wait $!
    echo $? > "$out/.status.new"
    mv "$out/.status.new" "$out/.status"
  ) 2> /dev/null &
  began=$(ticks); ended=
  while [ ! -s "$out/.status" ]; do
    sleep $pause
    child=$(cat "$out/.pid" 2> /dev/null)
    over=$(($(ticks) - began - limit))
    [ $over -ge 0 ] || continue
    ended=timeout
    if [ $over -ge 500 ]; then ended=stuck; break; fi
    if [ $over -lt 200 ]; then end_child TERM; else end_child KILL; fi
  done
  child=
  status=${ended:-$(cat "$out/.status")}
}

# ---- Runs: each leaves OUT/runs/NUMBER/run.txt, output.txt and, of perf programs, perf.json.

run_number=0; step=; step_end=0; in_vain=0; may_refuse=0

# note TITLE RANKS STATUS WHY COMMAND...
note() {
  {
    echo "step=$step"; echo "title=$1"; echo "ranks=$2"; echo "status=$3"; echo "why=$4"
    shift 4
    echo "limit=$(decimal "${limit:-0}")"; echo "seconds=$(decimal "${took:-0}")"
    echo "may_refuse=$may_refuse"; echo "perf=$is_perf"; echo "command=${settings:+$settings }$*"
  } > "$folder/run.txt"
}

# check TITLE RANKS SECONDS PROGRAM ARGUMENTS...
check() {
  title=$1; on=$2; allowed=$(($3 * 100)); shift 3
  run_number=$((run_number + 1))
  folder=$out/runs/$(printf '%04d' $run_number)
  mkdir "$folder"
  is_perf=0; took=0; limit=$allowed; status=skipped
  case $1 in *_perf) is_perf=1 ;; esac
  left=$((step_end - $(passed)))
  if [ $in_vain -ge 3 ]; then note "$title" "$on" skipped "three runs before did not end" "$@"; return; fi
  if [ $left -lt 100 ]; then note "$title" "$on" skipped "no time was left" "$@"; return; fi
  [ $limit -le $left ] || limit=$left
  before=$(ticks)
  if [ $is_perf = 1 ]; then
    limited $limit "$folder/output.txt" start_program "$@" -J "$folder/perf.json"
  else
    limited $limit "$folder/output.txt" start_program "$@"
  fi
  took=$(($(ticks) - before))
  note "$title" "$on" "$status" "" "$@"
  case $status in timeout|stuck) in_vain=$((in_vain + 1)) ;; *) in_vain=0 ;; esac
}

machine() {
  echo "started=$started"; echo "seconds=$(decimal "$(passed)")"; echo "time_limit=$seconds"
  echo "host=$(uname -n)"; echo "kernel=$(uname -sr)"; echo "system=$(sed -n 's/^PRETTY_NAME="*\([^"]*\).*/\1/p' /etc/os-release 2> /dev/null)"
  echo "processors=$(grep -c '^processor' /proc/cpuinfo)"; echo "loader=$loader"; echo "driver_folder=$driver"
  echo "driver=$(sed -n 's/^NVRM version: *//p' /proc/driver/nvidia/version 2> /dev/null)"
  echo "library=$(cat "$out/library.txt")"; echo "devices=$devices"; echo "ranks=$ranks"; echo "nccl=$nccl"; echo "sanitizer=$sanitizer"
  echo "stopped=$stopped"
}

# What there is so far.
report() {
  machine > "$out/machine.txt"
  (settings=; front=; wrapper=; start_program gpu-report "$out") > "$out/report.txt" 2>&1
}

# begin STEP SECONDS: true when it is to run. It may take until SECONDS after the start of all, of every 460.
begin() {
  case " $steps " in *" $1 "*) ;; *) return 1 ;; esac
  [ -z "$stopped" ] || return 1
  step=$1; step_end=$((seconds * $2 * 100 / 460)); in_vain=0
  echo "$(decimal "$(passed)") s: $step"
}

# ---- The steps.

all="all_reduce all_gather reduce_scatter broadcast alltoall"
others="reduce alltoallv gather scatter sendrecv hypercube"
several=; first=; last=; for count in $ranks; do
  [ "$count" -ge 2 ] || continue
  several="$several $count"; first=${first:-$count}; last=$count
done
ends=$first; [ "$last" = "$first" ] || ends="$first $last"
between=; for count in $several; do case " $ends " in *" $count "*) ;; *) between="$between $count" ;; esac; done

baseline() {
  check gpu-baseline 0 40 gpu-baseline "$out/baseline.json" "$max_bytes" 20
  case $status in 0|skipped) ;; *) stopped="gpu-baseline failed, so nothing else was tried: $(tail -n 1 "$folder/output.txt")" ;; esac
  devices=$(grep -c '"compute_capability"' "$out/baseline.json" 2> /dev/null)
  devices=${devices:-0}
  free=$(sed -n 's/.*"free_bytes": \([0-9]*\).*/\1/p' "$out/baseline.json" 2> /dev/null | head -n 1)
}

# suite_of TITLE COLLECTIVES RANKS ARGUMENTS...: each with each number of ranks.
suite_of() {
  name=$1; names=$2; counts=$3; shift 3
  for count in $counts; do
    for collective in $names; do check "$collective: $name" "$count" 25 "${collective}_perf" -T 15 -g "$count" "$@"; done
  done
}

# way TITLE PROGRAM ARGUMENTS...
way() {
  collective=$2; what=$1; shift 2
  check "$collective: $what" "$count" 25 "${collective}_perf" -T 15 -b 8 -e "$middle" -f 64 -n 3 "$@"
}

# ways RANKS: the ways in which calls are made.
ways() {
  for count in $1; do
    way "a thread for each rank" all_reduce -t "$count"
    way "threads that make their communicators" all_reduce -t "$count" -p 1
    way graphs all_reduce -g "$count" -G 3
    way graphs all_gather -g "$count" -G 3
    way "several in a group" all_reduce -g "$count" -m 4
    way "several in a group" sendrecv -g "$count" -m 4
    # One null stream a device: calls of ranks that share it would wait for each other in it.
    [ "$devices" -lt "$count" ] || way "the null stream" all_reduce -t "$count" -y 1
    way "registered buffers" all_reduce -g "$count" -R 1
    way windows all_reduce -g "$count" -R 2
    way "buffers that are not aligned" all_reduce -g "$count" -u 1 -d int8
  done
  check abort 2 20 gpu-abort 2
}

protocols() {
  for protocol in LL LL128 Simple; do
    settings=NCCL_PROTO=$protocol
    suite_of "$protocol" "$1" "$2" -b 8 -e "$middle" -f 8 -n 2
    suite_of "$protocol, odd sizes" "$1" "$first" -b 1 -e 40000 -i 3989 -d int8 -n 1
  done
  settings=
}

# algorithm RANKS COLLECTIVE NAMES...: those that cannot run the case say so.
algorithm() {
  count=$1; collective=$2; shift 2
  may_refuse=1
  for one in "$@"; do
    check "$collective: $one" "$count" 25 "${collective}_perf" -T 15 -g "$count" --algo "$one" --show-algo -b 8 -e "$middle" -f 16 -n 2
  done
  may_refuse=0
}
algorithms() {
  algorithm "$1" all_reduce ring tree doubling rabenseifner circulant oneshot twoshot direct
  algorithm "$1" all_gather ring doubling circulant pat oneshot direct
  algorithm "$1" reduce_scatter ring doubling circulant pat oneshot direct
  algorithm "$1" broadcast ring tree binomial circulant scatter_allgather oneshot direct
  algorithm "$1" alltoall spread pairwise bruck oneshot
  algorithm "$1" reduce ring tree binomial circulant scatter_allgather oneshot direct
}

# What matters most comes first.
suite() {
  everything="-b 37 -e 66704 -i 66667 -n 1 -w 0 -o all -d all"
  middle=4M
  if [ $quick = 1 ]; then
    middle=64K
    suite_of sums "$all sendrecv" "$ranks" -b 8 -e 64K -f 64 -n 2
    suite_of "all types and operators" all_reduce "$first" -b 37 -e 37 -n 1 -w 0 -o all -d all
    ways "$first"
    protocols all_reduce "$first"
    algorithm "$first" all_reduce ring direct
    return
  fi
  # shellcheck disable=SC2086
  {
    suite_of sums "$all $others" "$ranks" -b 8 -e 4M -f 8 -n 2
    ways "$ends"
    protocols "$all" "$ends"
    suite_of "all types and operators" "$all $others" "$ends" $everything
    for count in ${between:-$first}; do algorithms "$count"; done
    suite_of "every root, odd counts" "broadcast reduce gather scatter" "$ends" -b 1 -e 299 -i 37 -n 1 -w 0 -d int8 -r all
    suite_of large "$all" "$first" -b 256M -e 256M -n 1 -w 0
    for count in ${between:+$ends}; do algorithms "$count"; done
    suite_of "all types and operators" "$all $others" "$between 1" $everything
    suite_of large "$all" "$last" -b 256M -e 256M -n 1 -w 0
  }
}

# Blocks of bytes may be as small as one; sums are of floats.
type_of() { case $1 in all_reduce|reduce_scatter) echo float ;; *) echo int8 ;; esac; }

# measure RANKS COLLECTIVES SECONDS ARGUMENTS...: in two parts, the second with fewer iterations and without checks.
measure_small() {
  count=$1; collective=$2; shift 2
  most=$max_bytes; [ "$most" -le 8388608 ] || most=8388608
  check "$collective" "$count" 20 "${collective}_perf" -T 15 -g "$count" -d "$(type_of "$collective")" -b 8 -e "$most" -f 4 -n 20 -w 5 "$@"
}
measure_large() {
  count=$1; collective=$2; shift 2
  # What each rank sends and receives must fit the devices, with something to spare.
  on_one=$((devices > 0 ? (count + devices - 1) / devices : count))
  most=$max_bytes
  while [ -n "$free" ] && [ $((most * 5 * on_one / 2)) -gt "$free" ]; do most=$((most / 4)); done
  [ "$most" -ge 16777216 ] || return
  check "$collective" "$count" 20 "${collective}_perf" -T 15 -g "$count" -d "$(type_of "$collective")" -b 16M -e "$most" -f 4 -n 5 -w 2 -c 0 "$@"
}

table() {
  for count in $ranks; do for collective in $all; do measure_small "$count" "$collective" --show-algo; done; done
  for count in $ranks; do for collective in $all; do measure_large "$count" "$collective" --show-algo; done; done
}

# A libnccl.so.2 that is not ours.
nccl_library() {
  for file in ${NCCL_LIBRARY:-} $(known_libraries 'libnccl\.so\.2') /usr/lib/*-linux-gnu/libnccl.so.2 /usr/lib64/libnccl.so.2 \
      /usr/local/lib/libnccl.so.2 /usr/local/cuda/lib64/libnccl.so.2 /usr/local/nccl*/lib/libnccl.so.2 /opt/nvidia/nccl/lib/libnccl.so.2 \
      /usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2 /usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2 \
      /opt/*/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2 "${HOME:-/root}"/.local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2; do
    [ -r "$file" ] || continue
    ! grep -q tuttiCommSetAlgo "$file" || continue
    echo "$file"; return
  done
}

nccl_step() {
  if [ $virtual = 1 ]; then nccl="not on virtual GPUs"; return; fi
  found=$(nccl_library)
  nccl=${found:-none found}
  [ -n "$found" ] || return
  mkdir -p "$out/nccl"
  ln -sf "$found" "$out/nccl/libnccl.so.2"
  front=$out/nccl
  for count in $ranks; do
    measure_small "$count" all_reduce
    if [ "$status" != 0 ]; then continue; fi  # it cannot have this many ranks here
    for collective in all_gather reduce_scatter broadcast alltoall; do measure_small "$count" "$collective"; done
    for collective in $all; do measure_large "$count" "$collective"; done
  done
  front=
}

find_sanitizer() {
  command -v compute-sanitizer && return
  for file in /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer /opt/nvidia/compute-sanitizer/compute-sanitizer; do
    if [ -x "$file" ]; then echo "$file"; return; fi
  done
}

sanitizer_step() {
  if [ $virtual = 1 ]; then sanitizer="not on virtual GPUs"; return; fi
  found=$(find_sanitizer)
  sanitizer=${found:-none found}
  [ -n "$found" ] || return
  for tool in memcheck synccheck; do
    wrapper="$found --tool $tool --error-exitcode 9 --target-processes all"
    for count in 1 2; do
      check "$tool: all_reduce" "$count" 30 all_reduce_perf -g "$count" -b 1K -e 64K -f 64 -n 1 -w 0
      check "$tool: alltoall" "$count" 30 alltoall_perf -g "$count" -b 1K -e 64K -f 64 -n 1 -w 0
    done
  done
  wrapper=
}

devices=0; free=; nccl=; sanitizer=; stopped=
started=$(date -u +%Y-%m-%dT%H:%M:%SZ)
cp "$here/version.txt" "$out/version.txt"
finish() {
  end_child KILL
  stopped="it was interrupted"
  report
  exit 1
}
trap finish INT TERM HUP
: > "$out/nvidia-smi.txt"
if [ $virtual = 0 ] && command -v nvidia-smi > /dev/null 2>&1; then
  smi() { exec nvidia-smi "$@"; }
  limited 1000 "$out/nvidia-smi.txt" smi
  limited 1000 "$out/nvidia-smi-topo.txt" smi topo -m
fi

if begin baseline 45; then baseline; fi; report
if begin suite 235; then suite; fi; report
if begin table 385; then table; fi; report
if begin nccl 420; then nccl_step; fi
if begin sanitizer 455; then sanitizer_step; fi
report
verdict=$?
rm -f "$out/.status" "$out/.pid"
cat "$out/report.txt"
echo "$(decimal "$(passed)") s: results are in $out/results.md and $out/results.json"
exit $verdict

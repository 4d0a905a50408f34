# The programs as users run them.

all_perf="all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
mpirun_here="mpirun --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader,tcp --mca pml ob1"

# right PROGRAM ARGUMENTS...: exit status 0 and a footer without wrong values.
right() {
  echo "+ $*"
  output=$("$@" 2>&1) || { echo "$output"; echo "status is not 0"; return 1; }
  echo "$output" | tail -n 12
  echo "$output" | grep -q '^# Out of bounds values : 0 OK' || { echo "$output"; echo "no right footer"; return 1; }
  ! echo "$output" | grep -q 'left out' || { echo "$output"; echo "something was left out"; return 1; }
}

# status WANTED COMMAND...
status() {
  wanted=$1; shift
  echo "+ $* (must end with $wanted)"
  got=0; "$@" > /dev/null 2>&1 || got=$?
  [ "$got" -eq "$wanted" ] || { echo "ended with $got"; return 1; }
}

# Kernels on eight virtual GPUs, laid out as those of a real host: all programs, types and operators; every algorithm by
# every protocol that it has, as the log tells it.
virtual_gpu_programs() {
  needs_release
  export TUTTI_HOST_KERNELS=1 NCCL_TOPO_FILE=$PWD/tests/topology/data/oci-h100-full.xml
  right "$release/bin/all_reduce_perf" -g 8 -b 8 -e 1M -f 4 -n 3
  for name in $all_perf; do
    right "$release/bin/${name}_perf" -g 8 -b 8 -e 256K -f 32 -n 2
    right "$release/bin/${name}_perf" -g 3 -b 37 -e 8229 -i 8192 -n 1 -w 0 -o all -d all -r all
    right "$release/bin/${name}_perf" -t 5 -g 1 -b 1K -e 64K -f 64 -n 2 -u 1
  done
  for protocol in Simple LL LL128; do
    for algorithm in ring tree doubling rabenseifner circulant; do
      runs_by "$algorithm" "$protocol" all_reduce_perf
    done
    for name in all_gather reduce_scatter; do
      for algorithm in ring circulant pat; do runs_by "$algorithm" "$protocol" ${name}_perf; done
    done
    for name in broadcast reduce; do
      for algorithm in binomial tree circulant; do runs_by "$algorithm" "$protocol" ${name}_perf; done
    done
  done
  for algorithm in oneshot twoshot direct; do runs_by "$algorithm" Simple all_reduce_perf; done
  for name in all_gather reduce_scatter broadcast; do runs_by direct Simple ${name}_perf; done
  right "$release/bin/all_reduce_perf" -g 4 -b 8 -e 64K -f 64 -n 5 -G 3
  right "$release/bin/alltoall_perf" -g 4 -b 1K -e 64K -f 64 -n 2 -R 2
  NCCL_P2P_DISABLE=1 right "$release/bin/all_reduce_perf" -g 4 -b 8 -e 64K -f 64 -n 2
}

# runs_by ALGORITHM PROTOCOL PROGRAM: right results, and the log says that they came about so.
runs_by() {
  echo "+ $3 by $1 $2"
  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING "$release/bin/$3" -g 8 -b 37 -e 16421 -i 16384 -n 1 --algo "$1" --proto "$2" \
    > "$logs/runs_by.txt" || { cat "$logs/runs_by.txt"; return 1; }
  grep -q '^# Out of bounds values : 0 OK' "$logs/runs_by.txt" &&
    grep -q "algorithm $1, protocol $(echo "$2" | tr '[:upper:]' '[:lower:]')," "$logs/runs_by.txt" ||
    { cat "$logs/runs_by.txt"; return 1; }
}

perf_programs() {
  needs_release
  for name in $all_perf; do
    right "$release/bin/${name}_perf" -b 8 -e 4M -f 8 -g 4 -n 5
    right "$release/bin/${name}_perf" -b 1K -e 1M -f 32 -t 3 -g 1 -n 5 -u 1
    right "$release/bin/${name}_perf" -b 0 -e 24 -i 4 -t 2 -g 2 -n 3 -d int32
    # A sample of the sweep.
    right "$release/bin/${name}_perf" -b 37 -e 66704 -i 66667 -g 3 -n 1 -w 0 -o all -d all -r all
  done
  right "$release/bin/all_reduce_perf" -b 64K -e 64K -t 2 -g 2 -p 1 -z 1 -m 4 -N 2 -a 3 -C 1
  right "$release/bin/all_reduce_perf" -b 64K -e 64K -g 4 -y 1 -I 1 -S 1 -M 1 -T 60 -J "$logs/perf.json"
  right "$release/bin/all_reduce_perf" -b 64K -e 4M -f 8 -g 4 -R 1 --stat median
  right "$release/bin/all_reduce_perf" -b 64K -e 64K -t 2 -g 2 -R 2 -n 5
  echo "+ -M 1 reports memory behind the results, in numbers that are not zero"
  "$release/bin/all_reduce_perf" -b 1M -e 1M -g 2 -n 2 -M 1 | tail -n 5 | head -n 1 | grep '^# Memory' | grep -v ' 0.0 MiB'
  grep -q '"nwrong": 0' "$logs/perf.json"
  right "$release/bin/all_reduce_perf" -b 8 -e 4M -f 64 -g 2 -t 2 -n 5 -G 3
  right "$release/bin/sendrecv_perf" -b 1K -e 1M -f 32 -g 3 -n 5 -m 2 -G 2
  NCCL_TESTS_SPLIT="MOD 2" right "$release/bin/all_reduce_perf" -b 64K -e 64K -g 4
  echo "+ wrong results are noticed"
  wrong=0
  output=$(LD_PRELOAD=$release/lib/tests/libwrong_all_reduce.so "$release/bin/all_reduce_perf" -b 1K -e 8K -f 8 -g 3 -n 2) || wrong=$?
  echo "$output"
  # Three ranks, out of place and in place, one element each.
  [ $wrong -eq 1 ] && echo "$output" | grep -q '^# Out of bounds values : 6 FAILED'
  status 0 "$release/bin/all_reduce_perf" -h
  status 2 "$release/bin/all_reduce_perf" --no-such-flag
  status 2 "$release/bin/all_reduce_perf" -b lots
  status 2 "$release/bin/broadcast_perf" -b 8 -e 8 -g 4 -r 7
  NCCL_TESTS_SPLIT="HALF 2" status 2 "$release/bin/all_reduce_perf" -b 8 -e 8 -g 2
  NCCL_TESTS_DEVICE=8 status 2 "$release/bin/all_reduce_perf" -b 8 -e 8 -g 2
  NCCL_TESTS_MIN_BW=1000000 status 1 "$release/bin/all_reduce_perf" -b 8 -e 8 -g 2
}

mpi_programs() {
  needs_release
  for name in $all_perf; do right $mpirun_here -np 4 "$release/bin/${name}_perf" -b 8 -e 1M -f 16 -g 1 -n 5; done
  right $mpirun_here -np 2 "$release/bin/all_reduce_perf" -b 8 -e 4M -f 16 -g 2 -n 5
  right $mpirun_here -np 2 "$release/bin/all_reduce_perf" -b 8 -e 4M -f 16 -t 2 -g 2 -n 3
  right $mpirun_here -np 1 "$release/bin/all_reduce_perf" -b 1M -e 1M -g 2 -n 3
  echo "+ send, then an MPI message, then receive"
  $mpirun_here -np 2 "$release/bin/system_send_then_mpi" | grep -x right
  status 2 $mpirun_here -np 2 "$release/bin/broadcast_perf" -b 8 -e 8 -r 5
}

example_programs() {
  needs_release
  "$release/bin/example_one_process" 4 | grep ' 0 wrong'
  for bad in -3 0 100 abc 4x ''; do status 2 "$release/bin/example_one_process" "$bad"; done
  status 2 "$release/bin/example_one_process" 2 2
  status 2 "$release/bin/example_two_hosts" 2
  for bad in "0 0" "-1 0" "two 0" "2 2" "2 -1" "2 1x"; do
    # shellcheck disable=SC2086
    status 2 "$release/bin/example_two_hosts" $bad /dev/null
  done
  status 2 $mpirun_here -np 1 "$release/bin/example_mpi" 4
  $mpirun_here -np 3 "$release/bin/example_mpi" | tee /dev/stderr | grep -c ' 0 wrong' | grep -x 3
  id=$(mktemp -u)
  "$release/bin/example_two_hosts" 2 0 "$id" & first=$!
  "$release/bin/example_two_hosts" 2 1 "$id" | grep ' 0 wrong'
  wait "$first"
  rm -f "$id"
  address=127.0.0.1:$((20000 + RANDOM % 20000))
  NCCL_COMM_ID=$address NCCL_SOCKET_IFNAME=lo NCCL_HOSTID=a "$release/bin/example_two_hosts" 2 0 & first=$!
  NCCL_COMM_ID=$address NCCL_SOCKET_IFNAME=lo NCCL_HOSTID=b "$release/bin/example_two_hosts" 2 1 | grep ' 0 wrong'
  wait "$first"
}

# Every program x 12 types x every operator x 1, 2, 3, 5, 8 ranks x in and out of place x odd sizes; then long and short
# calls; then counts above 2^31.
perf_sweep() {
  needs_release
  for name in $all_perf; do
    for ranks in 1 2 3 5 8; do
      right "$release/bin/${name}_perf" -b 37 -e 133371 -i 66667 -g "$ranks" -n 1 -w 0 -d all -o all
      right "$release/bin/${name}_perf" -b 1 -e 299 -i 2 -g "$ranks" -n 1 -w 0 -d int8 -r all
      right "$release/bin/${name}_perf" -b 1M -e 5000003 -i 1333333 -g "$ranks" -n 1 -w 0 -d half -r all
    done
    right "$release/bin/${name}_perf" -b 8 -e 64M -f 2 -g 4 -n 2
    right $mpirun_here -np 4 "$release/bin/${name}_perf" -b 8 -e 16M -f 4 -g 1 -n 2
    right $mpirun_here -np 2 "$release/bin/${name}_perf" -b 5 -e 500000 -i 99999 -g 2 -n 1 -d bfloat16
  done
  large_counts
}

# More than 2^31 elements: zero-copy, through slots, and as a message. 8.7 GB each.
large_counts() {
  free=$(awk '/MemAvailable/ {print int($2 / 1024 / 1024)}' /proc/meminfo)
  if [ "$free" -lt 11 ]; then echo "# summary: no counts above 2^31, $free GiB of memory are free"; return 0; fi
  count=$(((1 << 31) + 5))
  right "$release/bin/all_reduce_perf" -b $count -e $count -d int8 -g 2 -n 1 -w 0
  NCCL_ALGO=ring right "$release/bin/all_reduce_perf" -b $count -e $count -d uint8 -o max -g 2 -n 1 -w 0
  right "$release/bin/sendrecv_perf" -b $count -e $count -d int8 -g 2 -n 1 -w 0
}

# proved RANKS: every algorithm, collective and root on 1 .. RANKS ranks, and 4096 ranks where one stands for all.
proved() {
  needs_release
  "$release/bin/tutti-sim" --verify-all --max-ranks "$1" --symmetric-ranks 4096 > "$logs/proofs-$1.txt" || return 1
  tail -n 1 "$logs/proofs-$1.txt"
  echo "# summary: $(tail -n 1 "$logs/proofs-$1.txt")"
}
proofs() { proved 20; }
proofs_64() { proved 64; }

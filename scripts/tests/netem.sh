# Links that lose, delay, double and reorder packets. The kernel of many machines has no netem, so this runs in a
# virtual machine with Debian's kernel, emulated in software (scripts/vm).

netem_packages="qemu-system-x86 busybox-static cpio xz-utils"
netem_faults="delay 20ms 4ms loss 1% duplicate 1% reorder 10%"

# In the virtual machine: three hosts, two ranks on each.
netem_inside() {
  ns_up || return 1
  for host in $ns_hosts; do
    # shellcheck disable=SC2086
    ip netns exec "$ns_prefix-$host" tc qdisc replace dev eth0 root netem $netem_faults
  done
  ns_limit=300  # the processor is emulated
  for name in sendrecv all_reduce; do
    right ns_mpirun -x TUTTI_STALL_WARN=15 --mca mpi_yield_when_idle 1 "$release/bin/${name}_perf" -b 8 -e 64K -f 64 -n 2 -w 0
  done
  echo "+ what netem did"
  dropped=0
  for host in $ns_hosts; do
    statistics=$(ip netns exec "$ns_prefix-$host" tc -s qdisc show dev eth0)
    echo "$statistics"
    dropped=$((dropped + $(echo "$statistics" | sed -n 's/.*dropped \([0-9]*\).*/\1/p' | head -n 1)))
  done
  [ "$dropped" -gt 0 ] || { echo "no packet was lost"; return 1; }
  echo "# summary: $dropped packets lost"
}

netem() {
  needs_release
  command -v apt-get > /dev/null || { echo "needs Debian's kernel package"; return 77; }
  # shellcheck disable=SC2086
  install_missing $netem_packages || { echo "needs the packages $netem_packages"; return 77; }
  RXE_VM_CACHE=$PWD/build/vm scripts/vm/run-in-rxe-vm.sh -n 0 -t 900 scripts/test --run netem-inside
}

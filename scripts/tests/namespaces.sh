# Three hosts, played by network namespaces on one bridge, two ranks on each.

ns_prefix=tutti$$
ns_hosts="n0 n1 n2"

ns_down() {
  for name in switch $ns_hosts; do ip netns del "$ns_prefix-$name" 2> /dev/null || true; done
  rm -rf "$ns_folder"
}

# ns_up: the namespace "switch" holds the bridge (10.77.0.254) and starts mpirun; n0, n1, n2 are 10.77.0.1, .2, .3.
ns_up() {
  if [ "$(id -u)" -ne 0 ] || ! ip netns add "$ns_prefix-switch" 2> /dev/null; then
    echo "needs root and network namespaces"
    return 77
  fi
  ns_folder=$(mktemp -d); trap ns_down EXIT
  if ! ip netns exec "$ns_prefix-switch" true; then
    echo "needs a root folder that is a mount (in a chroot: mount --bind FOLDER FOLDER first)"
    return 77
  fi
  ip -n "$ns_prefix-switch" link add name bridge type bridge
  ip -n "$ns_prefix-switch" addr add 10.77.0.254/24 dev bridge
  ip -n "$ns_prefix-switch" link set bridge up
  ip -n "$ns_prefix-switch" link set lo up
  number=0
  for host in $ns_hosts; do
    number=$((number + 1))
    ip netns add "$ns_prefix-$host"
    ip -n "$ns_prefix-$host" link set lo up
    ip -n "$ns_prefix-$host" link add eth0 type veth peer name "$host" netns "$ns_prefix-switch"
    ip -n "$ns_prefix-$host" addr add "10.77.0.$number/24" dev eth0
    ip -n "$ns_prefix-$host" link set eth0 up
    ip -n "$ns_prefix-switch" link set "$host" master bridge
    ip -n "$ns_prefix-switch" link set "$host" up
  done
  # What mpirun calls in the place of ssh: AGENT HOST COMMAND...
  cat > "$ns_folder/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
number=\$1; shift
case \$number in 10.77.0.1) host=n0 ;; 10.77.0.2) host=n1 ;; *) host=n2 ;; esac
# Daemons of one machine would share, and clean up, one session folder.
export TMPDIR="$ns_folder/\$host"
mkdir -p "\$TMPDIR"
exec ip netns exec "$ns_prefix-\$host" sh -c "\$*"
END
  chmod +x "$ns_folder/agent"
}

# ns_mpirun ARGUMENTS...: six ranks (ns_ranks), two on each host (at most ns_slots). ns_limit: seconds (120); ns_map: "node"
# deals ranks out to the hosts in turn.
ns_mpirun() {
  TMPDIR=$ns_folder timeout -k 5 "${ns_limit:-120}" ip netns exec "$ns_prefix-switch" mpirun --allow-run-as-root --bind-to none --map-by "${ns_map:-slot}" -np "${ns_ranks:-6}" \
    --host "10.77.0.1:${ns_slots:-2},10.77.0.2:${ns_slots:-2},10.77.0.3:${ns_slots:-2}" --mca plm_rsh_agent "$ns_folder/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --mca btl self,tcp --mca pml ob1 "$@"
}

namespaces() {
  needs_release
  ns_up || return $?
  for name in $all_perf; do
    right ns_mpirun "$release/bin/${name}_perf" -b 8 -e 1M -f 32 -n 3
  done
  echo "+ what carries the data"
  output=$(ns_mpirun -x NCCL_DEBUG=INFO "$release/bin/all_reduce_perf" -b 1M -e 1M -n 2 2>&1)
  echo "$output" | grep -a 'NET/Socket' | head -n 5 || { echo "$output"; echo "no NET/Socket in the log"; return 1; }
}

# ns_shape RATE: each host's link sends and receives at most this.
ns_shape() {
  for host in $ns_hosts; do
    for end in "-n $ns_prefix-$host:eth0" "-n $ns_prefix-switch:$host"; do
      # shellcheck disable=SC2086
      tc ${end%:*} qdisc replace dev "${end##*:}" root tbf rate "$1" burst 256kb latency 50ms
    done
  done
}

# ns_iperf: bits/s of the slowest of all links, each sending to the next host at once.
ns_iperf() {
  number=0; servers=
  for host in $ns_hosts; do ip netns exec "$ns_prefix-$host" iperf3 -s -1 > /dev/null 2>&1 & servers="$servers $!"; done
  sleep 0.5
  for host in $ns_hosts; do
    number=$((number + 1))
    ip netns exec "$ns_prefix-$host" iperf3 -c "10.77.0.$((number % 3 + 1))" -t 2 -J > "$ns_folder/$host.json" &
    servers="$servers $!"
  done
  # shellcheck disable=SC2086
  wait $servers
  python3 - "$ns_folder" <<'END'
import glob, json, sys
rates = [json.load(open(p))["end"]["sum_received"]["bits_per_second"] for p in glob.glob(sys.argv[1] + "/n*.json")]
assert len(rates) == 3
print(min(rates))
END
}

# Bytes that AllReduce's algorithm puts on each link must flow at 90 % of what iperf3 gets through the same links, at
# least. For each byte of the buffer that is 2(n-1)/n for a ring of n ranks, which is how bus bandwidth is defined, and
# 2(h-1)/h for a ring of h hosts. The two programs take turns, since the machine's speed changes from second to second;
# the medians of their turns count.
shaped_links() {
  needs_release
  ns_up || return $?
  algorithm=$(ns_mpirun -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=TUNING "$release/bin/all_reduce_perf" -b 64M -e 64M -n 1 2>&1 |
    sed -n 's/.*: algorithm \([a-z_/]*\),.*/\1/p' | head -n 1)
  echo "+ algorithm: $algorithm"
  for rate in 1gbit 5gbit; do
    ns_shape $rate
    links=; buses=
    for _ in 1 2 3 4 5; do
      links="$links $(ns_iperf)"
      output=$(ns_mpirun "$release/bin/all_reduce_perf" -b 64M -e 64M -n 5) || { echo "$output"; return 1; }
      echo "$output"
      echo "$output" | grep -q '^# Out of bounds values : 0 OK'
      buses="$buses $(echo "$output" | sed -n 's/^# Avg bus bandwidth *: \([0-9.e+-]*\).*/\1/p')"
    done
    python3 - "$rate" "$links" "$buses" "$algorithm" <<'END'
import statistics, sys
rate, links, buses = sys.argv[1], [float(x) / 8e9 for x in sys.argv[2].split()], [float(x) for x in sys.argv[3].split()]
onLinks = 2 * 2 / 3 if sys.argv[4].startswith("hierarchical") else 2 * 5 / 6  # 6 ranks on 3 hosts
link, bus = statistics.median(links), statistics.median(buses)
wire = bus / (2 * 5 / 6) * onLinks
for name, values in ("iperf3", links), ("AllReduce (busbw)", buses):
    print("%s: %s GB/s: %s" % (rate, name, " ".join("%.3f" % v for v in values)))
print("%s: iperf3 %.3f GB/s, AllReduce %.3f GB/s busbw, %.3f GB/s on each link: %.0f %%" %
      (rate, link, bus, wire, 100 * wire / link))
print("# summary: %s %.0f %% of iperf3 on the links, busbw %.0f %%" % (rate, 100 * wire / link, 100 * bus / link))
raise SystemExit(wire < 0.9 * link)
END
  done
}

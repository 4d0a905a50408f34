#!/bin/bash
# Run a command as root inside a throw-away QEMU (TCG) VM that has Soft-RoCE RDMA devices.
# The VM sees the host's whole file system (9p, read-only, under a RAM overlay: writes work but
# vanish) and has the caller's environment and current directory. Its stdout and stderr come to stdout.
set -euo pipefail
usage() { cat <<'U'
usage: run-in-rxe-vm.sh [options] COMMAND [ARG...]
  -n N      rxe devices rxe0..rxeN-1 (default 1) on netdevs eth<i>, 10.77.<i>.1/24, each reaching
            only itself
  -L        wire the devices pairwise (veth) instead: rxe0 10.77.0.1 <-> rxe1 10.77.0.2,
            rxe2 10.77.2.1 <-> rxe3 10.77.2.2, ...: real packets, for link-down and netem faults
  -l PATH   link to a second VM: adds netdev net0 with device rxe_net over the unix socket PATH;
            the VM that finds no PATH makes it and listens, the other one connects
  -a ADDR   net0's address (default 10.78.0.1/24)
  -c CPUS, -m MIB   virtual CPUs (default 2), guest memory (default 1024)
  -u MTU    netdev MTU (default 9000: RDMA MTU 4096)
  -w DIR    share DIR read-write with the host (repeatable)
  -t SECS   kill the VM after SECS (default 300)
  -C DIR    cache for kernel and initrd (default $RXE_VM_CACHE, else ~/.cache/rxe-vm)
  -v        show the guest's kernel console on stderr
Exit status: COMMAND's; 124: timed out; 125: the VM failed (its console goes to stderr).
U
}
die() { echo "run-in-rxe-vm: $*" >&2; exit 125; }

n=1 wired=0 link='' addr=10.78.0.1/24 cpus=2 mem=1024 mtu=9000 limit=300 verbose=0 shares=()
cache=${RXE_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rxe-vm}
while getopts n:Ll:a:c:m:u:w:t:C:vh o; do case $o in
  n) n=$OPTARG;; L) wired=1;; l) link=$OPTARG;; a) addr=$OPTARG;; c) cpus=$OPTARG;; m) mem=$OPTARG;;
  u) mtu=$OPTARG;; w) shares+=("$(realpath "$OPTARG")");; t) limit=$OPTARG;; C) cache=$OPTARG;;
  v) verbose=1;; h) usage; exit 0;; *) usage >&2; exit 125;;
esac; done
shift $((OPTIND - 1))
(($#)) || { usage >&2; exit 125; }
((!wired || n % 2 == 0)) || die "-L needs an even -n"
for t in qemu-system-x86_64 busybox cpio xz rdma; do
  command -v $t >/dev/null || die "no $t: apt-get install qemu-system-x86 busybox-static cpio xz-utils iproute2"
done
job=$(mktemp -d "${TMPDIR:-/tmp}/rxe-vm-job.XXXXXX") vm=''
trap '[[ -z $vm ]] || kill "$vm" 2>/dev/null || :; rm -rf "$job"' EXIT
trap 'exit 130' INT; trap 'exit 143' TERM

# Kernel and initrd, made once. Debian's generic kernel (the cloud one lacks rdma_rxe and 9p),
# unpacked here into a plain ELF: unpacking xz under TCG would cost seconds at every boot.
make_boot_files() {
  local d=$job/boot i=$job/boot/i kpkg v off
  mkdir -p "$i"/{bin,sbin,proc,sys,dev,ro,rw,new} "$cache"
  kpkg=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2 }')
  [[ $kpkg ]] || die "apt knows no linux-image-amd64: apt-get update"
  v=${kpkg#linux-image-}
  (cd "$d" && apt-get -qq -o APT::Sandbox::User=root download "$kpkg") || die "no download of $kpkg"
  dpkg-deb --fsys-tarfile "$d/$kpkg"_*.deb | tar x -C "$d" --wildcards \
    '*/vmlinuz-*' '*/modules.order' '*/modules.builtin' '*/drivers/virtio/*' '*/virtio_net.ko' \
    '*/virtio_console.ko' '*/dummy.ko' '*/veth.ko' '*failover.ko' '*/infiniband/core/*' \
    '*/infiniband/sw/*' '*/net/9p/*' '*/fs/9p/*' '*/fs/netfs/*' '*/fs/fscache/*' \
    '*/fs/overlayfs/*' '*/fs/configfs/*' '*udp_tunnel.ko' '*/crc32_generic.ko' '*/net/sched/*' \
    '*/net/bridge/*' '*/net/llc/*' '*/net/802/*'
  off=$(LC_ALL=C grep -abo $'\xfd7zXZ' "$d/boot/vmlinuz-$v" | cut -d: -f1 | sed -n 1p)
  xz -dc --single-stream < <(tail -c "+$((off + 1))" "$d/boot/vmlinuz-$v") >"$d/vmlinux"
  mv "$d/lib" "$i/lib"
  busybox depmod -b "$i" "$v"
  cp "$(command -v busybox)" "$i/bin/busybox"
  ln -s ../bin/busybox "$i/sbin/modprobe" # for the kernel's own module requests
  cat >"$i/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mnt() { mount -t proc proc $1/proc; mount -t sysfs sys $1/sys; mount -t devtmpfs dev $1/dev; }
mnt ""
for m in virtio_pci virtio_console 9pnet_virtio 9p overlay crc32_generic rdma_rxe rdma_ucm; do modprobe $m; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=524288 root /ro
mount -t tmpfs -o size=75% rw /rw; mkdir /rw/u /rw/w
mount -t overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w root /new
mnt /new; mkdir -p /new/dev/shm /new/dev/pts
mount -t tmpfs shm /new/dev/shm; mount -t devpts pts /new/dev/pts; mount -t tmpfs run /new/run
ln -s /proc/self/fd /new/dev/fd; ln -s fd/1 /new/dev/stdout; ln -s fd/2 /new/dev/stderr
. /new$job/setup
chroot /new /bin/bash $job/cmd </dev/null 2>&1 | cat >$(echo /dev/vport*p1)
cat /new/run/status >$(echo /dev/vport*p2)
reboot -f
INIT
  chmod +x "$i/init"
  (cd "$i" && find . | cpio -o -H newc --quiet) >"$d/initrd"
  for off in initrd vmlinux; do mv "$d/$off" "$cache/$off.$$"; mv "$cache/$off.$$" "$cache/$off"; done
  rm -rf "$d"
}
[[ $cache/vmlinux -nt $0 ]] || make_boot_files # vmlinux comes last: it marks a whole cache

{ # the network, set up by busybox in the initramfs
  echo "hostname rxe-vm-${addr//[.\/]/-}; ulimit -l unlimited; ip link set lo up"
  echo "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad" # else link-local addresses come a second late
  for ((i = 0; i < n; i++)); do
    ((a = wired ? i / 2 * 2 : i, h = wired ? i % 2 + 1 : 1, peer = 3 - h)) || :
    ((wired)) || echo "ip link add eth$i type dummy"
    ((!wired || h == 2)) || echo "ip link add eth$i type veth; ip link set veth0 name eth$((i + 1))"
    echo "ip link set eth$i address 02:77:00:00:00:$(printf %02x $i) mtu $mtu up"
    echo "ip addr add 10.77.$a.$h/24 dev eth$i"
    if ((wired)); then # the other end is a local address too: rules send its packets over the wire
      echo "echo 1 >/proc/sys/net/ipv4/conf/eth$i/accept_local; ip rule add pref 1 iif eth$i lookup local"
      echo "ip rule add pref 2 from 10.77.$a.$h to 10.77.$a.$peer lookup $((100 + i))"
      echo "ip route add 10.77.$a.$peer dev eth$i src 10.77.$a.$h table $((100 + i))"
    fi
  done
  ((!wired)) || echo "ip rule add pref 3 lookup local; ip rule del pref 0"
  [[ -z $link ]] || echo "modprobe virtio_net; ip link set eth$n name net0; ip link set net0 mtu $mtu up; ip addr add $addr dev net0"
  for i in "${!shares[@]}"; do
    echo "mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 w$i '/new${shares[i]}'"
  done
} >"$job/setup"
for ((i = 0; i < n; i++)); do echo "link add rxe$i type rxe netdev eth$i"; done >"$job/rdma"
[[ -z $link ]] || echo "link add rxe_net type rxe netdev net0" >>"$job/rdma"
{ # the command, run by the host's bash in the host's root
  echo "rdma -b $job/rdma || exit"; export -p
  printf 'cd %q\n(' "$PWD"; printf '%q ' "$@"; echo '); echo $? >/run/status'
} >"$job/cmd"

console=$job/console
((!verbose)) || console=/dev/fd/2
# shellcheck disable=SC2054
args=(-nodefaults -no-user-config -display none -no-reboot -M pc -accel "tcg,thread=multi"
  -cpu "max,la57=off" -smp "$cpus" -m "$mem" -kernel "$cache/vmlinux" -initrd "$cache/initrd"
  -append "console=ttyS0 loglevel=$((verbose ? 6 : 4)) panic=-1 nokaslr mitigations=off audit=0
 cryptomgr.notests random.trust_cpu=on tsc=reliable no_timer_check nowatchdog lpj=8000000 job=$job"
  -chardev "file,id=console,path=$console,append=on" -serial chardev:console
  -fsdev "local,id=root,path=/,security_model=none,multidevs=remap,readonly=on"
  -device "virtio-9p-pci,fsdev=root,mount_tag=root" -device virtio-serial-pci
  -chardev "file,id=out,path=/dev/fd/1,append=on" -device virtserialport,chardev=out
  -chardev "file,id=status,path=$job/status" -device virtserialport,chardev=status)
for i in "${!shares[@]}"; do
  args+=(-fsdev "local,id=w$i,path=${shares[i]},security_model=none,multidevs=remap"
    -device "virtio-9p-pci,fsdev=w$i,mount_tag=w$i")
done
if [[ $link ]]; then
  server=on mac=02:78:00:00:00:01
  [[ ! -S $link ]] || server=off mac=02:78:00:00:00:02
  args+=(-netdev "stream,id=net0,server=$server,addr.type=unix,addr.path=$link"
    -device "virtio-net-pci,netdev=net0,mac=$mac,host_mtu=$mtu")
fi
exec 3> >(exec cat) # a pipe, as QEMU reopens /dev/fd/1: that fails for a socket
cat=$! rc=0
timeout "$limit" qemu-system-x86_64 "${args[@]}" </dev/null >&3 3>&- &
vm=$!
exec 3>&-
wait "$vm" || rc=$?
vm=''
wait "$cat"
[[ ! -s $job/status ]] || exit "$(<"$job/status")"
((verbose)) || tail -n 50 "$job/console" >&2
((rc != 124)) || { echo "run-in-rxe-vm: timed out after $limit s" >&2; exit 124; }
die "the VM failed (qemu: $rc)"

# The folder of scripts/gpu-check, on virtual GPUs.

# gpu_check_in_bare_root FOLDER COMMAND...: in a root that has only FOLDER (as /check), busybox, and what $bare_extra (a folder) adds.
gpu_check_in_bare_root() {
  unshare -m sh -c '
    root=$1; folder=$2; extra=$3; shift 3
    mount -t tmpfs none "$root"
    mkdir -p "$root/bin" "$root/proc" "$root/dev" "$root/tmp" "$root/check"
    [ -z "$extra" ] || cp -a "$extra/." "$root/"
    cp "$(command -v busybox)" "$root/bin/"
    for name in cat cp cut date dirname env grep head ln ls mkdir mv printf rm sed setsid sh sleep tail uname; do
      ln -s busybox "$root/bin/$name"
    done
    mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --bind "$folder" "$root/check"
    exec env -i PATH=/bin "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" "$root" "$@"' sh "$work/root" "$1" "${bare_extra:-}" "${@:2}"
}

# expect_json FILE CONDITION: Python, about `report`.
expect_json() {
  python3 - "$1" "$2" <<'END'
import json, sys
report = json.load(open(sys.argv[1]))
if not eval("(" + sys.argv[2] + ")"):
    print(json.dumps(report["problems"], indent=1), json.dumps([report[s]["counts"] for s in ("baseline", "suite", "table", "nccl", "sanitizer")]))
    sys.exit("not so: " + sys.argv[2])
END
}

gpu_check() {
  needs_release
  work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
  mkdir "$work/root"
  echo "+ build, and run on a virtual GPU"
  scripts/gpu-check build "$work/check" --from build/release
  virtual="--virtual --quick --seconds 120"
  # shellcheck disable=SC2086
  scripts/gpu-check run "$work/check" "$work/out" $virtual --ranks "1 2"
  expect_json "$work/out/results.json" 'report["right"] and report["suite"]["counts"]["right"] > 20 and not report["suite"]["counts"]["skipped"]'
  expect_json "$work/out/results.json" '{(r["collective"], r["ranks"], r["bytes"]) for r in report["table"]["rows"]} ==
    {(c, n, 8 * 4**k) for c in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall") for n in (1, 2) for k in range(7)}'
  expect_json "$work/out/results.json" 'all(r["out_of_place"]["us"] > 0 and r["out_of_place"]["wrong_elements"] == 0 and r["copy_us"] > 0 and
    r["devices"] == 1 and r["bound_us"] > 0 for r in report["table"]["rows"])'
  expect_json "$work/out/results.json" '{"ll", "simple"} & {r["out_of_place"].get("protocol") for r in report["table"]["rows"]} and report["baseline"]["measured"]["launch_us"] > 0'
  grep -q '^### reduce_scatter' "$work/out/results.md"

  echo "+ programs that fail, hang and say nothing are noticed, and all ends in time"
  cp -r "$work/check" "$work/broken"
  printf '#!/bin/sh\nexit 3\n' > "$work/broken/bin/all_gather_perf"
  printf '#!/bin/sh\nsleep 4321 & wait\n' > "$work/broken/bin/broadcast_perf"
  printf '#!/bin/sh\nexit 0\n' > "$work/broken/bin/reduce_scatter_perf"
  begin=$SECONDS
  # shellcheck disable=SC2086
  status 1 "$work/broken/run" "$work/broken.out" $virtual --seconds 20 --ranks 2 --loader native
  [ $((SECONDS - begin)) -le 30 ] || { echo "took $((SECONDS - begin)) s"; return 1; }
  ! pgrep -f 'sleep 4321' || { echo "left behind"; return 1; }
  expect_json "$work/broken.out/results.json" 'not report["right"] and report["suite"]["counts"]["did not end"] and report["suite"]["counts"]["skipped"]'
  expect_json "$work/broken.out/results.json" '"status 3" in str(report["problems"]) and "no right results were written" in str(report["problems"])'

  echo "+ who is interrupted reports what there is"
  # shellcheck disable=SC2086
  "$work/check/run" "$work/interrupted.out" $virtual & run=$!
  sleep 1; kill -TERM $run; status 1 wait $run
  expect_json "$work/interrupted.out/results.json" '"it was interrupted" in report["problems"] and report["baseline"]["measured"]'

  echo "+ without a GPU it says so"
  CUDA_VISIBLE_DEVICES='' status 1 "$work/check/run" "$work/none.out" --seconds 20
  expect_json "$work/none.out/results.json" '"gpu-baseline" in report["machine"]["stopped"] and not report["right"]'

  if [ "$(id -u)" -ne 0 ] || ! unshare -m true; then echo "# summary: without the bare root, which needs root"; return 0; fi
  echo "+ where there is nothing but a shell"
  # shellcheck disable=SC2086
  gpu_check_in_bare_root "$work/check" sh -c "/check/run /tmp/out $virtual --ranks 2 > /tmp/log; status=\$?; cat /tmp/log >&2; cat /tmp/out/results.json; exit \$status" > "$work/bare.json"
  expect_json "$work/bare.json" 'report["right"] and report["machine"]["loader"] == "bundled" and report["suite"]["counts"]["right"] > 10'

  echo "+ there, the machine's driver is found"
  mkdir -p "$work/extra/usr/lib64"
  echo '#include <unistd.h>
    __attribute__((constructor)) static void loaded(void) { if (write(1, "driver loaded\n", 14) < 0) _exit(9); }' |
    gcc -shared -fPIC -x c -o "$work/extra/usr/lib64/libcuda.so.1" -
  bare_extra=$work/extra gpu_check_in_bare_root "$work/check" sh -c "/check/run /tmp/out --seconds 20; cat /tmp/out/runs/0001/output.txt" | tee "$work/driver.txt"
  grep -q 'driver loaded' "$work/driver.txt"
  echo "# summary: $(du -sm --apparent-size "$work/check" | cut -f 1) MB"
}

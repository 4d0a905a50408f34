"""Applies mutations one at a time, builds, and expects the named tests to fail. See tests/mutations/*.txt.

usage: mutations.py TREE JOBS FILE...
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

SECONDS = 300  # for one run of tests: a mutation may well make a test hang


def parse(path):
    """The blocks of one file: dictionaries of name, edits (of path, text, new text) and TEST."""
    found = []
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            found.append({"name": line.strip("[]"), "edits": []})
            continue
        key, _, value = line.partition(" ")
        if not found or key not in ("FILE", "FROM", "TO", "TEST"):
            sys.exit(f"{path}:{number}: expected [NAME], FILE, FROM, TO or TEST: {line}")
        if key == "TEST":
            found[-1][key] = value
        elif key == "FILE":
            found[-1]["edits"].append([value])
        elif not found[-1]["edits"] or len(found[-1]["edits"][-1]) != (1 if key == "FROM" else 2):
            sys.exit(f"{path}:{number}: FILE, FROM and TO come in this order")
        else:
            found[-1]["edits"][-1].append(value)
    for mutation in found:
        if "TEST" not in mutation or not mutation["edits"] or len(mutation["edits"][-1]) != 3:
            sys.exit(f"{path}: [{mutation['name']}] is not complete")
    return found


def mirror(tree):
    """Copies what git knows, as it stands here; unchanged files keep their times, so that little is built again."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                           capture_output=True, text=True).stdout.split("\0")
    wanted = {name for name in names if name and os.path.isfile(name)}
    for name in wanted:
        source, copy = pathlib.Path(name), tree / name
        if not copy.exists() or copy.read_bytes() != source.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
    for folder in ("src", "tests", "tools", "perf", "include"):
        for old in (tree / folder).rglob("*"):
            if old.is_file() and str(old.relative_to(tree)) not in wanted:
                old.unlink()


def run(command, log, limit, folder=None):
    """Exit status, or "time" for one that took longer than `limit` seconds. What it started ends with it."""
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def breakIt(tree, mutation):
    """Makes the edits. A text, when one of them cannot be made."""
    for path, old, new in mutation["edits"]:
        text = (tree / path).read_text()
        if text.count(old) != 1:
            return f"CANNOT BE MADE, since this stands {text.count(old)} times in {path}: {old}"
        (tree / path).write_text(text.replace(old, new))
    return ""


def main():
    tree, jobs, files = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    release = tree / "build/release"
    wanted = os.environ.get("MUTATIONS", "").split()
    mutations = [m for path in files for m in parse(path) if not wanted or m["name"] in wanted]
    if not mutations:
        sys.exit("no such mutation")

    mirror(tree)

    def build(log):
        return run(["ninja", "-C", str(release), "-j", jobs], log, 1800)

    def test(mutation, log):
        binary, gtest_filter = mutation["TEST"].split(" ", 1)
        return run([str(release / "bin" / binary), f"--gtest_filter={gtest_filter}"], log, SECONDS)

    def skipped(path):
        text = path.read_text(errors="replace")
        return " 0 tests ran" in text or "[  PASSED  ] 0 tests" in text or "0 tests from 0 test suites ran" in text

    bad = []
    logs = tree / "logs"
    logs.mkdir(exist_ok=True)
    with open(logs / "unbroken.log", "w") as log:
        configured = (release / "build.ninja").exists() or run(["cmake", "--preset", "release"], log, 300, tree) == 0
        if not configured or build(log) != 0:
            sys.exit(f"the sources do not build: {logs}/unbroken.log")
    for tested in sorted({m["TEST"] for m in mutations}):
        path = logs / "unbroken-test.log"
        with open(path, "w") as log:
            status = test({"TEST": tested}, log)
        if status != 0 or skipped(path):
            print(path.read_text(errors="replace")[-3000:])
            sys.exit(f"{tested} does not pass without a mutation (status {status}), or nothing of it ran")
    for mutation in mutations:
        name = mutation["name"]
        before = {tree / path: (tree / path).read_text() for path, _, _ in mutation["edits"]}
        try:
            verdict = breakIt(tree, mutation)
            if not verdict:
                with open(logs / f"{name}.log", "w") as log:
                    status = "build" if build(log) != 0 else test(mutation, log)
                verdict = {0: "NOT NOTICED", "build": "DOES NOT BUILD", "time": "noticed: the test ran out of time"}.get(
                    status, f"noticed ({status})")
        finally:
            for path, text in before.items():
                path.write_text(text)
        if not verdict.startswith("noticed"):
            bad.append(name)
        print(f"{name}: {verdict}", flush=True)
    print(f"# summary: {len(mutations) - len(bad)} of {len(mutations)} mutations noticed")
    sys.exit(1 if bad else 0)


main()

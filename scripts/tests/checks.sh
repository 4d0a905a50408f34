# Checks of the sources.

layers() { tools/check_layers --self-test; tools/check_layers; }

headers() { tools/check_headers --self-test; tools/check_headers --jobs "$jobs"; }

# Files under version control, and new ones: not what a build leaves behind.
source_files() {
  if git rev-parse --is-inside-work-tree > /dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- "$@"
  else
    find include src perf tools tests examples \( -name '*.h' -o -name '*.cc' \)
  fi
}

format() {
  wrong=
  for file in $(source_files '*.cc' '*.h'); do
    [ -f "$file" ] || continue
    clang-format --dry-run -Werror "$file" 2> /dev/null || wrong="$wrong $file"
  done
  [ -z "$wrong" ] || { echo "clang-format -i$wrong"; return 1; }
}

# run_tidy FILES: with the commands of a build that compiles each source by itself.
run_tidy() {
  cmake -G Ninja -S . -B build/tidy -DCMAKE_UNITY_BUILD=OFF > /dev/null
  echo "$@" | tr ' ' '\n' | xargs -P "$jobs" -n 2 clang-tidy -p build/tidy --quiet
}

# clang-tidy on the files that differ from the main branch, or else on a few central ones.
tidy_changed() {
  base=$(git merge-base HEAD origin/main 2> /dev/null || git merge-base HEAD main 2> /dev/null || true)
  files=
  [ -z "$base" ] || files=$(git diff --name-only --diff-filter=d "$base" -- 'src/*.cc' 'perf/*.cc' | head -8)
  [ -n "$files" ] || files="src/api/collectives.cc src/core/communicator.cc perf/common/worker.cc"
  # shellcheck disable=SC2086
  run_tidy $files
}

tidy_everything() {
  # shellcheck disable=SC2046
  run_tidy $(source_files 'src/*.cc' 'perf/*.cc' 'tools/*.cc')
}

# What nvcc makes of the kernels. Skipped without it.
gpu_kernels() { tools/check_kernels/check_kernels --self-test; tools/check_kernels/check_kernels --jobs "$jobs"; }

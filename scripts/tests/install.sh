# What `cmake --install` gives to a user.

install_prefix() {
  needs_release
  prefix=$(mktemp -d); trap 'rm -rf "$prefix"' EXIT
  cmake --install build/release --prefix "$prefix/usr" > "$prefix/install.log"
  mkdir "$prefix/work"
  cat > "$prefix/work/version.c" <<'END'
#include <nccl.h>
#include <stdio.h>
int main(void) {
  int version = 0;
  ncclUniqueId id;
  if (ncclGetVersion(&version) != ncclSuccess || ncclGetUniqueId(&id) != ncclSuccess) return 1;
  printf("version %d\n", version);
  return 0;
}
END
  libdir=$(dirname "$(find "$prefix/usr" -name nccl.pc)")/..
  export PKG_CONFIG_PATH=$libdir/pkgconfig

  echo "+ a C program with pkg-config nccl, moved prefix included"
  # shellcheck disable=SC2046
  gcc -Wall -Werror "$prefix/work/version.c" -o "$prefix/work/version" $(pkg-config --cflags --libs nccl)
  LD_LIBRARY_PATH=$libdir "$prefix/work/version" | grep '^version 22809'

  echo "+ an example with pkg-config tutti, without a toolkit"
  # shellcheck disable=SC2046
  g++ -std=c++20 "$prefix/usr/share/doc/tutti/examples/one_process.cc" -o "$prefix/work/one" $(pkg-config --cflags --libs tutti)
  "$prefix/work/one" 3 | grep ' 0 wrong'

  echo "+ a project with find_package(tutti), find_package(NCCL)"
  cp "$prefix/usr/share/doc/tutti/examples/"*.cc "$prefix/usr/share/doc/tutti/examples/"*.h "$prefix/work"
  cat > "$prefix/work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(user LANGUAGES C CXX)
find_package(tutti REQUIRED)
add_executable(one one_process.cc)
target_compile_features(one PRIVATE cxx_std_20)
target_link_libraries(one PRIVATE tutti::nccl tutti::cudart)
find_package(NCCL 2.20 REQUIRED)
add_executable(version version.c)
target_link_libraries(version PRIVATE NCCL::NCCL)
END
  cmake -G Ninja -S "$prefix/work" -B "$prefix/work/build" -DCMAKE_PREFIX_PATH="$prefix/usr" > /dev/null
  cmake --build "$prefix/work/build"
  "$prefix/work/build/one" 2 | grep ' 0 wrong'
  "$prefix/work/build/version" | grep '^version 22809'

  echo "+ every link of the installed pages leads to a file"
  python3 - "$prefix/usr/share/doc/tutti" <<'END'
import pathlib, re, sys
pages = list(pathlib.Path(sys.argv[1]).rglob("*.md"))
links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)#]+)", page.read_text()) if "://" not in link]
broken = [f"{page}: {link}" for page, link in links if not (page.parent / link).exists()]
assert len(pages) > 8 and len(links) > 8, (pages, links)
sys.exit("\n".join(broken) or 0)
END

  echo "+ the device API's header, installed"
  echo '#include <nccl_device.h>' | gcc -Werror -fsyntax-only -I "$prefix/usr/include" -x c -

  echo "+ the installed programs, after a move"
  mv "$prefix/usr" "$prefix/moved"
  "$prefix/moved/bin/tutti-info" | grep "^library  *$prefix/moved/"
  right "$prefix/moved/bin/all_reduce_perf" -b 1K -e 1K -g 2 -n 2
  right $mpirun_here -np 2 "$prefix/moved/bin/all_reduce_perf" -b 1K -e 1K -n 2
}

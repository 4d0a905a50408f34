// A small coverage-guided driver for fuzzers, where the compiler has no libFuzzer (GCC).
//
//   fuzz_x [-max_total_time=SECONDS] [-seed=N] [-max_len=BYTES] [-out=FOLDER] FOLDER|FILE...
//
// Runs every input given once; with a time, then mutates them until it is over, keeping what reaches new code
// (in -out, if given). An input that crashes, or takes longer than 20 s, is written to
// crash-<fuzzer>-<number> or slow-<fuzzer>-<number> in the current folder.
#include <fcntl.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fuzz.h"

namespace {

// Places in the code that were reached, by address: written by whatever thread gets there first. A lost or
// doubled count only means an input more or less in the corpus.
constexpr size_t kPlaces = 1 << 18;
volatile uint8_t reached[kPlaces];
volatile size_t reachedCount = 0;

struct Options {
  double seconds = 0;
  uint64_t seed = std::random_device{}();
  size_t longest = 4096;
  std::string out;
  std::string name;
  std::vector<std::string> inputs;
};

Options options;
const uint8_t* current = nullptr;
size_t currentSize = 0;

/// From a signal handler or a dying process: system calls only.
void keepCurrent(const char* why) {
  char path[256];
  std::snprintf(path, sizeof path, "%s-%s-%d", why, options.name.c_str(), static_cast<int>(::getpid()));
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || ::write(fd, current, currentSize) < 0) return;
  ::close(fd);
  constexpr char kSaid[] = "\ninput written to ";
  if (::write(2, kSaid, sizeof kSaid - 1) < 0 || ::write(2, path, std::strlen(path)) < 0 ||
      ::write(2, "\n", 1) < 0)
    return;
}

void onDeath() { keepCurrent("crash"); }
void onAbort(int) {
  keepCurrent("crash");
  ::_exit(77);
}
void onAlarm(int) {
  keepCurrent("slow");
  ::_exit(78);
}

/// True when new code was reached.
bool runOne(const std::vector<uint8_t>& input) {
  // A copy of exactly that size: reading beyond it is an error that AddressSanitizer sees.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), exact.get());
  current = exact.get();
  currentSize = input.size();
  const size_t before = reachedCount;
  ::alarm(20);
  LLVMFuzzerTestOneInput(exact.get(), input.size());
  ::alarm(0);
  return reachedCount != before;
}

std::vector<uint8_t> contentOf(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::vector<uint8_t> mutate(const std::vector<std::vector<uint8_t>>& corpus) {
    std::vector<uint8_t> bytes = corpus[below(corpus.size())];
    for (size_t rounds = 1 + below(5); rounds > 0; --rounds) change(bytes, corpus);
    if (bytes.size() > options.longest) bytes.resize(options.longest);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(std::vector<uint8_t>& bytes, const std::vector<std::vector<uint8_t>>& corpus) {
    const size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + static_cast<ptrdiff_t>(at);
    const size_t rest = bytes.size() - at;
    switch (below(10)) {
      case 0:  // a bit
        if (rest > 0) bytes[at] = static_cast<uint8_t>(bytes[at] ^ (1u << below(8)));
        return;
      case 1:  // a byte
        if (rest > 0) bytes[at] = static_cast<uint8_t>(random_());
        return;
      case 2: {  // a number that is often special, in either width
        constexpr uint64_t kSpecial[] = {0,
                                         1,
                                         2,
                                         127,
                                         128,
                                         255,
                                         256,
                                         32767,
                                         65535,
                                         65536,
                                         0x7fffffff,
                                         0x80000000,
                                         0xffffffff,
                                         0xfffffffe,
                                         0x7fffffffffffffff,
                                         0xffffffffffffffff};
        const uint64_t value = kSpecial[below(std::size(kSpecial))];
        const size_t width = std::min<size_t>(rest, size_t{1} << below(4));
        if (width > 0) std::memcpy(&bytes[at], &value, width);
        return;
      }
      case 3:  // bytes more
        bytes.insert(place, 1 + below(8), static_cast<uint8_t>(random_()));
        return;
      case 4:  // bytes less
        bytes.erase(place, place + static_cast<ptrdiff_t>(std::min(rest, 1 + below(16))));
        return;
      case 5:  // cut
        if (below(4) == 0) bytes.resize(at);
        return;
      case 6: {  // a piece of itself again
        const size_t length = std::min(rest, 1 + below(64));
        const std::vector<uint8_t> piece(place, place + static_cast<ptrdiff_t>(length));
        const auto to = bytes.begin() + static_cast<ptrdiff_t>(below(bytes.size() + 1));
        bytes.insert(to, piece.begin(), piece.end());
        return;
      }
      case 7: {  // a piece of another
        const std::vector<uint8_t>& other = corpus[below(corpus.size())];
        const size_t from = below(other.size() + 1), length = std::min(other.size() - from, 1 + below(256));
        const auto begin = other.begin() + static_cast<ptrdiff_t>(from);
        if (below(2) == 0) bytes.resize(at);
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), begin,
                     begin + static_cast<ptrdiff_t>(length));
        return;
      }
      case 8: {  // a decimal number in the place of another
        size_t first = at;
        while (first < bytes.size() && (bytes[first] < '0' || bytes[first] > '9')) ++first;
        size_t end = first;
        while (end < bytes.size() && bytes[end] >= '0' && bytes[end] <= '9') ++end;
        if (first == end) return;
        constexpr const char* kNumbers[] = {"0",
                                            "1",
                                            "-1",
                                            "2147483647",
                                            "-2147483648",
                                            "65536",
                                            "9223372036854775807",
                                            "18446744073709551616",
                                            "0x7f",
                                            "3",
                                            "4096"};
        const std::string_view number = kNumbers[below(std::size(kNumbers))];
        bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(first),
                    bytes.begin() + static_cast<ptrdiff_t>(end));
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(first), number.begin(), number.end());
        return;
      }
      default:  // a character that separates things
        if (rest > 0) bytes[at] = static_cast<uint8_t>(" \t\n\r=#,;:^\"<>/&[]%K\0"[below(20)]);
        return;
    }
  }

  std::mt19937_64 random_;
};

bool parse(int argc, char** argv) {
  options.name = std::filesystem::path(argv[0]).filename().string();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (argument.starts_with("-max_total_time=")) {
      options.seconds = std::strtod(value.c_str(), nullptr);
    } else if (argument.starts_with("-seed=")) {
      options.seed = std::strtoull(value.c_str(), nullptr, 0);
    } else if (argument.starts_with("-max_len=")) {
      options.longest = std::strtoull(value.c_str(), nullptr, 0);
    } else if (argument.starts_with("-out=")) {
      options.out = value;
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "unknown option %s\n", argv[i]);
      return false;
    } else {
      options.inputs.push_back(argument);
    }
  }
  return true;
}

}  // namespace

extern "C" void __sanitizer_cov_trace_pc() {
  const auto pc = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  volatile uint8_t& place = reached[(pc >> 1 ^ pc >> 19) % kPlaces];
  if (place != 0) return;
  place = 1;
  reachedCount = reachedCount + 1;
}

int main(int argc, char** argv) {
  if (!parse(argc, argv)) return 2;
  __sanitizer_set_death_callback(onDeath);
  ::signal(SIGABRT, onAbort);
  ::signal(SIGALRM, onAlarm);
  std::vector<std::vector<uint8_t>> corpus;
  for (const std::string& input : options.inputs) {
    if (!std::filesystem::is_directory(input)) {
      if (!std::filesystem::exists(input)) {
        std::fprintf(stderr, "no such file or folder: %s\n", input.c_str());
        return 2;
      }
      corpus.push_back(contentOf(input));
      continue;
    }
    std::vector<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(input)) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) corpus.push_back(contentOf(file));
  }
  if (corpus.empty()) corpus.emplace_back();
  for (const auto& input : corpus) runOne(input);
  const size_t given = corpus.size(), known = reachedCount;

  Mutator mutator(options.seed);
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  uint64_t runs = given;
  while (elapsed() < options.seconds) {
    std::vector<uint8_t> input = mutator.mutate(corpus);
    ++runs;
    if (!runOne(input)) continue;
    if (!options.out.empty()) {
      std::ofstream file(options.out + "/" + std::to_string(corpus.size()), std::ios::binary);
      file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
    }
    corpus.push_back(std::move(input));
  }
  std::fprintf(stderr,
               "%s: %llu runs in %.0f s, seed %llu; %zu inputs given, %zu found; %zu places in the code, %zu "
               "of them new\n",
               options.name.c_str(), static_cast<unsigned long long>(runs), elapsed(),
               static_cast<unsigned long long>(options.seed), given, corpus.size() - given,
               static_cast<size_t>(reachedCount), reachedCount - known);
  if (__lsan_do_recoverable_leak_check() != 0) return 79;
  // Threads of the subject may still run.
  std::fflush(nullptr);
  ::_exit(0);
}

// bench_topology [FILE...]: time and memory of graph, paths and search, for machines that are made up and for
// topology files. Not a test: times depend on what else runs.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "topology/machines.h"
#include "topology/search.h"
#include "topology/system_xml.h"

namespace {

size_t held = 0, most = 0;

void* take(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  held += ::malloc_usable_size(memory);
  most = std::max(most, held);
  return memory;
}
void release(void* memory) {
  held -= ::malloc_usable_size(memory);
  std::free(memory);
}

double sinceMs(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void measure(const std::string& name, const tutti::SystemDescription& system, bool acrossHosts) {
  const size_t before = held;
  most = held;
  const auto start = std::chrono::steady_clock::now();
  const auto graph = tutti::Graph::build(system);
  if (!graph.isOk()) return;
  const tutti::Paths paths(*graph);
  const double pathsMs = sinceMs(start);
  tutti::SearchRequest request;
  request.members = tutti::defaultMembers(*graph);
  request.acrossHosts = acrossHosts;
  const auto searchStart = std::chrono::steady_clock::now();
  const auto plan = tutti::searchChannels(*graph, paths, request);
  const double searchMs = sinceMs(searchStart);
  if (!plan.isOk()) return;
  std::printf(
      "%-28s %-7s %3zu x %7.2f = %7.1f GB/s, trees %7.1f; %6.2f ms, search %7.2f ms, %8lu steps%s, %5zu KB\n",
      name.c_str(), acrossHosts ? "several" : "alone", plan->rings.channels.size(), plan->rings.rate(),
      plan->rings.total(), plan->trees.total(), pathsMs, searchMs, static_cast<unsigned long>(plan->work),
      plan->limitReached ? " (all)" : "", (most - before) / 1024);
}

}  // namespace

void* operator new(size_t size) { return take(size); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }

int main(int argc, char** argv) {
  using namespace tutti::test;
  std::vector<std::pair<std::string, std::string>> made = {
      {"8 GPUs, PCIe", pcieMachine(nicText(0, netText(0, 100)), nicText(1, netText(1, 100)))},
      {"8 GPUs, cube mesh", nvlinkMachine(8, 70, cubeMesh())},
      {"16 GPUs, NVSwitch", nvswitchMachine(16, 70, 6)},
      {"72 GPUs, NVSwitch", rackDomain(72)}};
  for (const bool acrossHosts : {false, true}) {
    for (const auto& [name, xml] : made)
      if (const auto system = tutti::parseSystemXml(xml, name); system.isOk())
        measure(name, *system, acrossHosts);
    for (int i = 1; i < argc; ++i) {
      const auto system = tutti::readSystemXml(argv[i]);
      if (!system.isOk()) return std::fprintf(stderr, "%s\n", system.status().message().c_str()), 1;
      measure(argv[i], *system, acrossHosts);
    }
  }
  return 0;
}

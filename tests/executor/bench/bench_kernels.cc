// Reduction and copy kernels by themselves: bench_kernels --benchmark_filter=sum/float
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "executor/host/simd/reduce.h"

namespace {

using namespace tutti;

void reduceBenchmark(benchmark::State& state, ncclDataType_t type, Reduction op, SimdTarget target,
                     int sources, bool stream) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::vector<std::byte>> memory(static_cast<size_t>(sources) + 1,
                                             std::vector<std::byte>(bytes + 64, std::byte{0}));
  std::vector<const std::byte*> from;
  for (int s = 0; s < sources; ++s) from.push_back(memory[static_cast<size_t>(s)].data());
  std::byte* to = memory.back().data();
  to += (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  const Reducer reducer({op, type}, target);
  for (auto _ : state) {
    reducer.run(from.data(), sources, &to, 1, bytes, Scaled::none, false, stream);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes) *
                          (sources + 1));
}

struct Named {
  const char* name;
  ncclDataType_t type;
};

}  // namespace

int main(int argc, char** argv) {
  const Named types[] = {{"float", ncclFloat32},   {"half", ncclFloat16},   {"bfloat16", ncclBfloat16},
                         {"e4m3", ncclFloat8e4m3}, {"double", ncclFloat64}, {"int8", ncclInt8},
                         {"int64", ncclInt64}};
  for (const auto& type : types) {
    for (const SimdTarget target : availableTargets()) {
      for (const Reduction op : {Reduction::sum, Reduction::max}) {
        const std::string name = std::string(op == Reduction::sum ? "sum/" : "max/") + type.name + "/" +
                                 tutti::name(target) + "/2";
        benchmark::RegisterBenchmark(name.c_str(), reduceBenchmark, type.type, op, target, 2, false)
            ->Arg(8)
            ->Arg(16 << 10)
            ->Arg(256 << 10)
            ->MinTime(0.05);
      }
    }
  }
  for (const bool stream : {false, true}) {
    const std::string kind = stream ? "stream" : "plain";
    benchmark::RegisterBenchmark(("large/sum/float/" + kind).c_str(), reduceBenchmark, ncclFloat32,
                                 Reduction::sum, bestTarget(), 2, stream)
        ->Arg(1 << 20)
        ->Arg(8 << 20)
        ->Arg(64 << 20)
        ->MinTime(0.2);
    benchmark::RegisterBenchmark(("large/copy/" + kind).c_str(), reduceBenchmark, ncclUint8, Reduction::max,
                                 bestTarget(), 1, stream)
        ->Arg(1 << 20)
        ->Arg(8 << 20)
        ->Arg(64 << 20)
        ->MinTime(0.2);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

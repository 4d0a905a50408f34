// bench_transport [shm|socket]: bandwidth and half round trip of one FIFO between two processes of this
// machine. Not a test: numbers depend on what else runs.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support/fork_ranks.h"
#include "support/traffic.h"

namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

/// As an executor waits: spin a little, then sleep on the bell.
template <typename Condition>
void await(Endpoint& endpoint, Condition&& condition) {
  for (int spins = 0; !condition(); ++spins) {
    if (endpoint.progress() || spins < 5000) continue;
    Doorbell* bell = endpoint.bell(endpoint.rank());
    const uint32_t ticket = bell->prepare();
    if (!condition()) {
      endpoint.beginSleep();
      bell->sleep(ticket, 100000);
      endpoint.endSleep();
    }
    bell->finish();
    spins = 0;
  }
}

void stream(Endpoint& endpoint, size_t messages, bool touch) {
  const size_t slot = endpoint.options().slotBytes;
  std::vector<std::byte> buffer(slot, std::byte{1});
  if (endpoint.rank() == 0) {
    FifoSender* out = *endpoint.sender(1, 0, 0);
    for (size_t i = 0; i < messages; ++i) {
      std::byte* to = nullptr;
      await(endpoint, [&] { return (to = out->tryAcquire()) != nullptr; });
      if (touch) std::memcpy(to, buffer.data(), slot);
      out->publish(static_cast<uint32_t>(slot));
      endpoint.progress();
    }
    endpoint.beginSleep();
  } else {
    FifoReceiver* in = *endpoint.receiver(0, 0, 0);
    for (size_t i = 0; i < messages; ++i) {
      const std::byte* from = nullptr;
      uint32_t bytes = 0;
      await(endpoint, [&] { return (from = in->tryPeek(&bytes)) != nullptr; });
      if (touch) std::memcpy(buffer.data(), from, bytes);
      in->release();
    }
  }
}

void pingPong(Endpoint& endpoint, int rounds) {
  const int peer = 1 - endpoint.rank();
  FifoSender* out = *endpoint.sender(peer, 0, 1);
  FifoReceiver* in = *endpoint.receiver(peer, 0, 1);
  uint32_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    for (const bool sends : {endpoint.rank() == 0, endpoint.rank() == 1}) {
      if (sends) {
        await(endpoint, [&] { return out->tryAcquire() != nullptr; });
        out->publish(8);
      } else {
        await(endpoint, [&] { return in->tryPeek(&bytes) != nullptr; });
        in->release();
      }
    }
  }
  endpoint.beginSleep();
}

void measure(bool socket, size_t slotBytes) {
  EndpointOptions options;
  options.slotBytes = slotBytes;
  const auto host = [&](int rank) { return socket ? "host-" + std::to_string(rank) : std::string("host"); };
  runForkedEndpoints({{0}, {1}}, options, host, [&](Endpoint& endpoint, OobChannel& oob) {
    const Deadline limit = Deadline::after(std::chrono::seconds(60));
    const size_t messages = (size_t{2} << 30) / slotBytes;
    double seconds[2];
    stream(endpoint, 100, true);
    for (const bool touch : {false, true}) {
      (void)oob.barrier(limit);
      const auto start = Clock::now();
      stream(endpoint, messages, touch);
      (void)oob.barrier(limit);
      seconds[touch] = std::chrono::duration<double>(Clock::now() - start).count();
    }
    pingPong(endpoint, 100);
    const int rounds = 20000;
    const auto start = Clock::now();
    pingPong(endpoint, rounds);
    const double round = std::chrono::duration<double>(Clock::now() - start).count() / rounds;
    const double gigabytes = static_cast<double>(messages * slotBytes) * 1e-9;
    if (endpoint.rank() == 0)
      std::printf(
          "%-10s slot %4zu KiB: %6.2f GB/s, %6.2f GB/s with copies in and out; 8 B half round trip %6.2f "
          "us\n",
          endpoint.transportName(1).c_str(), slotBytes >> 10, gigabytes / seconds[0], gigabytes / seconds[1],
          round * 0.5e6);
  });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  for (const bool socket : {false, true})
    for (const size_t kib : {64, 128, 256, 512})
      if (only.empty() || (only == "socket") == socket) tutti::test::measure(socket, kib << 10);
}

// Loads and stores of lines: like memory_order.cuh.
//
// LL: a thread stores 16 bytes at once, whose two flags prove both halves. Relaxed: data and flag are the
// same store. LL128: eight threads of a warp store 128 bytes at once, which links that keep such stores whole
// deliver whole; so do loads. Relaxed, for the same reason.
//
// The twin has no stores of more than 8 bytes at once. LL needs none: each 8 bytes have a flag. In LL128 it
// stores the flag after the data (release, behind a __syncwarp) and loads it before them (acquire, before a
// __syncwarp), where the GPU's functions of that name do nothing.
#pragma once

#include "device/memory_order.cuh"

namespace tutti::device::TUTTI_KERNELS {

constexpr uint32_t kAllLanes = 0xffffffffu;

#if defined(TUTTI_HOST_KERNELS_COMPILATION)

TUTTI_DEVICE uint64_t wordOf(const Chunk<8>& chunk) {
  uint64_t word;
  std::memcpy(&word, &chunk, 8);
  return word;
}
TUTTI_DEVICE Chunk<8> chunkOf(uint64_t word) {
  Chunk<8> chunk;
  std::memcpy(&chunk, &word, 8);
  return chunk;
}

/// `ordered`: in programs of more than one lane, what one lane reads and another overwrites is ordered by
/// dependency, which ThreadSanitizer does not know: there lines release and acquire. With one lane they do
/// not, so that it still finds a barrier that is missing.
TUTTI_DEVICE void storeLine(LineLL* line, const Chunk<8>& data, uint32_t flag, bool ordered) {
  auto* words = reinterpret_cast<uint64_t*>(line);
  const uint64_t high = static_cast<uint64_t>(flag) << 32;
  if (ordered) {
    storeRelease(words, high | data.words[0]);
    storeRelease(words + 1, high | data.words[1]);
  } else {
    storeRelaxed(words, high | data.words[0]);
    storeRelaxed(words + 1, high | data.words[1]);
  }
}
/// False where a flag is not there yet.
TUTTI_DEVICE bool loadLine(const LineLL* line, uint32_t flag, Chunk<8>* data, bool ordered) {
  const auto* words = reinterpret_cast<const uint64_t*>(line);
  const uint64_t first = ordered ? loadAcquire(words) : loadRelaxed(words);
  if (first >> 32 != flag) return false;
  const uint64_t second = ordered ? loadAcquire(words + 1) : loadRelaxed(words + 1);
  if (second >> 32 != flag) return false;
  data->words[0] = static_cast<uint32_t>(first);
  data->words[1] = static_cast<uint32_t>(second);
  return true;
}

TUTTI_DEVICE void storeLineFlag(LineLL128* line, uint32_t part, uint64_t flag) {
  if (TUTTI_PLANT != TUTTI_PLANT_TORN_LINE && part == 7) storeRelease(&line->flag, flag);
}
TUTTI_DEVICE void beforeFlags() { __syncwarp(); }
/// Data words are not torn, and a planted fault must not be a race before it is a wrong result.
TUTTI_DEVICE void storeLinePart(LineLL128* line, uint32_t part, [[maybe_unused]] uint64_t flag,
                                const Chunk<8>& first, const Chunk<8>& second) {
#if TUTTI_PLANT == TUTTI_PLANT_TORN_LINE
  if (part == 7) {
    storeRelease(&line->flag, flag);
  } else {
    __nanosleep(100'000);
  }
#endif
  uint64_t* words = reinterpret_cast<uint64_t*>(line) + 2 * part;
  storeRelaxed(words, wordOf(first));
  if (part != 7) storeRelaxed(words + 1, wordOf(second));
}
/// Before: the flag alone.
TUTTI_DEVICE bool loadLinePart(const LineLL128* line, uint32_t part, uint64_t flag, Chunk<8>*, Chunk<8>*) {
  return part != 7 || loadAcquire(&line->flag) == flag;
}
TUTTI_DEVICE void afterFlags() { __syncwarp(); }
TUTTI_DEVICE void loadLineData(const LineLL128* line, uint32_t part, Chunk<8>* first, Chunk<8>* second) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(line) + 2 * part;
  *first = chunkOf(loadRelaxed(words));
  *second = chunkOf(loadRelaxed(words + 1));
}

#else

TUTTI_DEVICE void storeLine(LineLL* line, const Chunk<8>& data, uint32_t flag, bool) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(line)),
               "r"(data.words[0]), "r"(flag), "r"(data.words[1]), "r"(flag)
               : "memory");
}
TUTTI_DEVICE bool loadLine(const LineLL* line, uint32_t flag, Chunk<8>* data, bool) {
  uint32_t flag1;
  uint32_t flag2;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(data->words[0]), "=r"(flag1), "=r"(data->words[1]), "=r"(flag2)
               : "l"(__cvta_generic_to_global(line))
               : "memory");
  return flag1 == flag && flag2 == flag;
}

TUTTI_DEVICE void storeLineFlag(LineLL128*, uint32_t, uint64_t) {}
TUTTI_DEVICE void beforeFlags() {}
TUTTI_DEVICE void storeLinePart(LineLL128* line, uint32_t part, uint64_t flag, const Chunk<8>& first,
                                const Chunk<8>& second) {
  Chunk<8> last = second;
  if (part == 7) std::memcpy(&last, &flag, 8);
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                   __cvta_generic_to_global(reinterpret_cast<std::byte*>(line) + 16 * part)),
               "r"(first.words[0]), "r"(first.words[1]), "r"(last.words[0]), "r"(last.words[1])
               : "memory");
}
TUTTI_DEVICE bool loadLinePart(const LineLL128* line, uint32_t part, uint64_t flag, Chunk<8>* first,
                               Chunk<8>* second) {
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(first->words[0]), "=r"(first->words[1]), "=r"(second->words[0]), "=r"(second->words[1])
               : "l"(__cvta_generic_to_global(reinterpret_cast<const std::byte*>(line) + 16 * part))
               : "memory");
  uint64_t last;
  std::memcpy(&last, second, 8);
  return part != 7 || last == flag;
}
TUTTI_DEVICE void afterFlags() {}
TUTTI_DEVICE void loadLineData(const LineLL128*, uint32_t, Chunk<8>*, Chunk<8>*) {}

#endif

}  // namespace tutti::device::TUTTI_KERNELS

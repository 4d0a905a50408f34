#include "common/collective.h"

namespace tutti::perf {

size_t blockElements(size_t elements, size_t typeBytes, int ranks) {
  const size_t block = elements / static_cast<size_t>(ranks);
  const size_t unit = 16 / typeBytes;
  return block >= unit ? block / unit * unit : block;
}

}  // namespace tutti::perf

// Counts what the calling thread allocates with new.
#pragma once

#include <cstddef>

namespace tutti::test {

/// False in sanitizer builds, which have allocators of their own.
bool countsAllocations();
size_t allocationsOfThread();

}  // namespace tutti::test

// A host runtime for these tests that has memory only: real memory files, found through the real symbol.
#pragma once

#include <cstddef>

namespace tutti::test {

/// Memory in a file of its own, as the host runtime's memoryAllocate gives it.
void* allocateInFile(size_t bytes);
void freeInFile(void* pointer);

}  // namespace tutti::test

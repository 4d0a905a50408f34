#include <dlfcn.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "hostrt/support.h"

namespace {

/// "name@@version" of every exported symbol.
std::set<std::string> exportsOf(const std::string& library) {
  const Outcome outcome = runCommand("nm -D --defined-only " + library + " | awk '{print $3}'");
  std::set<std::string> names;
  size_t begin = 0;
  for (size_t end; (end = outcome.output.find('\n', begin)) != std::string::npos; begin = end + 1)
    names.insert(outcome.output.substr(begin, end - begin));
  return names;
}

std::set<std::string> committedExports() {
  std::ifstream file(TUTTI_SOURCE_DIR "/src/hostrt/symbols.txt");
  std::set<std::string> names;
  for (std::string name; file >> name;) names.insert(name + "@@libcudart.so.13");
  names.insert("libcudart.so.13");
  return names;
}

}  // namespace

TEST(Symbols, AreThoseOfTheCommittedListPlusTheTable) {
  auto expected = committedExports();
  ASSERT_GT(expected.size(), 400u);
  expected.insert("tuttiHostRuntime_v1_get@@libcudart.so.13");
  expected.insert("tuttiKernelTwins_v1_get@@libcudart.so.13");
  EXPECT_EQ(exportsOf(HOSTRT_LIBRARY), expected);
}

TEST(Symbols, OfTheToolkitAreTheCommittedList) {
#ifdef HOSTRT_TOOLKIT_LIBRARY
  EXPECT_EQ(exportsOf(HOSTRT_TOOLKIT_LIBRARY), committedExports());
#else
  GTEST_SKIP() << "no libcudart.so.13 of a CUDA toolkit was found when this was configured";
#endif
}

TEST(Symbols, OfTheLibraryWithoutCudaAreTheTableAlone) {
  const std::set<std::string> expected = {"tuttiHostRuntime_v1_get@@tutti_hostrt_1",
                                          "tuttiKernelTwins_v1_get@@tutti_hostrt_1", "tutti_hostrt_1"};
  EXPECT_EQ(exportsOf(HOSTRT_TABLE_LIBRARY), expected);
}

TEST(Symbols, BothLibrariesCarryTheirSoname) {
  const auto soname = [](const std::string& library) {
    return runCommand("readelf -d " + library + " | grep SONAME").output;
  };
  EXPECT_NE(soname(HOSTRT_LIBRARY).find("[libcudart.so.13]"), std::string::npos);
  EXPECT_NE(soname(HOSTRT_TABLE_LIBRARY).find("[libtutti_hostrt.so.1]"), std::string::npos);
}

TEST(Symbols, TheTableServesProgramsWithoutCuda) {
  void* library = ::dlopen(HOSTRT_TABLE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << ::dlerror();
  const auto get = reinterpret_cast<tuttiHostRuntimeGet_t>(::dlsym(library, TUTTI_HOST_RUNTIME_SYMBOL));
  ASSERT_TRUE(get);
  const tuttiHostRuntime_v1* table = get();
  EXPECT_NE(table, tuttiHostRuntime_v1_get()) << "the two libraries share a symbol that should be local";
  EXPECT_EQ(table->size, sizeof(tuttiHostRuntime_v1));
  EXPECT_EQ(table->version, 1u);
  void* pointer = nullptr;
  ASSERT_EQ(table->memoryAllocate(0, 100, &pointer), 0);
  EXPECT_EQ(tuttiHostRuntime_v1_get()->memoryFree(pointer), EINVAL) << "one runtime knows the other's memory";
  EXPECT_EQ(table->memoryFree(pointer), 0);
}

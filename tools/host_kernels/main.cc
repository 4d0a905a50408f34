// tutti-host-kernels: preprocessed CUDA C++ in, C++ for the host compiler out. Called by tutti_add_host_kernels.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "host_kernels/translate.h"

namespace {

int fail(const std::string& message) {
  std::cerr << "tutti-host-kernels: " << message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return fail("usage: tutti-host-kernels PREPROCESSED OUTPUT (see docs/virtual-gpus.md)");
  std::ifstream input(argv[1], std::ios::binary);
  if (!input) return fail(std::string("cannot read ") + argv[1]);
  const std::string source((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
  auto tokens = tutti::hostkernels::tokenize(source);
  const auto messages = tutti::hostkernels::translate(tokens);
  for (const std::string& message : messages) std::cerr << message << "\n";
  if (!messages.empty()) return 1;
  std::ofstream output(argv[2], std::ios::binary);
  output << tutti::hostkernels::join(tokens);
  output.close();
  return output ? 0 : fail(std::string("cannot write ") + argv[2]);
}

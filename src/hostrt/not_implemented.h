#pragma once

namespace tutti::hostrt {

/// What every function of the real library does that has no body here (symbols.txt, stubs.cc in the build
/// folder): says on stderr, once for each name, that it is missing, and returns cudaErrorNotSupported.
int notImplemented(const char* name);

}  // namespace tutti::hostrt

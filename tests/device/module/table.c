/* A host runtime's symbol in a library of its own; TABLE_VERSION says how well it fits. */
#include "base/host_runtime.h"

__attribute__((visibility("default"))) const tuttiHostRuntime_v1* tuttiHostRuntime_v1_get(void) {
  static tuttiHostRuntime_v1 table;
  table.size = sizeof(table);
  table.version = TABLE_VERSION;
  return &table;
}

// Defines TUTTI_ADD_KERNELS(table): calls addTypes() of every instruction set that this file was compiled
// for. Included once, at the end of a kernel file. In place of HWY_EXPORT, whose tables need Highway's shared
// library.
namespace tutti {

void TUTTI_ADD_KERNELS(KernelTable* table) {
#if HWY_TARGETS & HWY_AVX3
  N_AVX3::addTypes(table);
#endif
#if HWY_TARGETS & HWY_AVX2
  N_AVX2::addTypes(table);
#endif
#if HWY_TARGETS & HWY_SSE4
  N_SSE4::addTypes(table);
#endif
#if HWY_TARGETS & HWY_NEON
  N_NEON::addTypes(table);
#endif
#if HWY_TARGETS & HWY_EMU128
  N_EMU128::addTypes(table);
#endif
#if HWY_TARGETS & HWY_SCALAR
  N_SCALAR::addTypes(table);
#endif
}

}  // namespace tutti
#undef TUTTI_ADD_KERNELS

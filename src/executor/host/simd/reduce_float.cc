// Reductions of float and double.
#include <limits>

#include "executor/host/simd/kernel_table.h"
#include "executor/host/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "executor/host/simd/reduce_float.cc"
#include <hwy/foreach_target.h>

#include "executor/host/simd/kernel_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti {
namespace HWY_NAMESPACE {
namespace {

template <typename T>
class Float {
 public:
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr int kUnroll = 4;
  static constexpr size_t lanes() { return HWY_LANES(T); }

  HWY_INLINE explicit Float(const KernelArguments& a) : scale_(static_cast<T>(a.scale)) {}

  HWY_INLINE V load(const T* p) const { return hn::LoadU(D(), p); }
  HWY_INLINE void store(V v, T* p) const { hn::StoreU(v, D(), p); }
  HWY_INLINE void stream(V v, T* p) const { hn::Stream(v, D(), p); }
  HWY_INLINE V loadPart(const T* p, size_t count) const { return loadPartOf(D(), p, count); }
  HWY_INLINE void storePart(V v, T* p, size_t count) const { storePartOf(D(), v, p, count); }
  HWY_INLINE V scale(V v) const { return hn::Mul(v, hn::Set(D(), scale_)); }
  HWY_INLINE V finish(V v) const { return canonicalNan(D(), v); }
  template <Reduction op>
  static HWY_INLINE V combine(V a, V b) {
    return combineFloats<op>(D(), a, b);
  }

 private:
  T scale_;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti
HWY_AFTER_NAMESPACE();

namespace tutti {
namespace HWY_NAMESPACE {
namespace {

void addTypes(KernelTable* table) {
  auto* rows = table->kernels[static_cast<int>(thisTarget())];
  addType<Float<float>>(rows, ncclFloat32);
  addType<Float<double>>(rows, ncclFloat64);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace tutti

#if HWY_ONCE
#define TUTTI_ADD_KERNELS addFloatKernels
#include "executor/host/simd/add_targets-inl.h"
#endif

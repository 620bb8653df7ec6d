// Helpers for the tests on a GPU: a GPU and a CPU device, arrays on both devices, and calls that run on both devices so
// that their results can be compared.
//
// Inputs are first rounded to the type of the array on the GPU. The CPU's kernels then get the rounded values in
// double. The comparison therefore measures only the rounding errors of the GPU's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/kernels.h"

namespace tessera::testing {

// A CPU device and a GPU, each with its kernels.
struct Rig {
  ThreadPool pool{2};
  std::unique_ptr<Device> cpu = make_cpu_device(pool);
  std::unique_ptr<Kernels> cpu_kernels = make_kernels(*cpu);
  std::unique_ptr<Device> gpu = make_cuda_device(0);
  std::unique_ptr<Kernels> gpu_kernels = make_kernels(*gpu);
};

// Returns the only Rig of the program. All tests share it, because a GPU's context takes time to create.
inline Rig& rig() {
  static Rig only;
  return only;
}

// Half the distance from 1 to the next value of a type: the largest relative error of one rounding.
inline double roundoff(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    case DType::f64:
      return 0x1p-53;
    default:
      return 0x1p-24;
  }
}
// The roundoff of the type in which the GPU computes with elements of type `dtype`: f64 for f64, otherwise f32.
inline double arithmetic_roundoff(DType dtype) {
  return dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
}
// The type of the statistics, such as rstd or log_sum_exp, of an array of type `dtype`.
inline DType statistics_of(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

// Returns `count` values that are uniform in [−1, 1].
inline std::vector<double> random_values(int64_t count, uint64_t seed) {
  RandomStream random(seed, 11);
  std::vector<double> values(static_cast<size_t>(count));
  for (double& x : values) x = 2 * random.next_uniform() - 1;
  return values;
}

// An array on both devices: in type `dtype` on the GPU, and in double on the CPU. Integers have the same type on both.
class Tensor {
 public:
  // Rounds `values` to `dtype`. Without `values`, all elements are NaN. This is for results, which a kernel must
  // overwrite.
  Tensor(DType dtype, Shape shape, std::vector<double> values = {}) : dtype_(dtype), shape_(shape) {
    const auto count = static_cast<size_t>(shape.num_elems());
    if (values.empty()) values.assign(count, NAN);
    EXPECT_EQ(values.size(), count);
    initial_.resize(count * size_of(dtype));
    host_.resize(count);
    convert(values.data(), DType::f64, initial_.data(), dtype, count);
    convert(initial_.data(), dtype, host_.data(), DType::f64, count);
    allocate();
  }
  template <typename T>
  requires std::is_integral_v<T>
  explicit Tensor(const std::vector<T>& values) : dtype_(dtype_of<T>()), shape_{static_cast<int64_t>(values.size())} {
    initial_.resize(values.size() * sizeof(T));
    std::memcpy(initial_.data(), values.data(), initial_.size());
    integers_ = initial_;
    allocate();
  }

  View gpu() const { return buffer_.view(shape_, dtype_); }
  View cpu() {
    if (!integers_.empty()) return {integers_.data(), dtype_, shape_};
    return view_of(host_.data(), shape_);
  }
  // Writes the initial contents to the GPU again.
  void reset() { rig().gpu->copy_from_host(initial_.data(), gpu()); }
  std::vector<std::byte> bits() const {
    std::vector<std::byte> bits(initial_.size());
    rig().gpu->copy_to_host(gpu(), bits.data());
    return bits;
  }
  std::vector<double> values() const {
    const auto raw = bits();
    std::vector<double> values(host_.size());
    convert(raw.data(), dtype_, values.data(), DType::f64, values.size());
    return values;
  }
  double largest() const {
    double largest = 0;
    for (const double x : host_) largest = std::max(largest, std::abs(x));
    return largest;
  }
  // Expects |GPU − CPU| ≤ tolerance for every element. A NaN fails the test.
  void expect_close(double tolerance, const char* what) const {
    const auto actual = values();
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_LE(std::abs(actual[i] - host_[i]), tolerance)
          << what << " [" << i << "] of " << actual.size() << ": " << actual[i] << " instead of " << host_[i];
    }
  }
  void expect_same_integers(const char* what) const { EXPECT_EQ(bits(), integers_) << what; }
  const std::vector<double>& expected() const { return host_; }
  DType dtype() const { return dtype_; }

 private:
  void allocate() {
    buffer_ = rig().gpu->allocate(static_cast<int64_t>(initial_.size()), Category::activations);
    reset();
  }

  DType dtype_;
  Shape shape_;
  std::vector<std::byte> initial_, integers_;
  std::vector<double> host_;
  Buffer buffer_;
};

inline Tensor random_tensor(DType dtype, Shape shape, uint64_t seed) {
  return Tensor(dtype, shape, random_values(shape.num_elems(), seed));
}

// One of the two devices. Call it with a tensor to get the view of this tensor on this device. A null pointer gives an
// empty view.
struct Side {
  bool gpu;
  View operator()(Tensor& tensor) const { return gpu ? tensor.gpu() : tensor.cpu(); }
  View operator()(Tensor* tensor) const { return tensor ? (*this)(*tensor) : View{}; }
};

// Runs `call` twice on the GPU and once on the CPU in double. Both runs on the GPU must give the same bits. `tensors`
// are the tensors that the call changes; null pointers are skipped.
inline void on_both(std::initializer_list<Tensor*> tensors, const std::function<void(Kernels&, const Side&)>& call) {
  std::vector<std::vector<std::byte>> first;
  call(*rig().gpu_kernels, {true});
  for (const Tensor* tensor : tensors) first.push_back(tensor ? tensor->bits() : std::vector<std::byte>());
  for (Tensor* tensor : tensors) {
    if (tensor) tensor->reset();
  }
  call(*rig().gpu_kernels, {true});
  size_t i = 0;
  for (const Tensor* tensor : tensors) {
    const bool same = !tensor || tensor->bits() == first[i];
    EXPECT_TRUE(same) << "result " << i << " differs when repeated";
    ++i;
  }
  call(*rig().cpu_kernels, {false});
}

// Returns `count` row ids for dropout. They are the row numbers 0, 1, 2, …, scaled and shifted, so that no id equals
// its row number.
inline std::vector<int64_t> row_ids(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = 1000003 * i + (int64_t{1} << 33);
  return ids;
}

// A test that runs for every floating-point type.
class TypedTest : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }
  DType stats() const { return statistics_of(dtype()); }
  // The gradients of 16-bit parameters may have the parameters' type or f32. Tests use both types.
  std::vector<DType> gradient_types() const {
    if (size_of(dtype()) == 2) return {dtype(), DType::f32};
    return {dtype()};
  }
};
#define TESSERA_FOR_ALL_TYPES(Suite)                                                                         \
  INSTANTIATE_TEST_SUITE_P(Types, Suite, ::testing::Values(DType::f32, DType::f64, DType::f16, DType::bf16), \
                           [](const auto& values) { return std::string(name_of(values.param)); })

}  // namespace tessera::testing

#include "tessera/ops/cuda/column_sums.h"

#include "gpu_testing.h"
#include "tessera/ops/cuda/cuda_kernels.h"

namespace tessera::testing {
namespace {

class ColumnSumsTest : public TypedTest {};
TESSERA_FOR_ALL_TYPES(ColumnSumsTest);

TEST_P(ColumnSumsTest, AreAddedToOneOrTwoArrays) {
  const cuda::CudaKernels kernels(*rig().gpu, false, cuda::code_major_for_this_gpu());
  std::vector<DType> sum_types = gradient_types();
  if (dtype() == DType::f32) sum_types = {DType::f32, DType::f16, DType::bf16};
  // Together, these sizes cover all cases of the kernel:
  // - A thread loads one element or several elements at a time.
  // - One thread block sums all columns, or several thread blocks share the columns.
  // - A thread block sums kColumns or kWideColumns columns.
  // - The rows are summed in one part or in several parts.
  for (const auto& [N, C] :
       {std::pair<int64_t, int64_t>{1, 8}, {3, 5}, {700, 72}, {300, 4104}, {4096, 40}, {4099, 200}, {9000, 37}}) {
    for (const DType sum_type : sum_types) {
      for (const int64_t first : {C, C / 2}) {
        SCOPED_TRACE(::testing::Message() << N << "x" << C << " " << name_of(sum_type) << ", first " << first);
        Tensor x = random_tensor(dtype(), {N, C}, 1), sums = random_tensor(sum_type, {first}, 2),
               others = random_tensor(sum_type, {C - first + 1}, 3);
        const std::vector<double> values = x.expected();
        std::vector<double> expected = sums.expected();
        for (int64_t c = first; c < C; ++c) expected.push_back(others.expected()[static_cast<size_t>(c - first)]);
        for (int64_t i = 0; i < N * C; ++i) expected[static_cast<size_t>(i % C)] += values[static_cast<size_t>(i)];
        const View second = first < C ? View{others.gpu().data, sum_type, {C - first}} : View{};
        const cuda::ColumnSums all{x.gpu(), sums.gpu(), second};
        cuda::add_column_sums(kernels.context(), {&all, 1});
        std::vector<double> actual = sums.values();
        const std::vector<double> rest = others.values();
        actual.insert(actual.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(C - first));
        EXPECT_EQ(rest.back(), others.expected().back()) << "the element past the end has changed";
        // The factor is 2, because the expected sums also have rounding errors: they are computed in f64. This matters
        // only if dtype() is f64.
        const double tolerance = 2 * arithmetic_roundoff(dtype()) * static_cast<double>(N);
        for (size_t c = 0; c < actual.size(); ++c) {
          ASSERT_NEAR(actual[c], expected[c], tolerance + roundoff(sum_type) * std::abs(expected[c])) << "column " << c;
        }
      }
    }
  }
}

// One call for two arrays gives the same bits as one call per array under two conditions. In all three calls, a thread
// must load the same number of elements at a time, and a thread block must sum the same number of columns. Both
// conditions are true for each pair of arrays here.
TEST_P(ColumnSumsTest, OfSeveralArraysTogether) {
  Kernels& k = *rig().gpu_kernels;
  for (const int64_t N : {700, 5000}) {
    for (const auto& [first, second] : {std::pair<int64_t, int64_t>{72, 40}, {37, 61}, {32, 1024}, {5120, 4104}}) {
      for (const DType gradient : gradient_types()) {
        SCOPED_TRACE(::testing::Message() << N << "x" << first << ", " << second << " " << name_of(gradient));
        const Tensor x1 = random_tensor(dtype(), {N, first}, 1), x2 = random_tensor(dtype(), {N, second}, 2);
        Tensor sums1 = random_tensor(gradient, {first}, 3), sums2 = random_tensor(gradient, {second}, 4);
        k.linear_backward_bias({{{x1.gpu(), sums1.gpu()}}});
        k.linear_backward_bias({{{x2.gpu(), sums2.gpu()}}});
        const auto one_by_one = std::pair(sums1.bits(), sums2.bits());
        sums1.reset();
        sums2.reset();
        k.linear_backward_bias({{{x1.gpu(), sums1.gpu()}, {x2.gpu(), sums2.gpu()}}});
        EXPECT_EQ(std::pair(sums1.bits(), sums2.bits()), one_by_one);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing

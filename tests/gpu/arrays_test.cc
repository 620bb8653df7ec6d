#include "gpu_testing.h"
#include "tessera/base/nf4.h"
#include "tessera/base/quantized_moments.h"

namespace tessera::testing {
namespace {

class ArraysTest : public TypedTest {};
TESSERA_FOR_ALL_TYPES(ArraysTest);

constexpr int64_t kCounts[] = {1, 7, 64, 1000, 100003};

TEST_P(ArraysTest, FillConvertAdd) {
  for (const int64_t n : kCounts) {
    Tensor x(dtype(), {n}), y(dtype(), {n});
    on_both({&x, &y}, [&](Kernels& k, const Side& at) {
      k.fill(at(x), -1.5);
      k.convert(at(x), at(y));
    });
    x.expect_close(0, "fill");
    y.expect_close(0, "convert to its own type");
    on_both({&x}, [&](Kernels& k, const Side& at) { k.fill(at(x), 0); });
    x.expect_close(0, "fill with 0");

    Tensor from = random_tensor(dtype(), {n}, 1);
    for (const DType to : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      Tensor result(to, {n});
      rig().gpu_kernels->convert(from.gpu(), result.gpu());
      Tensor expected(to, {n}, from.expected());  // the host rounds
      EXPECT_EQ(result.bits(), expected.bits()) << name_of(to);
    }
    for (const DType type : gradient_types()) {
      Tensor sum = random_tensor(type, {n}, 2);
      on_both({&sum}, [&](Kernels& k, const Side& at) { k.add(at(from), at(sum)); });
      sum.expect_close(2 * roundoff(type), "add");
    }
  }
}

TEST_P(ArraysTest, Dequantize) {
  ThreadPool pool(2);
  for (const int64_t n : {int64_t{1}, int64_t{63}, int64_t{16384}, int64_t{16392}, int64_t{100003}}) {
    const Tensor weights = random_tensor(DType::f32, {n}, 4);
    const std::vector<double> drawn = weights.expected();
    std::vector<Nf4Group> groups(static_cast<size_t>(nf4_groups(n)));
    Nf4Quantizer(pool).quantize(
        "w", n, 0, nf4_groups(n),
        [&](int64_t begin, int64_t end, float* values) {
          for (int64_t i = begin; i < end; ++i) *values++ = static_cast<float>(drawn[static_cast<size_t>(i)]);
        },
        groups.data());
    const auto count = static_cast<int64_t>(groups.size());
    const View on_host{reinterpret_cast<std::byte*>(groups.data()), DType::nf4, {count}};
    const Buffer buffer = rig().gpu->allocate(on_host.bytes(), Category::workspace);
    const View on_gpu = buffer.view({count}, DType::nf4);
    rig().gpu->copy_from_host(on_host.data, on_gpu);
    std::vector<float> values(static_cast<size_t>(n));
    dequantize_nf4(groups.data(), 0, n, values.data());
    for (const int64_t offset : {0, 1}) {  // aligned or not
      std::vector<double> rounded(static_cast<size_t>(offset), 0.5);
      rounded.insert(rounded.end(), values.begin(), values.end());
      Tensor result(dtype(), {n + offset}, std::vector<double>(rounded.size(), 0.5)),
          expected(dtype(), {n + offset}, rounded);
      rig().gpu_kernels->dequantize(on_gpu, result.gpu().rows(offset, n + offset));
      EXPECT_EQ(result.bits(), expected.bits()) << n;
    }
  }
}

TEST_P(ArraysTest, PartsThatAreNotAligned) {
  Tensor x = random_tensor(dtype(), {257, 3}, 1), sum = random_tensor(dtype(), {257, 3}, 2);
  on_both({&sum}, [&](Kernels& k, const Side& at) { k.add(at(x).rows(1, 257), at(sum).rows(1, 257)); });
  sum.expect_close(2 * roundoff(dtype()), "add");
}

TEST_P(ArraysTest, SumOfSquares) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{300007}}) {
    Tensor x = random_tensor(dtype(), {std::max<int64_t>(n, 1)}, 3), sum(DType::f64, {1}, {2.5});
    on_both({&sum}, [&](Kernels& k, const Side& at) { k.add_sum_of_squares(at(x).rows(0, n), at(sum)); });
    // The CPU and the GPU both sum in double, but in different orders.
    sum.expect_close(static_cast<double>(n + 4) * 0x1p-53 * sum.largest(), "sum");
  }
  // One call gets 100 arrays. The first one is empty. One launch supports only 64 arrays. The sums must have the same
  // bits as after one call per array.
  const Tensor x = random_tensor(dtype(), {300007}, 3);
  const std::vector<double> start(100, 2.5);
  Tensor together(DType::f64, {100}, start), one_by_one(DType::f64, {100}, start);
  std::vector<View> arrays;
  for (int64_t begin = 0, i = 0; i < 100; ++i) {
    const int64_t end = begin + i * i % 6000;
    arrays.push_back(x.gpu().rows(begin, end));
    rig().gpu_kernels->add_sum_of_squares(arrays.back(), one_by_one.gpu().rows(i, i + 1));
    begin = end % 200000;
  }
  rig().gpu_kernels->add_sums_of_squares(arrays, together.gpu());
  EXPECT_EQ(together.bits(), one_by_one.bits());
}

// The CPU uses polynomials, and the GPU uses its math library, so their draws differ by a few ulps. Draws from N(0, 1)
// have a magnitude of at most 6. Normal elements (0.5 + 2 · draw) therefore have a magnitude of about 12, and uniform
// elements of at most 3. Rounding to the type adds an error of at most this magnitude times the roundoff.
TEST_P(ArraysTest, RandomNumbersMatchTheCpu) {
  constexpr int64_t kCount = 1001;
  for (const int64_t first : {int64_t{0}, int64_t{5}, (int64_t{1} << 33) + 2}) {
    Tensor normal(dtype(), {kCount}), uniform(dtype(), {kCount});
    on_both({&normal, &uniform}, [&](Kernels& k, const Side& at) {
      k.fill_normal(at(normal), 0.5, 2, 42, 3, first);
      k.fill_uniform(at(uniform), -3, 1, 42, 4, first);
    });
    const double float_error = 0x1p-18;  // 4 ulps of an f32 near 12, because draws are f32 for every type
    normal.expect_close(12 * roundoff(dtype()) + float_error, "normal");
    uniform.expect_close(3 * roundoff(dtype()) + float_error, "uniform");
  }
}

// An f32 can be stored as a 16-bit value and a rest: the part of the f32 that the 16-bit value loses. join() computes
// the f32 from both. The GPU can fill an array with the rests of a constant or of random numbers, or convert f32 values
// to rests. The test computes the rests and join() on the host, too, and expects the same bits.
class RestTest : public TypedTest {};
INSTANTIATE_TEST_SUITE_P(Types, RestTest, ::testing::Values(DType::f16, DType::bf16),
                         [](const auto& values) { return std::string(name_of(values.param)); });

TEST_P(RestTest, EqualsTheHosts) {
  constexpr int64_t kCount = 1003;
  const Buffer buffers[] = {rig().gpu->allocate(4 * kCount, Category::activations),
                            rig().gpu->allocate(2 * kCount, Category::activations),
                            rig().gpu->allocate(2 * kCount, Category::activations)};
  const DType rest_dtype = rest_of(dtype());
  const View x = buffers[0].view({kCount}, DType::f32), narrow = buffers[1].view({kCount}, dtype()),
             rest = buffers[2].view({kCount}, rest_dtype);
  const auto bytes_of = [](View view) {
    std::vector<std::byte> bytes(static_cast<size_t>(view.bytes()));
    rig().gpu->copy_to_host(view, bytes.data());
    return bytes;
  };
  Kernels& ops = *rig().gpu_kernels;
  const auto fill_all = [&](const auto& fill) {
    for (const View& view : {x, narrow, rest}) fill(view);
  };
  const auto expect_rest = [&](const char* what) {
    const std::vector<std::byte> complete = bytes_of(x);
    std::vector<std::byte> expected(2 * kCount), joined(4 * kCount);
    convert(complete.data(), DType::f32, expected.data(), rest_dtype, kCount);
    EXPECT_EQ(bytes_of(rest), expected) << what;
    const std::vector<std::byte> upper = bytes_of(narrow);
    join(reinterpret_cast<const uint16_t*>(upper.data()), reinterpret_cast<const int16_t*>(expected.data()), rest_dtype,
         reinterpret_cast<float*>(joined.data()), kCount);
    ops.join(narrow, rest, x);
    EXPECT_EQ(bytes_of(x), joined) << what;
  };
  fill_all([&](View view) { ops.fill(view, 0.1); });
  expect_rest("fill");
  fill_all([&](View view) { ops.fill_normal(view, 0.5, 2, 42, 3, 5); });
  expect_rest("fill_normal");
  for (const double scale : {1.0, 1e-4, 1e-5, 1e-6}) {  // with small scales, many f16 values are subnormal or zero
    ops.fill_uniform(x, -3 * scale, scale, 42, 4, 0);
    ops.convert(x, narrow);
    ops.convert(x, rest);
    expect_rest("convert");
  }
}

class RowsTest : public TypedTest {};
TESSERA_FOR_ALL_TYPES(RowsTest);

TEST_P(RowsTest, GatherAndScatter) {
  for (const int64_t channels : {1, 5, 64, 1024}) {
    Tensor x = random_tensor(dtype(), {50, channels}, 1), y(dtype(), {4, channels}), z(dtype(), {50, channels});
    Tensor rows(std::vector<int32_t>{49, 0, 7, 8});
    on_both({&y, &z}, [&](Kernels& k, const Side& at) {
      k.gather_rows(at(x), at(rows), at(y));
      k.scatter_rows(at(y), at(rows), at(z));
    });
    y.expect_close(0, "gather");
    z.expect_close(0, "scatter");
  }
}

TEST_P(RowsTest, EmbeddingBackwardAddsRowsOfEqualIds) {
  for (const DType gradient : gradient_types()) {
    for (const int64_t num_rows : {1, 33, 700, 9000}) {  // 9000 rows are more than one chunk (8192 rows)
      for (const int64_t channels : {3, 64, 600}) {
        constexpr int64_t kVocabulary = 300;
        RandomStream random(5, static_cast<uint64_t>(num_rows));
        std::vector<int32_t> ids;
        std::vector<int> counts(kVocabulary);
        for (int64_t i = 0; i < num_rows; ++i) {
          ids.push_back(static_cast<int32_t>(i % 3 == 0 ? 7 : random.next_below(kVocabulary)));
          ++counts[static_cast<size_t>(ids.back())];
        }
        if (num_rows > 1000 && channels > 100) continue;  // slow, and checks nothing more
        Tensor id(ids), d_y = random_tensor(dtype(), {num_rows, channels}, 1),
                        d_weight = random_tensor(gradient, {kVocabulary, channels}, 2);
        on_both({&d_weight}, [&](Kernels& k, const Side& at) { k.embedding_backward(at(id), at(d_y), at(d_weight)); });
        const double most = *std::max_element(counts.begin(), counts.end());
        const double chunks = static_cast<double>(num_rows) / 8192 + 1;
        // Each chunk rounds an element of d_weight once to its type. Up to `most` rows of d_y, with values of at most
        // 1, are added to an element, and each addition has an error of at most `most` times the roundoff.
        d_weight.expect_close(
            chunks * roundoff(gradient) * d_weight.largest() + most * most * arithmetic_roundoff(dtype()), "d_weight");
      }
    }
  }
}

TEST(AdamW, EqualsTheCpu) {
  for (const DType type : {DType::f32, DType::f64}) {
    for (const DType gradient : {DType::f32, DType::f16, DType::bf16}) {
      if (type == DType::f64 && gradient != DType::f32) continue;
      constexpr int64_t kCount = 10007;
      Tensor p = random_tensor(type, {kCount}, 1), g = random_tensor(type == DType::f64 ? type : gradient, {kCount}, 2),
             m = random_tensor(type, {kCount}, 3);
      std::vector<double> squares = random_values(kCount, 4);
      for (double& v : squares) v = v * v + 1e-4;
      Tensor v(type, {kCount}, squares);
      AdamWStep step;
      step.learning_rate = 1e-2;
      step.weight_decay = 0.1;
      step.bias_correction1 = 1 - 0.9;
      step.bias_correction2 = 1 - 0.999;
      step.gradient_scale = 0.25;
      step.num_decayed = 5001;
      on_both({&p, &m, &v}, [&](Kernels& k, const Side& at) {
        k.adamw({.parameters = at(p), .gradients = at(g), .m = at(m), .v = at(v)}, step);
      });
      // With bias corrections bc₁ = 0.1 and bc₂ = 0.001, |m| ≤ 1 and √v ≥ 0.01, the update of a parameter is at most
      // (lr / bc₁)·√bc₂·|m| / √v = 0.1·0.032·1 / 0.01 = 0.32. All values therefore have a magnitude of at most about 1.
      // The tolerances allow for 12 roundings of a parameter, and for 8 roundings of a moment.
      p.expect_close(12 * roundoff(type), "parameters");
      m.expect_close(8 * roundoff(type), "m");
      v.expect_close(8 * roundoff(type), "v");
    }
  }
}

// The bits of parameters, moments and rests do not depend on the device that updates them. The test runs five updates
// on both devices, with values of all magnitudes, including subnormal values.
TEST(AdamW, ComputesTheBitsOfTheCpu) {
  constexpr int64_t kCount = 100003;
  for (const DType gradient : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(std::string(name_of(gradient)) + " " + name_of(type));
      const bool split = type != DType::f32;
      struct Array {
        Array(DType type, std::vector<double> values)
            : dtype(type),
              bits(values.size() * size_of(type)),
              on_gpu(rig().gpu->allocate(std::ssize(bits), Category::activations)) {
          convert(values.data(), DType::f64, bits.data(), type, values.size());
          rig().gpu->copy_from_host(bits.data(), gpu());
        }
        View cpu() { return {bits.data(), dtype, {kCount}}; }
        View gpu() const { return on_gpu.view({kCount}, dtype); }
        std::vector<std::byte> gpu_bits() const {
          std::vector<std::byte> result(bits.size());
          rig().gpu->copy_to_host(gpu(), result.data());
          return result;
        }
        DType dtype;
        std::vector<std::byte> bits;
        Buffer on_gpu;
      };
      const auto values_of_all_sizes = [](uint64_t seed) {
        std::vector<double> values = random_values(kCount, seed);
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::ldexp(values[i], -static_cast<int>(i % 160));
        return values;
      };
      std::vector<double> squares = values_of_all_sizes(4);
      for (double& v : squares) v = std::abs(v);
      std::vector<double> parameters = random_values(kCount, 1);
      for (size_t i = 0; i < parameters.size(); ++i)
        parameters[i] = std::ldexp(parameters[i], -static_cast<int>(i % 40));
      Array p(type, parameters), g(gradient, values_of_all_sizes(2)), m(DType::f32, values_of_all_sizes(3)),
          v(DType::f32, squares), rest(split ? rest_of(type) : type, parameters);
      const View no_rest;
      for (int t = 1; t <= 5; ++t) {
        const AdamWStep step{1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, t), 1 - std::pow(0.999, t), 0.37, 50001};
        rig().cpu_kernels->adamw({.parameters = p.cpu(),
                                  .rest = split ? rest.cpu() : no_rest,
                                  .gradients = g.cpu(),
                                  .m = m.cpu(),
                                  .v = v.cpu()},
                                 step);
        rig().gpu_kernels->adamw({.parameters = p.gpu(),
                                  .rest = split ? rest.gpu() : no_rest,
                                  .gradients = g.gpu(),
                                  .m = m.gpu(),
                                  .v = v.gpu()},
                                 step);
      }
      const auto num_different = [](const Array& array) {
        const std::vector<std::byte> on_gpu = array.gpu_bits();
        int64_t count = 0;
        for (size_t i = 0; i < on_gpu.size(); ++i) count += on_gpu[i] != array.bits[i];
        return count;
      };
      EXPECT_EQ(num_different(p), 0);
      EXPECT_EQ(num_different(m), 0);
      EXPECT_EQ(num_different(v), 0);
      EXPECT_EQ(num_different(rest), 0);
    }
  }
}

// Like the previous test, but with bf16 parameters and moments. Both devices round them with the same random bits.
// first_elem is the index of the arrays' first element in the model. The GPU has two kernels for this update. One
// kernel requires that each array is aligned to 4 elements, and that first_elem is a multiple of 64. The other kernel
// is for all other arrays.
TEST(AdamW, RoundsBf16StatesLikeTheCpu) {
  const auto bits_of = [](const std::vector<double>& values, DType dtype) {
    std::vector<std::byte> bits(values.size() * size_of(dtype));
    convert(values.data(), DType::f64, bits.data(), dtype, values.size());
    return bits;
  };
  RandomStream random(3, 0);
  for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{64}, int64_t{1000}, int64_t{100003}}) {
    for (const DType gradient : {DType::f32, DType::f16, DType::bf16}) {
      for (const int64_t first_elem : {int64_t{0}, int64_t{6400}, (int64_t{1} << 34) + 64, int64_t{37}}) {
        for (const int64_t skipped : {0, 1}) {  // elements before each array in its allocation; 1: not aligned
          SCOPED_TRACE(std::string(name_of(gradient)) + " " + std::to_string(count) + " from " +
                       std::to_string(first_elem) + " skipped " + std::to_string(skipped));
          std::vector<double> p = random_values(count, 1), g = random_values(count, 2), m = random_values(count, 3),
                              v = random_values(count, 4);
          for (size_t i = 0; i < p.size(); ++i) {
            p[i] = std::ldexp(p[i], -static_cast<int>(i % 40));
            g[i] = std::ldexp(g[i], -static_cast<int>(i % 150));
            m[i] = std::ldexp(m[i], -static_cast<int>(i % 160));
            v[i] = std::ldexp(std::abs(v[i]), -static_cast<int>(i % 160));
          }
          std::vector<std::byte> cpu[] = {bits_of(p, DType::bf16), bits_of(g, gradient), bits_of(m, DType::bf16),
                                          bits_of(v, DType::bf16)};
          const DType dtypes[] = {DType::bf16, gradient, DType::bf16, DType::bf16};
          std::vector<Buffer> buffers;
          std::vector<View> gpu, host;
          for (size_t i = 0; i < 4; ++i) {
            const auto elem_bytes = static_cast<int64_t>(size_of(dtypes[i]));
            buffers.push_back(rig().gpu->allocate((count + skipped) * elem_bytes, Category::activations));
            gpu.push_back(buffers.back().view({count + skipped}, dtypes[i]).rows(skipped, skipped + count));
            host.push_back({cpu[i].data(), dtypes[i], {count}});
            rig().gpu->copy_from_host(cpu[i].data(), gpu.back());
          }
          for (int t = 1; t <= 4; ++t) {
            AdamWStep step{1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, t), 1 - std::pow(0.999, t), 0.37};
            step.num_decayed = count / 2;
            step.seed = random.next_u64();
            step.number = t;
            step.first_elem = first_elem;
            rig().cpu_kernels->adamw({.parameters = host[0], .gradients = host[1], .m = host[2], .v = host[3]}, step);
            rig().gpu_kernels->adamw({.parameters = gpu[0], .gradients = gpu[1], .m = gpu[2], .v = gpu[3]}, step);
          }
          for (const size_t i : {0, 2, 3}) {
            std::vector<std::byte> result(cpu[i].size());
            rig().gpu->copy_to_host(gpu[i], result.data());
            EXPECT_TRUE(result == cpu[i]) << "array " << i;
          }
        }
      }
    }
  }
}

// Like ComputesTheBitsOfTheCpu, but with moments in 8 bits. The GPU has two kernels for this update. One kernel
// requires that parameters and gradients are aligned to 4 elements. The other kernel is for all other arrays.
TEST(AdamW, QuantizesMomentsLikeTheCpu) {
  constexpr DType kFirst = DType::q8_signed, kSecond = DType::q8_unsigned;
  for (const int64_t num_blocks : {1, 3, 32, 33, 2500}) {
    for (const DType gradient : {DType::f32, DType::f16, DType::bf16}) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        for (const int64_t skipped : {0, 1}) {  // elements before each array in its allocation; 1: not aligned
          SCOPED_TRACE(std::string(name_of(gradient)) + " " + name_of(type) + " " + std::to_string(num_blocks) +
                       " skipped " + std::to_string(skipped));
          const int64_t count = num_blocks * kQuantizedValues;
          std::vector<double> p = random_values(count, 1), g = random_values(count, 2), m = random_values(count, 3),
                              v = random_values(count, 4);
          for (size_t i = 0; i < p.size(); ++i) {
            // Blocks of all magnitudes, with elements of all magnitudes; some blocks are zero.
            const int block = static_cast<int>(i / kQuantizedValues), size = -5 * block % 130;
            p[i] = std::ldexp(p[i], -static_cast<int>(i % 40));
            g[i] = block % 11 == 5 ? 0 : std::ldexp(g[i], size - static_cast<int>(i % 25));
            m[i] = block % 11 == 5 ? 0 : std::ldexp(m[i], size - static_cast<int>(i % 25));
            v[i] = block % 11 == 5 ? 0 : std::ldexp(std::abs(v[i]), size - static_cast<int>(i % 30));
          }
          std::vector<DType> dtypes{type, gradient};
          std::vector<std::vector<double>*> values{&p, &g};
          if (type != DType::f32) {
            dtypes.push_back(rest_of(type));
            values.push_back(&p);
          }
          std::vector<std::vector<std::byte>> cpu;
          for (size_t i = 0; i < dtypes.size(); ++i) {
            cpu.emplace_back(values[i]->size() * size_of(dtypes[i]));
            convert(values[i]->data(), DType::f64, cpu.back().data(), dtypes[i], values[i]->size());
          }
          for (const auto& [dtype, moments] : {std::pair{kFirst, &m}, std::pair{kSecond, &v}}) {
            const std::vector<float> floats(moments->begin(), moments->end());
            cpu.emplace_back(static_cast<size_t>(num_blocks) * size_of(dtype));
            quantize(floats.data(), count, dtype, cpu.back().data());
            dtypes.push_back(dtype);
          }
          std::vector<Buffer> buffers;
          std::vector<View> gpu, host;
          for (size_t i = 0; i < cpu.size(); ++i) {
            const int64_t elems = count / values_of(dtypes[i]), before = is_moment_block(dtypes[i]) ? 0 : skipped;
            const auto elem_bytes = static_cast<int64_t>(size_of(dtypes[i]));
            buffers.push_back(rig().gpu->allocate((elems + before) * elem_bytes, Category::activations));
            gpu.push_back(buffers.back().view({elems + before}, dtypes[i]).rows(before, before + elems));
            host.push_back({cpu[i].data(), dtypes[i], {elems}});
            rig().gpu->copy_from_host(cpu[i].data(), gpu.back());
          }
          const auto update = [&](Kernels& kernels, const std::vector<View>& at, const AdamWStep& step) {
            const View rest = type == DType::f32 ? View{} : at[2];
            kernels.adamw(
                {.parameters = at[0], .rest = rest, .gradients = at[1], .m = at[at.size() - 2], .v = at[at.size() - 1]},
                step);
          };
          for (int t = 1; t <= 4; ++t) {
            AdamWStep step{1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, t), 1 - std::pow(0.999, t), 0.37};
            step.num_decayed = count / 2 - 37;
            update(*rig().cpu_kernels, host, step);
            update(*rig().gpu_kernels, gpu, step);
          }
          for (size_t i = 0; i < cpu.size(); ++i) {
            std::vector<std::byte> result(cpu[i].size());
            rig().gpu->copy_to_host(gpu[i], result.data());
            int64_t num_different = 0;
            for (size_t k = 0; k < result.size(); ++k) num_different += result[k] != cpu[i][k];
            EXPECT_EQ(num_different, 0) << "array " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing

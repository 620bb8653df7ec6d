// NF4: weights in 4 bits (Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs"), as bitsandbytes
// computes them: 64 consecutive weights share a scale, the largest magnitude among them. The scales are stored in 8
// bits ("double quantization"): less their mean over the tensor, 256 of them share an f32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tessera/base/math.h"
#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"

namespace tessera {

inline constexpr int64_t kNf4BlockWeights = 64, kNf4GroupBlocks = 256;
inline constexpr int64_t kNf4GroupWeights = kNf4BlockWeights * kNf4GroupBlocks;  // 16384

// The values of the 4-bit codes, ascending.
inline constexpr std::array<float, 16> kNf4Levels = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};

// The values of the 8-bit codes of scales, ascending from −1 to 1: the signed dynamic map of bitsandbytes
// (create_dynamic_map in bitsandbytes/functional.py), with its bits. (MomentMap in quantized_moments.h rounds the same
// numbers once.)
const std::array<float, 256>& nf4_scale_map();

// The codes of zeros: two weights, and a scale that equals the mean. They fill a group beyond the end of its tensor.
inline constexpr uint8_t kNf4ZeroPair = 0x77, kNf4ZeroScale = 127;

// An element of DType::nf4. A tensor has as many groups as it needs.
//   weight i = level(code i) · scale of its block,  scale b = map(scales[b]) · scale_range + scale_mean
// All products and sums are rounded to f32, one by one.
struct alignas(16) Nf4Group {
  std::array<uint8_t, kNf4GroupWeights / 2> codes;  // two codes in a byte, the first one in the upper half
  std::array<uint8_t, kNf4GroupBlocks> scales;      // codes of the scales, less scale_mean and divided by scale_range
  float scale_range = 0;
  float scale_mean = 0;
  std::array<uint8_t, 8> unused{};
};
static_assert(sizeof(Nf4Group) == size_of(DType::nf4));

constexpr int64_t nf4_groups(int64_t num_weights) {
  return ceil_divide(num_weights, kNf4GroupWeights);
}

// Writes weights [begin, end) of a tensor to `values`.
using ReadWeights = std::function<void(int64_t begin, int64_t end, float* values)>;

// Quantizes tensors, some groups at a time.
class Nf4Quantizer {
 public:
  explicit Nf4Quantizer(ThreadPool& pool) : pool_(pool) {}
  // Quantizes the groups [first, last) of a tensor. The first call for a name reads the complete tensor, because a
  // group has the mean of all scales. This mean is rounded once; bitsandbytes sums in f32, so that its mean can differ
  // in the last bits.
  void quantize(const std::string& name, int64_t num_weights, int64_t first, int64_t last, const ReadWeights& read,
                Nf4Group* groups);

 private:
  ThreadPool& pool_;
  std::map<std::string, float> means_;  // of the scales, by tensor
};

// The weights [begin, end) of the tensor whose groups start at `groups`.
void dequantize_nf4(const Nf4Group* groups, int64_t begin, int64_t end, float* values);

// Writes the groups [first, last) of a tensor to `groups`.
using ReadNf4Groups = std::function<void(int64_t first, int64_t last, Nf4Group* groups)>;
// Writes the weights [begin, end) of a tensor to `values`, of any floating-point type. Reads some groups at a time.
void read_nf4(int64_t begin, int64_t end, const ReadNf4Groups& read, View values);

}  // namespace tessera

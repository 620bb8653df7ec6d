// Positions in UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// The offset of the first byte that is not valid UTF-8; npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// Byte offsets of code points in a valid UTF-8 text. The text must outlive this object. It stores one offset per
// kStride code points, so look-ups in a long text stay fast.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text);
  // The offset of code point `index` ≥ 0, or the text's size if it has fewer code points.
  size_t byte_offset(int64_t index) const;

 private:
  static constexpr int64_t kStride = 64;
  std::string_view text_;
  std::vector<size_t> marks_;  // offsets of every kStride-th code point
};

// Among the occurrences of `needle` in `text`, returns the offset that is nearest to `wanted`, the first on ties, or
// npos. `needle` must not be empty. Knuth-Morris-Pratt search: linear in both lengths for any content.
size_t nearest_occurrence(std::string_view text, std::string_view needle, size_t wanted);

}  // namespace tessera

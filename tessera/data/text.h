// Positions in UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// The offset of the first byte that is not valid UTF-8; std::string_view::npos if the text is valid.
size_t find_invalid_utf8(std::string_view text);

// Byte offsets of code points in a valid UTF-8 text. The text must outlive this object. The object stores the offset of
// every kStride-th code point, so look-ups in a long text stay fast.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text);
  // The offset of code point `index` ≥ 0, or the size of the text if it has no such code point.
  size_t byte_offset(int64_t index) const;

 private:
  static constexpr int64_t kStride = 64;
  std::string_view text_;
  std::vector<size_t> marks_;  // the stored offsets
};

// Returns the byte offset of the occurrence of `needle` in `text` that is nearest to the offset `wanted`. If two
// occurrences are equally near, returns the earlier one. Returns npos if `needle` does not occur. `needle` must not be
// empty. The time is proportional to the sum of both lengths for any content (Knuth-Morris-Pratt search).
size_t nearest_occurrence(std::string_view text, std::string_view needle, size_t wanted);

}  // namespace tessera

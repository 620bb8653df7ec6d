// Places in UTF-8 text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// The offset of the first byte that is no valid UTF-8; npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// Byte offsets of code points in a valid UTF-8 text, which must outlive this. A mark every so many code points keeps
// the look-ups of a long text short.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text);
  // The offset of code point `index` ≥ 0; the text's size where it has fewer.
  size_t byte_offset(int64_t index) const;

 private:
  static constexpr int64_t kStride = 64;
  std::string_view text_;
  std::vector<size_t> marks_;  // offset of every kStride-th code point
};

// The offset of the occurrence of `needle`, not empty, in `text` that begins nearest to `wanted` (on ties the first);
// npos if there is none. Knuth, Morris and Pratt's search: linear in both lengths whatever they hold.
size_t nearest_occurrence(std::string_view text, std::string_view needle, size_t wanted);

}  // namespace tessera

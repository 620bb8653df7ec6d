#include "tessera/ops/cpu/attention_shapes.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/math.h"

namespace tessera::cpu {

void AttentionTasks::plan(View starts, int64_t num_rows, int64_t num_heads, int64_t block_rows) {
  starts_ = {starts.as<int32_t>(), static_cast<size_t>(starts.num_elems())};
  TESSERA_ASSERT(!starts_.empty() && starts_.front() == 0 && starts_.back() == num_rows);
  num_heads_ = num_heads;
  const size_t num_sequences = starts_.size() - 1;
  auto length = [&](int32_t b) { return starts_[static_cast<size_t>(b) + 1] - starts_[static_cast<size_t>(b)]; };
  order_.resize(num_sequences);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(),
            [&](int32_t a, int32_t b) { return length(a) != length(b) ? length(a) > length(b) : a < b; });
  first_task_.assign(1, 0);
  for (int32_t b : order_) {
    TESSERA_ASSERT(length(b) >= 0);
    const int64_t blocks = block_rows ? ceil_divide(length(b), block_rows) : length(b) > 0;
    first_task_.push_back(first_task_.back() + blocks * num_heads);
  }
}

AttentionTasks::Task AttentionTasks::operator[](int64_t index) const {
  const auto after = std::upper_bound(first_task_.begin(), first_task_.end(), index);
  const int64_t last = *after - 1 - index;  // the number of later tasks of the same sequence
  const auto b = static_cast<size_t>(order_[static_cast<size_t>(after - first_task_.begin() - 1)]);
  return {starts_[b], starts_[b + 1] - starts_[b], last % num_heads_, last / num_heads_};
}

}  // namespace tessera::cpu

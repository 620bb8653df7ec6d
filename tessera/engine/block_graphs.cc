#include "tessera/engine/block_graphs.h"

#include <algorithm>
#include <bit>

#include "tessera/base/math.h"

namespace tessera {

int64_t padded_tokens(int64_t num_tokens) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_tokens)));
  const int64_t step = std::max<int64_t>(32, below / 16);
  return round_up(num_tokens, step);
}

BlockGraphs::BlockGraphs(Stream& compute, bool on, Timeline* timeline)
    : compute_(compute), on_(on), timeline_(on ? nullptr : timeline) {
  if (!on_) return;
  nowhere_ = make_counting_device({.kind = DeviceKind::cuda});
  no_kernels_ = make_kernels(*nowhere_);
}

void BlockGraphs::run(const Key& key, Frame& frame, const Work& work) {
  if (timeline_) {
    timeline_->begin_graph();
    work(frame);
    return timeline_->end_graph();
  }
  if (!on_) return work(frame);
  const auto [entry, is_new] = graphs_.try_emplace(key);
  if (is_new) return work(frame);  // the first call chooses kernels and loads code; a capture can do neither
  std::unique_ptr<StreamGraph>& graph = entry->second;
  if (graph) {
    Frame elsewhere = frame;
    elsewhere.ops = no_kernels_.get();
    work(elsewhere);
  } else {
    if (num_graphs_ >= most_graphs_) return work(frame);
    graph = compute_.capture([&] { work(frame); });
    ++num_graphs_;
  }
  graph->launch();
  ++num_launches_;
}

}  // namespace tessera

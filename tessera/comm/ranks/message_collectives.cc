// For each collective, two ranks first exchange a Call (which describes the collective), and then the data in pieces.
#include "tessera/comm/ranks/message_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/base/math.h"
#include "tessera/comm/sum.h"

namespace tessera {

MessageCollectives::MessageCollectives(const GroupInfo& group, std::unique_ptr<Channel> channel, View scratch)
    : Collectives(group), channel_(std::move(channel)), scratch_(scratch), calls_(static_cast<size_t>(group.size())) {}

void MessageCollectives::wait(MessageBatch& batch) {
  std::optional<StatusBoard::Waiting> status;
  const auto show = [&] {
    status.emplace(group().board, group().world_ranks[static_cast<size_t>(group().rank)], call_.to_string());
  };
  try {
    const std::vector<int> late = batch.wait(deadline(), show);
    if (!late.empty()) fail_waiting(call_, late);
  } catch (const MessageFailure& failure) {
    fail(call_, fmt::format("{} {}", names_of({failure.peer}), failure.what));
  }
}

void MessageCollectives::begin(const Call& call) {
  call_ = call;
  const auto batch = channel_->make_batch();
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    batch->receive(q, reinterpret_cast<std::byte*>(&calls_[static_cast<size_t>(q)]), sizeof(Call));
    batch->send(q, reinterpret_cast<const std::byte*>(&call_), sizeof(Call));
  }
  wait(*batch);
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    const Call& theirs = calls_[static_cast<size_t>(q)];
    if (!call_.agrees_with(theirs)) fail_disagreeing(call_, q, theirs);
  }
}

// Fills slice q of `full` with `mine` of rank q, for every other rank q.
void MessageCollectives::gather_slices(View mine, View full) {
  const auto batch = channel_->make_batch();
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    const View theirs = slice(full, q);
    batch->receive(q, theirs.data, theirs.bytes());
    batch->send(q, mine.data, mine.bytes());
  }
  wait(*batch);
}

// Sums this rank's slice of `full` over the ranks into `out`, in chunks. The transfer of a chunk overlaps the sum of
// the previous one.
void MessageCollectives::reduce(View full, View out) {
  const int size = group().size(), rank = group().rank;
  const int64_t elem = static_cast<int64_t>(size_of(full.dtype));
  const int64_t chunk = scratch_.bytes() / (2 * size) / 64 * 64;
  TESSERA_ASSERT(chunk > 0);
  const View mine = slice(full, rank);
  // The lengths of slices differ by at most one element. The longest slice sets the number of chunks for all ranks.
  const int64_t longest = ceil_divide(full.num_elems(), size) * elem;
  const int64_t num_chunks = ceil_divide(longest, chunk);
  const auto part = [&](View whole, int64_t i) {
    const int64_t begin = std::min(i * chunk, whole.bytes());
    return std::pair(whole.data + begin, std::min(chunk, whole.bytes() - begin));
  };
  const auto landing = [&](int64_t i, int peer) { return scratch_.data + ((i % 2) * size + peer) * chunk; };
  std::unique_ptr<MessageBatch> batches[2];
  const auto post = [&](int64_t i) {
    batches[i % 2] = channel_->make_batch();
    for (int q = 0; q < size; ++q) {
      if (q == rank) continue;
      const auto [theirs, theirs_bytes] = part(slice(full, q), i);
      batches[i % 2]->receive(q, landing(i, q), part(mine, i).second);
      batches[i % 2]->send(q, theirs, theirs_bytes);
    }
  };
  if (num_chunks > 0) post(0);
  std::vector<const std::byte*> inputs(static_cast<size_t>(size));
  for (int64_t i = 0; i < num_chunks; ++i) {
    if (i + 1 < num_chunks) post(i + 1);
    wait(*batches[i % 2]);
    const auto [ours, bytes] = part(mine, i);
    for (int q = 0; q < size; ++q) inputs[static_cast<size_t>(q)] = q == rank ? ours : landing(i, q);
    sum_in_order(inputs, out.data + i * chunk, bytes / elem, full.dtype);
  }
}

void MessageCollectives::all_gather(View shard, View full, const char* what) {
  begin(Call::make(Collective::all_gather, shard.dtype, full.bytes(), what));
  const View mine = slice(full, group().rank);
  if (mine.data != shard.data && shard.bytes() > 0) {
    std::memcpy(mine.data, shard.data, static_cast<size_t>(shard.bytes()));
  }
  gather_slices(shard, full);
}

void MessageCollectives::reduce_scatter(View full, View shard, const char* what) {
  begin(Call::make(Collective::reduce_scatter, full.dtype, full.bytes(), what));
  reduce(full, shard);
}

void MessageCollectives::all_reduce(View x, const char* what) {
  begin(Call::make(Collective::all_reduce, x.dtype, x.bytes(), what));
  const View mine = slice(x, group().rank);
  reduce(x, mine);
  gather_slices(mine, x);
}

void MessageCollectives::broadcast(View x, int root, const char* what) {
  begin(Call::make(Collective::broadcast, x.dtype, x.bytes(), what, root));
  const auto batch = channel_->make_batch();
  for (int q = 0; q < group().size(); ++q) {
    if (group().rank == root && q != root) batch->send(q, x.data, x.bytes());
    if (group().rank != root && q == root) batch->receive(q, x.data, x.bytes());
  }
  wait(*batch);
}

std::vector<std::string> MessageCollectives::exchange(std::string_view text, const char* what) {
  begin(Call::make(Collective::exchange, DType::u8, static_cast<int64_t>(text.size()), what));
  std::vector<std::string> texts(static_cast<size_t>(group().size()));
  texts[static_cast<size_t>(group().rank)] = text;
  const auto batch = channel_->make_batch();
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    std::string& theirs = texts[static_cast<size_t>(q)];
    theirs.resize(static_cast<size_t>(calls_[static_cast<size_t>(q)].bytes));
    batch->receive(q, reinterpret_cast<std::byte*>(theirs.data()), static_cast<int64_t>(theirs.size()));
    batch->send(q, reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(text.size()));
  }
  wait(*batch);
  return texts;
}

}  // namespace tessera

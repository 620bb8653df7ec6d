// For each collective, two ranks first exchange a Call (which describes the collective), and then the data in pieces.
// MPI keeps the order of messages between two ranks, so all messages can have the same MPI tag.
#include "tessera/comm/mpi/message_collectives.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/base/math.h"
#include "tessera/comm/sum.h"

namespace tessera {
namespace {

constexpr int64_t kMaxMessageBytes = 256 << 20;  // MPI counts bytes in an int
constexpr int kTag = 0;

// MPI makes progress only when it is polled. A peer may need our core, so polling becomes rarer the longer the wait
// lasts.
class Patience {
 public:
  // Returns whether it slept.
  bool pause() {
    ++rounds_;
    if (rounds_ < 100) return false;
    const long sleep_ns = rounds_ < 1000 ? 20'000 : 200'000;
    const timespec time{.tv_sec = 0, .tv_nsec = sleep_ns};
    nanosleep(&time, nullptr);
    return true;
  }

 private:
  int rounds_ = 0;
};

}  // namespace

MessageCollectives::MessageCollectives(const GroupInfo& group, MPI_Comm comm, View scratch)
    : Collectives(group), comm_(comm), scratch_(scratch), calls_(static_cast<size_t>(group.size())) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MessageCollectives::~MessageCollectives() {
  MPI_Comm_free(&comm_);
}

MPI_Request* MessageCollectives::Pending::add(int peer) {
  peers.push_back(peer);
  return &requests.emplace_back(MPI_REQUEST_NULL);
}

MessageCollectives::Pending::~Pending() {
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    // Open MPI cannot cancel sends. A peer may still receive such a message. If this rank has reused the memory of the
    // message by then, the peer gets wrong data. This does no harm, because that peer fails too.
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

void MessageCollectives::check(int mpi_result, int peer) {
  if (mpi_result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(mpi_result, text, &length);
  fail(call_, fmt::format("MPI failed with {}: {}", names_of({peer}), std::string(text, static_cast<size_t>(length))));
}

void MessageCollectives::send(Pending& pending, int peer, const std::byte* data, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
    const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
    check(MPI_Isend(data + begin, count, MPI_BYTE, peer, kTag, comm_, pending.add(peer)), peer);
  }
}

void MessageCollectives::receive(Pending& pending, int peer, std::byte* data, int64_t bytes) {
  for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
    const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
    check(MPI_Irecv(data + begin, count, MPI_BYTE, peer, kTag, comm_, pending.add(peer)), peer);
  }
}

void MessageCollectives::wait(Pending& pending) {
  const auto end = deadline();
  Patience patience;
  std::optional<StatusBoard::Waiting> status;
  const int count = static_cast<int>(pending.requests.size());
  std::vector<int> done(pending.requests.size());
  std::vector<MPI_Status> states(pending.requests.size());
  for (;;) {
    int num_done = 0;
    const int result = MPI_Testsome(count, pending.requests.data(), &num_done, done.data(), states.data());
    if (result == MPI_ERR_IN_STATUS) {
      for (int i = 0; i < num_done; ++i) {
        check(states[static_cast<size_t>(i)].MPI_ERROR,
              pending.peers[static_cast<size_t>(done[static_cast<size_t>(i)])]);
      }
    } else {
      check(result, group().rank);
    }
    if (num_done == MPI_UNDEFINED) break;  // no request is left
    if (num_done > 0) continue;
    if (Clock::now() >= end) {
      std::vector<int> late;
      for (size_t i = 0; i < pending.requests.size(); ++i) {
        if (pending.requests[i] != MPI_REQUEST_NULL) late.push_back(pending.peers[i]);
      }
      std::sort(late.begin(), late.end());
      late.erase(std::unique(late.begin(), late.end()), late.end());
      fail_waiting(call_, late);
    }
    if (patience.pause() && !status) {
      status.emplace(group().board, group().world_ranks[static_cast<size_t>(group().rank)], call_.to_string());
    }
  }
  pending.requests.clear();
  pending.peers.clear();
}

void MessageCollectives::begin(const Call& call) {
  call_ = call;
  Pending pending;
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    receive(pending, q, reinterpret_cast<std::byte*>(&calls_[static_cast<size_t>(q)]), sizeof(Call));
    send(pending, q, reinterpret_cast<const std::byte*>(&call_), sizeof(Call));
  }
  wait(pending);
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    const Call& theirs = calls_[static_cast<size_t>(q)];
    if (!call_.agrees_with(theirs)) fail_disagreeing(call_, q, theirs);
  }
}

// Fills slice q of `full` with `mine` of rank q, for every other rank q.
void MessageCollectives::gather_slices(View mine, View full) {
  Pending pending;
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    const View theirs = slice(full, q);
    receive(pending, q, theirs.data, theirs.bytes());
    send(pending, q, mine.data, mine.bytes());
  }
  wait(pending);
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
  Pending pending[2];
  const auto post = [&](int64_t i) {
    for (int q = 0; q < size; ++q) {
      if (q == rank) continue;
      const auto [theirs, theirs_bytes] = part(slice(full, q), i);
      receive(pending[i % 2], q, landing(i, q), part(mine, i).second);
      send(pending[i % 2], q, theirs, theirs_bytes);
    }
  };
  if (num_chunks > 0) post(0);
  std::vector<const std::byte*> inputs(static_cast<size_t>(size));
  for (int64_t i = 0; i < num_chunks; ++i) {
    if (i + 1 < num_chunks) post(i + 1);
    wait(pending[i % 2]);
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
  Pending pending;
  for (int q = 0; q < group().size(); ++q) {
    if (group().rank == root && q != root) send(pending, q, x.data, x.bytes());
    if (group().rank != root && q == root) receive(pending, q, x.data, x.bytes());
  }
  wait(pending);
}

std::vector<std::string> MessageCollectives::exchange(std::string_view text, const char* what) {
  begin(Call::make(Collective::exchange, DType::u8, static_cast<int64_t>(text.size()), what));
  std::vector<std::string> texts(static_cast<size_t>(group().size()));
  texts[static_cast<size_t>(group().rank)] = text;
  Pending pending;
  for (int q = 0; q < group().size(); ++q) {
    if (q == group().rank) continue;
    std::string& theirs = texts[static_cast<size_t>(q)];
    theirs.resize(static_cast<size_t>(calls_[static_cast<size_t>(q)].bytes));
    receive(pending, q, reinterpret_cast<std::byte*>(theirs.data()), static_cast<int64_t>(theirs.size()));
    send(pending, q, reinterpret_cast<const std::byte*>(text.data()), static_cast<int64_t>(text.size()));
  }
  wait(pending);
  return texts;
}

}  // namespace tessera

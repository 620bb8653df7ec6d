// Ranks of one node copy data directly from each other's memory, and sleep on counters in shared pages.
//
// Each rank has a state with a counter, `step`. In a collective, this counter passes up to three steps:
//   - posted: peers may read this rank's call and its array.
//   - reduced (only in all_reduce): this rank's slice contains the sums, and peers may read them.
//   - finished: this rank has read everything that it needs from its peers.
// A rank leaves a collective when all ranks have finished. After that, the rank may change its array and put the next
// call into its state.
#include "tessera/comm/ranks/direct_collectives.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tessera/comm/sum.h"

namespace tessera {

// The state of one rank, in memory that all ranks of the group share. Initially, all bytes are 0.
struct alignas(128) DirectCollectives::RankState {
  std::atomic<uint32_t> step;      // the counter; peers sleep on it
  std::atomic<uint32_t> sleepers;  // the number of peers that may sleep on `step`
  std::atomic<uint32_t> left;      // 1: this rank's DirectCollectives has failed or was destroyed
  pid_t pid;
  // The address of the array of `call`; before the first call, the address of `token_`. In a collective, a peer may
  // read `address` and `call` after this rank has posted them and before the peer itself has finished.
  uint64_t address;
  Call call;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

namespace {

constexpr uint32_t kPosted = 1, kReduced = 2, kFinished = 3;  // steps of one collective
constexpr int kSpins = 200;  // polls before a rank sleeps; few, because a peer may need its core
// The most bytes that reduce() reads from a rank before it adds them. A chunk fits into the L2 cache.
constexpr int64_t kChunkBytes = 256 << 10;
constexpr auto kLookAround = std::chrono::milliseconds(200);  // how often a waiting rank checks that its peer lives

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds time) {
  const timespec limit{.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

// Reads another process's memory. On failure returns false and sets errno.
bool read_memory(pid_t pid, uint64_t address, std::byte* to, int64_t bytes) {
  while (bytes > 0) {
    const iovec local{to, static_cast<size_t>(bytes)};
    const iovec remote{reinterpret_cast<void*>(address), static_cast<size_t>(bytes)};
    const ssize_t count = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (count <= 0) return false;
    to += count;
    address += static_cast<uint64_t>(count);
    bytes -= count;
  }
  return true;
}

}  // namespace

int64_t DirectCollectives::shared_bytes(int size) {
  return int64_t{size} * static_cast<int64_t>(sizeof(RankState));
}

DirectCollectives::DirectCollectives(const GroupInfo& group, std::shared_ptr<SharedPages> pages, int64_t offset,
                                     View scratch, pid_t reader)
    : Collectives(group),
      access_(reader),
      pages_(std::move(pages)),
      states_(reinterpret_cast<RankState*>(pages_->data() + offset)),
      scratch_(scratch) {
  own().pid = getpid();
  own().address = reinterpret_cast<uint64_t>(&token_);
}

DirectCollectives::~DirectCollectives() {
  leave();
}

bool DirectCollectives::can_read_peers() {
  for (int peer = 0; peer < group().size(); ++peer) {
    uint64_t token = 0;
    if (!read_memory(state_of(peer).pid, state_of(peer).address, reinterpret_cast<std::byte*>(&token), sizeof token) ||
        token != kToken) {
      return false;
    }
  }
  return true;
}

DirectCollectives::RankState& DirectCollectives::own() {
  return states_[group().rank];
}

DirectCollectives::RankState& DirectCollectives::state_of(int rank) {
  return states_[rank];
}

void DirectCollectives::leave() {
  own().left.store(1);
  wake_all(own().step);
}

void DirectCollectives::advance(uint32_t step) {
  own().step.store(base_ + step);
  if (own().sleepers.load() > 0) wake_all(own().step);
}

bool DirectCollectives::has_come(int peer, uint32_t step) {
  return static_cast<int32_t>(state_of(peer).step.load() - (base_ + step)) >= 0;
}

void DirectCollectives::wait_for(int peer, uint32_t step) {
  for (int i = 0; i < kSpins; ++i) {
    if (has_come(peer, step)) return;
    pause_briefly();
  }
  const Call& call = own().call;
  RankState& theirs = state_of(peer);
  const auto end = deadline();
  const StatusBoard::Waiting status = waiting(call);
  theirs.sleepers.fetch_add(1);
  for (;;) {
    const uint32_t seen = theirs.step.load();
    if (has_come(peer, step)) break;
    // If the peer is gone, reads its counter once more, because the peer may have reached `step` before it left.
    const bool gone = theirs.left.load() || (kill(theirs.pid, 0) != 0 && errno == ESRCH);
    if (gone && has_come(peer, step)) break;
    if (gone) give_up([&] { fail(call, fmt::format("{} has ended or failed", names_of({peer}))); });
    const auto now = Clock::now();
    if (now >= end) {
      std::vector<int> late;
      for (int q = 0; q < group().size(); ++q) {
        if (!has_come(q, step)) late.push_back(q);
      }
      give_up([&] { fail_waiting(call, late); });
    }
    sleep_on(theirs.step, seen, std::min<std::chrono::nanoseconds>(end - now, kLookAround));
  }
  theirs.sleepers.fetch_sub(1);
}

template <typename Failure>
void DirectCollectives::give_up(const Failure& failure) {
  leave();
  failure();
}

void DirectCollectives::begin(const Call& call, const void* data) {
  if (own().left.load()) fail(call, "an earlier collective of this group failed");
  own().call = call;
  own().address = reinterpret_cast<uint64_t>(data);
  advance(kPosted);
}

void DirectCollectives::meet(int peer) {
  wait_for(peer, kPosted);
  if (!own().call.agrees_with(state_of(peer).call)) {
    const Call theirs = state_of(peer).call;
    give_up([&] { fail_disagreeing(own().call, peer, theirs); });
  }
}

void DirectCollectives::finish() {
  advance(kFinished);
  for (int i = 1; i < group().size(); ++i) wait_for(neighbour(i), kFinished);
  base_ += kFinished;
}

void DirectCollectives::read(int peer, int64_t offset, std::byte* to, int64_t bytes) {
  const RankState& theirs = state_of(peer);
  const bool read = read_memory(theirs.pid, theirs.address + static_cast<uint64_t>(offset), to, bytes);
  const int error = errno;
  // A peer that gives up may free its array during this read, so the bytes may be wrong. A peer that does not give up
  // keeps its array until this rank has finished.
  if (read && !theirs.left.load()) return;
  give_up([&] {
    const bool gone = read || error == ESRCH || theirs.left.load();
    fail(own().call, gone ? fmt::format("{} has ended or failed", names_of({peer}))
                          : fmt::format("cannot read the memory of {}: {}", names_of({peer}), strerror(error)));
  });
}

// Sums this rank's slice of `full` over the ranks into `out`.
void DirectCollectives::reduce(View full, View out) {
  for (int i = 1; i < group().size(); ++i) meet(neighbour(i));
  const int64_t elem = static_cast<int64_t>(size_of(full.dtype));
  const int64_t offset = slice_begin(full.num_elems(), group().rank) * elem;
  const int64_t chunk = std::min(kChunkBytes, scratch_.bytes() / group().size() / 64 * 64);
  std::vector<const std::byte*> inputs(static_cast<size_t>(group().size()));
  for (int64_t begin = 0; begin < out.bytes(); begin += chunk) {
    const int64_t bytes = std::min(chunk, out.bytes() - begin);
    for (int q = 0; q < group().size(); ++q) {
      std::byte* landing = scratch_.data + q * chunk;
      const bool ours = q == group().rank;
      if (!ours) read(q, offset + begin, landing, bytes);
      inputs[static_cast<size_t>(q)] = ours ? full.data + offset + begin : landing;
    }
    sum_in_order(inputs, out.data + begin, bytes / elem, full.dtype);
  }
}

void DirectCollectives::all_gather(View shard, View full, const char* what) {
  begin(Call::make(Collective::all_gather, shard.dtype, full.bytes(), what), shard.data);
  const View mine = slice(full, group().rank);
  if (mine.data != shard.data && shard.bytes() > 0) {
    std::memcpy(mine.data, shard.data, static_cast<size_t>(shard.bytes()));
  }
  for (int i = 1; i < group().size(); ++i) {
    const int peer = neighbour(i);
    meet(peer);
    const View theirs = slice(full, peer);
    read(peer, 0, theirs.data, theirs.bytes());
  }
  finish();
}

void DirectCollectives::reduce_scatter(View full, View shard, const char* what) {
  begin(Call::make(Collective::reduce_scatter, full.dtype, full.bytes(), what), full.data);
  reduce(full, shard);
  finish();
}

void DirectCollectives::all_reduce(View x, const char* what) {
  begin(Call::make(Collective::all_reduce, x.dtype, x.bytes(), what), x.data);
  // The result may overwrite the input in x, because no rank reads an overwritten part as input. Peers read this rank's
  // slice of this x only after this rank's `reduced` step, when the slice contains the sums. This rank overwrites a
  // peer's slice of x only after that peer's `reduced` step, when the peer has read its slice of every rank's input.
  reduce(x, slice(x, group().rank));
  advance(kReduced);
  for (int i = 1; i < group().size(); ++i) {
    const int peer = neighbour(i);
    wait_for(peer, kReduced);
    const View theirs = slice(x, peer);
    read(peer, theirs.data - x.data, theirs.data, theirs.bytes());
  }
  finish();
}

void DirectCollectives::broadcast(View x, int root, const char* what) {
  begin(Call::make(Collective::broadcast, x.dtype, x.bytes(), what, root), x.data);
  for (int i = 1; i < group().size(); ++i) meet(neighbour(i));
  if (group().rank != root) read(root, 0, x.data, x.bytes());
  finish();
}

std::vector<std::string> DirectCollectives::exchange(std::string_view text, const char* what) {
  begin(Call::make(Collective::exchange, DType::u8, static_cast<int64_t>(text.size()), what), text.data());
  std::vector<std::string> texts(static_cast<size_t>(group().size()));
  texts[static_cast<size_t>(group().rank)] = text;
  for (int i = 1; i < group().size(); ++i) {
    const int peer = neighbour(i);
    meet(peer);
    std::string& theirs = texts[static_cast<size_t>(peer)];
    theirs.resize(static_cast<size_t>(state_of(peer).call.bytes));
    read(peer, 0, reinterpret_cast<std::byte*>(theirs.data()), static_cast<int64_t>(theirs.size()));
  }
  finish();
  return texts;
}

}  // namespace tessera

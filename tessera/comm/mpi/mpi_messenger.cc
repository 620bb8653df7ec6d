// All messages go through MPI_COMM_WORLD. The MPI tag of a message is the number of its channel. MPI keeps the order of
// the messages with one tag between two ranks.
#include "tessera/comm/mpi/mpi_messenger.h"

#include <time.h>

#include <algorithm>
#include <new>
#include <utility>

#include "tessera/comm/mpi/mpi_library.h"
#include "tessera/comm/mpi_flavour.h"

namespace tessera {
namespace {

constexpr int64_t kMaxMessageBytes = 256 << 20;  // MPI counts bytes in an int

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

class MpiBatch final : public MessageBatch {
 public:
  MpiBatch(const MpiCalls& mpi, int tag, const std::vector<int>& members)
      : mpi_(mpi), tag_(tag), members_(members), batch_(mpi.open_batch()) {
    if (!batch_) throw std::bad_alloc();
  }
  ~MpiBatch() override { mpi_.close_batch(batch_); }
  MpiBatch(const MpiBatch&) = delete;
  MpiBatch& operator=(const MpiBatch&) = delete;

  void send(int peer, const std::byte* data, int64_t bytes) override {
    for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
      const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
      add(peer, mpi_.send(batch_, data + begin, count, rank_of(peer), tag_));
    }
  }
  void receive(int peer, std::byte* data, int64_t bytes) override {
    for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
      const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
      add(peer, mpi_.receive(batch_, data + begin, count, rank_of(peer), tag_));
    }
  }
  std::vector<int> wait(Clock::time_point end, const std::function<void()>& sleeps) override {
    Patience patience;
    bool has_slept = false;
    // One more element, because there may be no messages at all.
    std::vector<int> positions(messages_.size() + 1), results(messages_.size() + 1);
    for (;;) {
      const int num_done = mpi_.test(batch_, positions.data(), results.data());
      if (num_done == -1) return {};
      if (num_done == -2) check(results[0], messages_.empty() ? 0 : messages_[0].peer);
      for (size_t i = 0; i < static_cast<size_t>(std::max(num_done, 0)); ++i) {
        Message& message = messages_[static_cast<size_t>(positions[i])];
        message.is_done = true;
        check(results[i], message.peer);
      }
      if (num_done > 0) continue;
      if (Clock::now() >= end) return late();
      if (patience.pause() && !std::exchange(has_slept, true)) sleeps();
    }
  }

 private:
  struct Message {
    int peer;
    bool is_done = false;
  };

  int rank_of(int peer) const { return members_[static_cast<size_t>(peer)]; }
  void add(int peer, int mpi_result) {
    messages_.push_back({peer});
    check(mpi_result, peer);
  }
  std::vector<int> late() const {
    std::vector<int> ranks;
    for (const Message& message : messages_) {
      if (!message.is_done) ranks.push_back(message.peer);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  void check(int mpi_result, int peer) const {
    if (mpi_result == 0) return;
    char text[kMpiTextBytes] = {};
    mpi_.error_text(mpi_result, text);
    throw MessageFailure{peer, "cannot be reached: " + std::string(text)};
  }

  const MpiCalls& mpi_;
  int tag_;
  const std::vector<int>& members_;
  void* const batch_;
  std::vector<Message> messages_;
};

class MpiChannel final : public Channel {
 public:
  MpiChannel(const MpiCalls& mpi, int tag, std::vector<int> members)
      : mpi_(mpi), tag_(tag), members_(std::move(members)) {}
  std::unique_ptr<MessageBatch> make_batch() override { return std::make_unique<MpiBatch>(mpi_, tag_, members_); }

 private:
  const MpiCalls& mpi_;
  int tag_;
  std::vector<int> members_;
};

class MpiMessenger final : public Messenger {
 public:
  explicit MpiMessenger(const MpiCalls& mpi) : mpi_(mpi) {
    if (const char* const problem = mpi_.start(&rank_, &size_)) throw RunError("MPI", problem);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return mpi_flavour().text; }
  std::unique_ptr<Channel> open(int number, const std::vector<int>& members) override {
    return std::make_unique<MpiChannel>(mpi_, number, members);
  }
  void finish() override { mpi_.finish(); }
  void end_others(ExitCode code) override { mpi_.abort(static_cast<int>(code)); }

 private:
  const MpiCalls& mpi_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<Messenger> make_mpi_messenger() {
  TESSERA_ASSERT(mpi_calls());
  return std::make_unique<MpiMessenger>(*mpi_calls());
}

}  // namespace tessera

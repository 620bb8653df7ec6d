// All messages go through MPI_COMM_WORLD. The MPI tag of a message is the number of its channel. MPI keeps the order of
// the messages with one tag between two ranks.
#include "tessera/comm/mpi/mpi_messenger.h"

#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

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
  MpiBatch(int tag, const std::vector<int>& members) : tag_(tag), members_(members) {}
  ~MpiBatch() override {
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      // Open MPI cannot cancel sends. A peer may still receive such a message. If this rank has reused the memory of
      // the message by then, the peer gets wrong data. This does no harm, because that peer fails too.
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  void send(int peer, const std::byte* data, int64_t bytes) override {
    for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
      const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
      check(MPI_Isend(data + begin, count, MPI_BYTE, rank_of(peer), tag_, MPI_COMM_WORLD, add(peer)), peer);
    }
  }
  void receive(int peer, std::byte* data, int64_t bytes) override {
    for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes) {
      const int count = static_cast<int>(std::min(kMaxMessageBytes, bytes - begin));
      check(MPI_Irecv(data + begin, count, MPI_BYTE, rank_of(peer), tag_, MPI_COMM_WORLD, add(peer)), peer);
    }
  }
  std::vector<int> wait(Clock::time_point end, const std::function<void()>& sleeps) override {
    Patience patience;
    bool has_slept = false;
    const int count = static_cast<int>(requests_.size());
    std::vector<int> done(requests_.size());
    std::vector<MPI_Status> states(requests_.size());
    for (;;) {
      int num_done = 0;
      const int result = MPI_Testsome(count, requests_.data(), &num_done, done.data(), states.data());
      if (result == MPI_ERR_IN_STATUS) {
        for (int i = 0; i < num_done; ++i) {
          check(states[static_cast<size_t>(i)].MPI_ERROR, peers_[static_cast<size_t>(done[static_cast<size_t>(i)])]);
        }
      } else {
        check(result, peers_.empty() ? 0 : peers_[0]);
      }
      if (num_done == MPI_UNDEFINED) break;  // no request is left
      if (num_done > 0) continue;
      if (Clock::now() >= end) return late();
      if (patience.pause() && !std::exchange(has_slept, true)) sleeps();
    }
    requests_.clear();
    peers_.clear();
    return {};
  }

 private:
  int rank_of(int peer) const { return members_[static_cast<size_t>(peer)]; }
  MPI_Request* add(int peer) {
    peers_.push_back(peer);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }
  std::vector<int> late() const {
    std::vector<int> ranks;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] != MPI_REQUEST_NULL) ranks.push_back(peers_[i]);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  static void check(int mpi_result, int peer) {
    if (mpi_result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(mpi_result, text, &length);
    throw MessageFailure{peer, "cannot be reached: " + std::string(text, static_cast<size_t>(length))};
  }

  int tag_;
  const std::vector<int>& members_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

class MpiChannel final : public Channel {
 public:
  MpiChannel(int tag, std::vector<int> members) : tag_(tag), members_(std::move(members)) {}
  std::unique_ptr<MessageBatch> make_batch() override { return std::make_unique<MpiBatch>(tag_, members_); }

 private:
  int tag_;
  std::vector<int> members_;
};

class MpiMessenger final : public Messenger {
 public:
  MpiMessenger() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    if (provided < MPI_THREAD_MULTIPLE) {
      throw RunError("MPI", "does not support calls from several threads (MPI_THREAD_MULTIPLE)");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return mpi_flavour().text; }
  std::unique_ptr<Channel> open(int number, const std::vector<int>& members) override {
    return std::make_unique<MpiChannel>(number, members);
  }
  void finish() override { MPI_Finalize(); }
  void end_others(ExitCode code) override { MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code)); }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::unique_ptr<Messenger> make_mpi_messenger() {
  return std::make_unique<MpiMessenger>();
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

}  // namespace tessera

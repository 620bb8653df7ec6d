// Runs ranks as threads of one process, for tests of collective operations. The ranks exchange only texts.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// The state that the ranks of a group share. When a rank leaves, all ranks that wait in exchange() fail immediately. A
// test therefore ends even if a rank skips a collective.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : texts_(static_cast<size_t>(size)) {}

  std::vector<std::string> exchange(int rank, std::string text, const char* what) {
    std::unique_lock lock(mutex_);
    texts_[static_cast<size_t>(rank)] = std::move(text);
    if (++arrived_ == static_cast<int>(texts_.size())) {
      result_ = texts_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      const int round = round_;
      changed_.wait(lock, [&] { return round_ != round || left_; });
      if (round_ == round) throw CommunicationError(what, "a rank has left");
    }
    return result_;  // unchanged until this rank exchanges again
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }
  std::shared_ptr<ThreadGroup> part(int color, int size) {
    const std::lock_guard lock(mutex_);
    auto& group = parts_[{round_, color}];
    if (!group) group = std::make_shared<ThreadGroup>(size);
    return group;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_, result_;
  int arrived_ = 0, round_ = 0;
  bool left_ = false;
  std::map<std::pair<int, int>, std::shared_ptr<ThreadGroup>> parts_;  // by round and color
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank, int size)
      : group_(std::move(group)), rank_(rank), size_(size) {}
  ~ThreadCommunicator() override { group_->leave(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return group_->exchange(rank_, std::string(text), what);
  }
  void barrier(const char* what) override { group_->exchange(rank_, "", what); }
  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    barrier("split");
    auto part = group_->part(color, size);
    barrier("split");  // part() finds a group by the current round, which must not end before all ranks called part()
    return std::make_unique<ThreadCommunicator>(std::move(part), rank, size);
  }

  void all_gather(View, View, Stream&, const char*) override { unused(); }
  void reduce_scatter(View, View, Stream&, const char*) override { unused(); }
  void all_reduce(View, Stream&, const char*) override { unused(); }
  void broadcast(View, int, Stream&, const char*) override { unused(); }
  std::vector<double> sum(std::vector<double>, const char*) override { unused(); }

 private:
  [[noreturn]] static void unused() { throw std::logic_error("not used by these tests"); }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_, size_;
};

// Runs `work` on each of `size` ranks. Returns the error message of each rank, indexed by rank. The message is empty if
// the rank threw no error. The message of an error that is not of type E begins with "another kind of error: ".
template <typename E = Error, typename Rank = ThreadCommunicator>
std::vector<std::string> run_ranks(int size, const std::function<void(Communicator&)>& work) {
  auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::string> errors(static_cast<size_t>(size));
  const auto run = [&](int rank) {
    Rank world(group, rank, size);
    try {
      work(world);
    } catch (const E& error) {
      errors[static_cast<size_t>(rank)] = error.what();
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(rank)] = std::string("another kind of error: ") + error.what();
    }
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < size; ++rank) others.emplace_back(run, rank);
  run(0);
  for (auto& thread : others) thread.join();
  return errors;
}

}  // namespace tessera

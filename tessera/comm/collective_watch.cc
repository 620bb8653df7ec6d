#include "tessera/comm/collective_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/option_names.h"
#include "tessera/base/start_thread.h"
#include "tessera/comm/time_limit.h"

namespace tessera {

void PendingCollectives::begin(const char* collective, const char* what, Stream& stream) {
  entries_.push_back({collective, what, &stream, stream.record(), std::nullopt, std::nullopt});
}

void PendingCollectives::called(Stream& stream) {
  entries_.back().after = stream.record();
}

std::optional<PendingCollectives::Running> PendingCollectives::look(Clock::time_point now, std::vector<Entry>& done) {
  // Goes through the entries from the last to the first. If an entry is done, all earlier entries of its stream are
  // done and need no query.
  std::deque<Entry> left;
  std::set<const Stream*> passed;
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (!passed.contains(entry->stream) && entry->after && entry->after->reached()) passed.insert(entry->stream);
    if (passed.contains(entry->stream)) {
      done.push_back(std::move(*entry));
    } else {
      left.push_front(std::move(*entry));
    }
  }
  entries_ = std::move(left);

  std::optional<Running> first;
  std::set<const Stream*> busy;
  for (Entry& entry : entries_) {
    if (!busy.insert(entry.stream).second) continue;  // an earlier entry of its stream is not done
    if (!entry.since && entry.before.reached()) entry.since = now;
    if (entry.since && !first) first = {fmt::format("{} of {}", entry.collective, entry.what), now - *entry.since};
  }
  return first;
}

CollectiveWatch::CollectiveWatch(const WatchOptions& options, std::function<std::string()> library_error)
    : options_(options),
      library_error_(std::move(library_error)),
      thread_(start_thread("watching collectives", [this] { work(); })) {}

CollectiveWatch::~CollectiveWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  thread_.join();
}

void CollectiveWatch::begin(const char* collective, const char* what, Stream& stream) {
  last_collective_ = collective;
  last_what_ = what;
  ++num_pending_;
  const std::lock_guard lock(mutex_);
  pending_.begin(collective, what, stream);
}

void CollectiveWatch::called(Stream& stream) {
  const std::lock_guard lock(mutex_);
  pending_.called(stream);
}

std::optional<CommunicationError> CollectiveWatch::look() {
  const std::string error = library_error_();
  std::optional<PendingCollectives::Running> running;
  std::vector<PendingCollectives::Entry> done;  // outlives the lock, so its events are destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    running = pending_.look(PendingCollectives::Clock::now(), done);
  }
  num_pending_ -= std::ssize(done);
  if (!running || running->call != waiting_in_) {
    waiting_.reset();
    waiting_in_ = running ? running->call : "";
    if (running) waiting_.emplace(options_.board, options_.rank, waiting_in_);
  }
  const std::string rank = fmt::format("rank {}", options_.rank);
  if (!error.empty()) {
    // If no collective is running, the error names the collective that was begun last, if there was one.
    const std::string call = running                    ? running->call
                             : *last_collective_.load() ? fmt::format("after {}", last_call())
                                                        : "";
    return CommunicationError(rank, call.empty() ? error : fmt::format("{}: {}", call, error),
                              "Set NCCL_DEBUG=INFO to see details");
  }
  if (running && std::chrono::duration<double>(running->time).count() > options_.timeout_s) {
    return timed_out(running->call);
  }
  return std::nullopt;
}

void CollectiveWatch::unanswered() {
  if (num_pending_ == 0) return;
  const std::string call = last_call();
  const StatusBoard::Waiting waiting(options_.board, options_.rank, call);
  options_.fail(timed_out(call));
}

std::string CollectiveWatch::last_call() const {
  return fmt::format("{} of {}", last_collective_.load(), last_what_.load());
}

CommunicationError CollectiveWatch::timed_out(const std::string& call) const {
  return {fmt::format("rank {}", options_.rank),
          fmt::format("{}: waited {} s for the other ranks of its group", call, options_.timeout_s),
          "If the other ranks are only slow, give a longer " + option("comm_timeout")};
}

void CollectiveWatch::work() {
  const auto interval = std::chrono::duration<double>(std::clamp(options_.timeout_s / 20, 0.001, 0.1));
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, interval, [this] { return ended_; })) {
    lock.unlock();
    std::optional<TimeLimit> limit;
    try {
      limit.emplace(options_.timeout_s, [this] { unanswered(); });
    } catch (const RunError&) {  // its thread cannot start now; the next round tries again
    }
    try {
      if (const auto error = look()) {
        options_.fail(*error);
        return;
      }
    } catch (const Error&) {  // the device has failed: the computing thread gets the same error
      return;
    }
    lock.lock();
  }
}

}  // namespace tessera

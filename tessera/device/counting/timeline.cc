#include "tessera/device/counting/timeline.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"

namespace tessera {

const char* name_of(Busy busy) {
  constexpr const char* names[] = {"products",  "attention", "memory", "host",
                                   "to_device", "to_host",   "file",   "network"};
  return names[static_cast<size_t>(busy)];
}

double Timeline::run(WorkQueue& queue, Busy what, double seconds, bool exclusive) {
  double begin = queue.ready_;
  double& free_at = free_at_[static_cast<size_t>(what)];
  if (exclusive) begin = std::max(begin, free_at);
  // A collective between GPUs takes multiprocessors or bandwidth from the kernels that run at the same time. With this
  // share, the times of seven jobs on two H200s are at most 7 % too short (bench/predicted_times.py).
  constexpr double kSlowdown = 0.45;
  const bool is_kernel = what == Busy::products || what == Busy::attention || what == Busy::memory;
  if (is_kernel && machine_.num_multiprocessors > 0) {
    seconds += kSlowdown * std::clamp(collective_ends_ - begin, 0.0, seconds);
  }
  queue.ready_ = begin + seconds;
  if (exclusive) free_at = queue.ready_;
  if (what == Busy::network) collective_ends_ = std::max(collective_ends_, queue.ready_);
  // A copy from or to the host takes bandwidth of the host's memory from AdamW, which needs all of it.
  if (what == Busy::to_device || what == Busy::to_host) {
    const double link = what == Busy::to_device ? machine_.to_device_bytes_per_s : machine_.to_host_bytes_per_s;
    double& host_free_at = free_at_[static_cast<size_t>(Busy::host)];
    host_free_at = std::max(host_free_at, begin) + seconds * link / machine_.host_bytes_per_s;
  }
  busy_[static_cast<size_t>(what)] += seconds;
  return queue.ready_;
}

// Passes the events that the queues have come to. A recorded event may let another queue pass its wait.
void Timeline::pass_events() {
  using Kind = WorkQueue::Item::Kind;
  for (bool passed = true; passed;) {
    passed = false;
    for (WorkQueue* queue : queues_) {
      while (!queue->items_.empty()) {
        const WorkQueue::Item& item = queue->items_.front();
        if (item.kind == Kind::record) {
          *item.moment = {true, queue->ready_};
        } else if (item.kind == Kind::wait && item.moment->known) {
          queue->ready_ = std::max(queue->ready_, item.moment->time);
        } else {
          break;
        }
        queue->items_.pop_front();
        passed = true;
      }
    }
  }
}

// Does the piece of work that can start first. If several streams use one link, their copies therefore run in the order
// in which they become ready.
bool Timeline::step() {
  using Kind = WorkQueue::Item::Kind;
  WorkQueue* first = nullptr;
  double earliest = std::numeric_limits<double>::infinity();
  for (WorkQueue* queue : queues_) {
    if (queue->items_.empty() || queue->items_.front().kind == Kind::wait) continue;
    const double start = std::max(queue->ready_, queue->items_.front().issued);
    if (start < earliest) earliest = start, first = queue;
  }
  if (!first) return false;
  WorkQueue::Item item = std::move(first->items_.front());
  first->items_.pop_front();
  first->ready_ = earliest;
  if (item.kind == Kind::code) {
    item.code();
  } else {
    run(*first, item.what, item.seconds, item.exclusive);
  }
  return true;
}

void Timeline::wait_for(const Moment& moment) {
  for (pass_events(); !moment.known; pass_events()) {
    const bool moved = step();
    TESSERA_ASSERT(moved);  // otherwise, the queues wait for each other
  }
  now_ = std::max(now_, moment.time);
}

void Timeline::wait_for(WorkQueue& queue) {
  const auto moment = std::make_shared<Moment>();
  queue.add({.kind = WorkQueue::Item::Kind::record, .issued = now_, .moment = moment});
  wait_for(*moment);
}

}  // namespace tessera

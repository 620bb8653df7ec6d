// The simulated time of an engine on counting devices. The engine puts the same work on the same streams, in the same
// order and with the same events, as in a run. Here, a piece of work only takes the time that it would take on a
// machine. When the thread waits, the simulation does the queued work of all streams until the wait ends. It always
// does the work that can start first. The simulated times therefore show what overlaps and what waits.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "tessera/device/counting/machine.h"
#include "tessera/device/stream.h"

namespace tessera {

// What a piece of work keeps busy.
enum class Busy { products, attention, memory, host, to_device, to_host, file, network };
inline constexpr int kNumBusy = 8;
const char* name_of(Busy busy);

// A point in a queue's work. Its time is known when the simulation has come to it.
struct Moment {
  bool known = false;
  double time = 0;
};

// Work in order, as a stream has it.
class WorkQueue {
 public:
  struct Item {
    enum class Kind { work, code, wait, record } kind;
    double issued = 0;  // when the thread put it here
    Busy what = Busy::host;
    double seconds = 0;
    bool exclusive = false;  // nothing else of its kind runs at the same time, such as a copy over a link
    std::function<void()> code{};
    std::shared_ptr<Moment> moment{};
  };
  void add(Item item) { items_.push_back(std::move(item)); }

 private:
  friend class Timeline;
  std::deque<Item> items_;
  double ready_ = 0;  // when the work done so far has ended
};

class Timeline {
 public:
  // `ranks_per_node`: a group of ranks that are further apart uses the links between nodes.
  explicit Timeline(const Machine& machine, int ranks_per_node = 1)
      : machine_(machine), ranks_per_node_(ranks_per_node) {}

  const Machine& machine() const { return machine_; }
  // The link of a group of `num_ranks` ranks. Its first and its last rank enclose `span` ranks of the world. If the
  // group has only some ranks of each node, the other groups use the network at the same time.
  Machine::Link link_of(int num_ranks, int span) const {
    if (span <= ranks_per_node_) return machine_.within_node;
    Machine::Link link = machine_.between_nodes;
    link.bytes_per_s *= std::min(1.0, static_cast<double>(num_ranks) / span);
    return link;
  }

  // The clock of the thread that puts work on streams.
  double now() const { return now_; }
  // A launch takes the thread some time, except within a graph, which is one launch.
  void launch() {
    if (!in_graph_) now_ += machine_.launch_s;
  }
  void begin_graph() { launch(), in_graph_ = true; }
  void end_graph() { in_graph_ = false; }

  void add(WorkQueue& queue) { queues_.push_back(&queue); }
  void remove(WorkQueue& queue) { std::erase(queues_, &queue); }
  // The thread waits for the moment, or for all work of the queue.
  void wait_for(const Moment& moment);
  void wait_for(WorkQueue& queue);
  // Work that code of a queue does at once: only within Item::code of this queue. Returns when it ends.
  double run(WorkQueue& queue, Busy what, double seconds, bool exclusive);
  // When the work of the queue done so far ended.
  double clock_of(const WorkQueue& queue) const { return queue.ready_; }

  // The stream whose code runs now, or null.
  Stream* running() const { return running_; }
  void set_running(Stream* stream) { running_ = stream; }

  // Seconds of each kernel on a GPU.
  void add_kernel(const char* name, double seconds) { kernels_[name] += seconds; }
  const std::map<std::string_view, double>& kernels() const { return kernels_; }
  double busy(Busy what) const { return busy_[static_cast<size_t>(what)]; }

 private:
  void pass_events();
  bool step();  // does one piece of work; false if none can be done

  const Machine& machine_;
  const int ranks_per_node_;
  double now_ = 0;
  bool in_graph_ = false;
  Stream* running_ = nullptr;
  std::vector<WorkQueue*> queues_;
  std::array<double, kNumBusy> busy_{}, free_at_{};
  double collective_ends_ = 0;  // when the last collective so far ends
  std::map<std::string_view, double> kernels_;
};

}  // namespace tessera

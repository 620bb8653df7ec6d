// A stream whose work finishes when the test calls finish().
#pragma once

#include <atomic>
#include <memory>

#include "tessera/device/stream.h"

namespace tessera {

class ManualStream final : public Stream {
 public:
  // put() adds a piece of work to the stream. finish() completes all work that put() has added so far.
  void put() { ++*num_put_; }
  void finish() { *num_done_ = num_put_->load(); }

  Event record() override { return Event(std::make_shared<Reached>(num_done_, num_put_->load())); }
  void wait(const Event&) override {}
  void run(std::function<void()>) override {}
  void copy(View, View) override {}
  // The handle cudaStreamPerThread. It is a constant, so it is valid without a GPU.
  void* native() const override { return reinterpret_cast<void*>(2); }

 private:
  using Count = std::shared_ptr<std::atomic<int>>;
  struct Reached final : Event::State {
    Reached(Count num_done, int target) : num_done_(std::move(num_done)), target_(target) {}
    bool reached() override { return *num_done_ >= target_; }
    void synchronize() override {}
    const Count num_done_;
    const int target_;
  };
  Count num_put_ = std::make_shared<std::atomic<int>>(0), num_done_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace tessera

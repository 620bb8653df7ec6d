// A group that passes all calls on to another group. Tests derive groups from it that do something else.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"

namespace tessera {

class ForwardingGroup : public Communicator {
 public:
  explicit ForwardingGroup(Communicator& real) : real_(real) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  Allocator* allocator() override { return real_.allocator(); }
  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    real_.all_gather(shard, full, stream, what);
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    real_.reduce_scatter(full, shard, stream, what);
  }
  void all_reduce(View x, Stream& stream, const char* what) override { real_.all_reduce(x, stream, what); }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    real_.broadcast(x, root, stream, what);
  }
  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return real_.all_gather_text(text, what);
  }
  std::vector<double> sum(std::vector<double> values, const char* what) override {
    return real_.sum(std::move(values), what);
  }
  void barrier(const char* what) override { real_.barrier(what); }
  std::unique_ptr<Communicator> split(int color, int rank, int size) override { return real_.split(color, rank, size); }

 protected:
  Communicator& real_;
};

}  // namespace tessera

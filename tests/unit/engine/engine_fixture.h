// Makes engines of small models. Each engine is the only rank of its run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>

#include "engine_probe.h"
#include "small_model.h"

namespace tessera {

inline constexpr BatchBounds kBounds{64, 8, 64};

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : pool_(2), device_(make_cpu_device(pool_)), host_(make_cpu_device(pool_)), alone_(make_self_communicator()) {}
  std::unique_ptr<Engine> make(const ModelConfig& config, const EngineOptions& options, int64_t micro_batches = 1) {
    auto engine = std::make_unique<Engine>(EnginePlace{*device_, *host_, *alone_}, config, options);
    engine->prepare({kBounds, kBounds, kBounds, 8, micro_batches});
    engine->states().initialize(7);
    return engine;
  }
  static std::vector<std::byte> bytes_of(const View& view) { return {view.data, view.data + view.bytes()}; }
  static bool same_parameters(Engine& a, Engine& b) {
    for (int64_t u = 0; u < a.model().num_units(); ++u) {
      const View x = probe(a).parameters(u).trainable(), y = probe(b).parameters(u).trainable();
      if (!std::equal(x.data, x.data + x.bytes(), y.data, y.data + y.bytes())) return false;
    }
    return true;
  }

  ThreadPool pool_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> alone_;
};

}  // namespace tessera

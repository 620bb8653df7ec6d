// Tests the order of an offloaded update under the latest possible schedule: the work of a stream runs only when
// another stream or the calling thread waits for it. The compute stream is an exception: it runs its work at once. If
// the engine omits a wait, the order of the work or the computed values are then wrong.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <map>

#include "engine_probe.h"
#include "small_model.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/engine/gradients.h"

namespace tessera {
namespace {

// The streams of a test write this journal.
struct Journal {
  std::string put;               // for each piece of work in the order of run() calls: the letter of its stream
  std::map<char, int> num_done;  // for the letter of each stream: the number of its finished pieces of work
  std::vector<int> at_compute;   // num_done['h'] (`h`: the stream `host`) after each wait of the compute stream
  int num_compute_waits = 0;     // how often a stream or the calling thread waited for the compute stream
};

class LateStream final : public Stream {
 public:
  LateStream(Journal& journal, char letter) : journal_(journal), letter_(letter) {}
  ~LateStream() override { queue_->do_until(queue_->num_put()); }

  Event record() override { return Event(std::make_shared<Reached>(queue_, queue_->num_put())); }
  void wait(const Event& event) override {
    queue_->put([event] { event.synchronize(); });
  }
  void run(std::function<void()> work) override {
    journal_.put += letter_;
    queue_->put([this, work = std::move(work)] {
      work();
      ++journal_.num_done[letter_];
    });
  }
  void copy(View from, View to) override {
    run([from, to] { std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes())); });
  }

 private:
  class Queue {
   public:
    void put(std::function<void()> work) { work_.push_back(std::move(work)); }
    size_t num_put() const { return num_done_ + work_.size(); }
    size_t num_done() const { return num_done_; }
    void do_until(size_t target) {
      while (num_done_ < target) {
        TESSERA_ASSERT(!busy_);  // if busy_ is true, streams wait for each other in a cycle
        busy_ = true;
        work_.front()();
        busy_ = false;
        work_.pop_front();
        ++num_done_;
      }
    }

   private:
    std::deque<std::function<void()>> work_;  // the first piece may be running
    size_t num_done_ = 0;
    bool busy_ = false;
  };
  struct Reached final : Event::State {
    Reached(std::shared_ptr<Queue> its_queue, size_t its_target) : queue(std::move(its_queue)), target(its_target) {}
    bool reached() override { return queue->num_done() >= target; }
    void synchronize() override { queue->do_until(target); }
    const std::shared_ptr<Queue> queue;
    const size_t target;
  };

  Journal& journal_;
  const char letter_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

class ComputeStream final : public Stream {
 public:
  explicit ComputeStream(Journal& journal) : journal_(journal) {}
  Event record() override { return Event(std::make_shared<Waited>(journal_)); }
  void wait(const Event& event) override {
    event.synchronize();
    journal_.at_compute.push_back(journal_.num_done['h']);
  }
  void run(std::function<void()> work) override { work(); }
  void copy(View from, View to) override { std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes())); }

 private:
  struct Waited final : Event::State {
    explicit Waited(Journal& its_journal) : journal(its_journal) {}
    bool reached() override { return false; }
    void synchronize() override { ++journal.num_compute_waits; }
    Journal& journal;
  };

  Journal& journal_;
};

// A CPU device whose streams are LateStream, except the compute stream. Each new stream gets the next letter of
// `letters`.
class LateDevice final : public CpuDevice {
 public:
  LateDevice(ThreadPool& pool, Journal& journal, std::string letters)
      : CpuDevice(pool), journal_(journal), letters_(std::move(letters)), compute_(journal) {}
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<LateStream>(journal_, letters_.at(num_made_++));
  }

 private:
  Journal& journal_;
  const std::string letters_;
  size_t num_made_ = 0;
  ComputeStream compute_;
};

constexpr BatchBounds kBounds{64, 8, 64};
constexpr double kRate = 1e-2;

// An Offload has the tiers of the optimizer states, the gradients and the parameters, in this order.
constexpr Tier D = Tier::device, H = Tier::host, F = Tier::file;
constexpr Offload kOffloads[] = {{H, D, D}, {H, H, D}, {H, H, H}, {F, D, D}, {F, F, F}, {F, H, H}};

ShardOptions options_of(const Offload& offload) {
  ShardOptions options;
  options.offload = offload;
  options.file_folder = testing::TempDir();
  return options;
}

std::string words_of(const Offload& offload) {
  return std::string(name_of(offload.optimizer)) + " " + name_of(offload.gradients) + " " + name_of(offload.parameters);
}

// Runs three steps, with an evaluation after the second. Returns all losses and gradient norms, and the states at the
// end.
std::pair<std::vector<double>, std::vector<std::byte>> outcome_of(Engine& engine, int64_t micro_batches) {
  std::vector<double> results;
  for (uint64_t step = 0; step < 3; ++step) {
    std::vector<PackedBatch> window;
    for (int64_t i = 0; i < micro_batches; ++i) {
      window.push_back(make_batch(10 * step + static_cast<uint64_t>(i), {5, 4}));
    }
    const StepResult result = engine.train_step(window, kRate);
    results.insert(results.end(), {result.loss_sum, result.gradient_norm});
    if (step == 1) results.push_back(engine.evaluate(window[0]).loss_sum);
  }
  std::vector<std::byte> states;
  engine.states().save([&](StateKind, int64_t, ElemRange, View from) {
    states.insert(states.end(), from.data, from.data + from.bytes());
  });
  return {results, states};
}

class OrderTest : public testing::Test {
 protected:
  OrderTest()
      : pool_(1),
        late_device_(pool_, journal_, "muc"),  // m: comm, u: upload, c: copy
        late_host_(pool_, journal_, "h"),
        device_(make_cpu_device(pool_)),
        host_(make_cpu_device(pool_)),
        alone_(make_self_communicator()) {}

  std::unique_ptr<Engine> make(Device& device, Device& host, EngineOptions options, int64_t micro_batches,
                               bool tied_head = true, const char* frozen = nullptr) {
    ModelConfig config = small_config("bloom", 0.1);
    config.tied_head = tied_head;
    if (frozen) options.frozen = {frozen};
    auto engine = std::make_unique<Engine>(EnginePlace{device, host, *alone_}, config, options);
    engine->prepare({kBounds, kBounds, kBounds, 8, micro_batches});
    engine->states().initialize(7);
    return engine;
  }
  std::unique_ptr<Engine> make_late(const EngineOptions& options, int64_t micro_batches = 1) {
    return make(late_device_, late_host_, options, micro_batches);
  }

  ThreadPool pool_;
  Journal journal_;
  LateDevice late_device_, late_host_;
  std::unique_ptr<Device> device_, host_;
  std::unique_ptr<Communicator> alone_;
};

// The forward pass of a unit waits for the update of this unit, but not for updates of later units. The upload of the
// batch waits for no update. Therefore no unit is updated when the compute stream has waited for the batch. After the
// wait for each unit, one more unit is updated.
TEST_F(OrderTest, ForwardBeginsBeforeLaterUnitsAreUpdated) {
  for (const bool tied_head : {true, false}) {
    for (const Offload& offload : kOffloads) {
      SCOPED_TRACE(words_of(offload));
      Journal journal;
      LateDevice device(pool_, journal, "muc"), host(pool_, journal, "h");
      EngineOptions options;
      options.sharding = options_of(offload);
      options.max_grad_norm = 1;
      const auto engine = make(device, host, options, 1, tied_head);
      const PackedBatch batch = make_batch(2, {9, 9});
      engine->train_step({&batch, 1}, kRate);
      const int before = journal.num_done['h'];
      journal.at_compute.clear();
      engine->evaluate(batch);
      std::vector<int> updated_units;
      for (const int num_done : journal.at_compute) {
        if (updated_units.empty() || updated_units.back() != num_done - before) {
          updated_units.push_back(num_done - before);
        }
      }
      // The model has a root and two blocks. With an untied head, the head is a fourth unit.
      EXPECT_EQ(updated_units, tied_head ? (std::vector{0, 1, 2, 3}) : (std::vector{0, 1, 2, 3, 4}));
    }
  }
}

// The forward pass does not wait for moments that are written late. In the next backward pass, a block's gradients
// are overwritten only after the work on its late moments has read them.
TEST_F(OrderTest, LateMomentsAreWrittenDuringTheNextBackward) {
  for (const Offload& offload : {Offload{H, D, D}, Offload{H, H, D}, Offload{H, H, H}}) {
    SCOPED_TRACE(words_of(offload));
    Journal journal;
    LateDevice device(pool_, journal, "muc"), host(pool_, journal, "h");
    EngineOptions options;
    options.sharding = options_of(offload);
    options.sharding.late_blocks = 2;
    options.max_grad_norm = 1;
    const auto engine = make(device, host, options, 1);
    const PackedBatch batch = make_batch(2, {9, 9});
    engine->train_step({&batch, 1}, kRate);
    EXPECT_EQ(journal.num_done['h'], 0);
    engine->evaluate(batch);
    EXPECT_EQ(journal.num_done['h'], 3);  // the updates of the three units
    // New gradients overwrite those of the previous step, which late moments still need. The compute stream does not
    // wait for late moments. If gradients are on the device, it waits only until the previous gradients are copied to
    // the host. If gradients are in host memory, only the copy stream waits for the late moments.
    probe(*engine).accumulate_gradients({&batch, 1});
    EXPECT_EQ(journal.num_done['h'], 3);
    // Three updates, and the late moments of two blocks.
    engine->states().save([&](StateKind, int64_t, ElemRange, View) { EXPECT_EQ(journal.num_done['h'], 5); });
    journal.num_done['h'] = 0;
    engine->train_step({&batch, 1}, kRate);
    engine->states().save([&](StateKind, int64_t, ElemRange, View) { EXPECT_EQ(journal.num_done['h'], 5); });
  }
}

// The next step may overwrite a unit's gradients as soon as the update of this unit has read them. It does not wait for
// the updates of other units.
TEST_F(OrderTest, GradientsWaitForTheUpdateThatReadsThem) {
  const Model model(small_config("bloom"), *device_);
  const auto ops = make_kernels(*device_);
  for (const Tier tier : {D, H, F}) {
    const ShardPlan plan(options_of({tier == D ? H : tier, tier, D}), 1, 0, 1);
    Streams streams;
    streams.compute = &late_device_.compute_stream();
    streams.comm = std::make_unique<LateStream>(journal_, 'm');
    streams.copy = std::make_unique<LateStream>(journal_, 'c');
    streams.host = std::make_unique<LateStream>(journal_, 'h');
    std::vector<PerSection<UnitShards>> units;
    for (int64_t u = 0; u < model.num_units(); ++u) {
      units.push_back({plan.cut(model.unit(u).table().num_elems(Section::trainable)), plan.cut(0), plan.cut(0)});
    }
    EngineContext context{late_device_, late_host_, *ops,       ops.get(),          RankGroups(*alone_, plan),
                          plan,         model,      DType::f32, std::move(streams), {DType::f32, DType::f32},
                          units};
    UnitGradients gradients(context, 1);
    std::string read;
    Stream& reader = tier == H ? *context.streams.host : *context.streams.copy;
    for (int64_t u = 0; u < model.num_units(); ++u) {
      reader.run([&read, u] { read += std::to_string(u); });
      gradients.read_until(u, reader.record());
    }
    gradients.begin_step();
    gradients.begin_micro_batch(true);
    EXPECT_EQ(read, "");
    gradients.acquire(0, false);
    EXPECT_EQ(read, tier == D ? "0" : "");
    gradients.reduce(0);
    gradients.end_micro_batch();
    gradients.complete(0, 1).synchronize();
    // With F, the copy stream writes the gradients of unit 0 to the file. The three reads are earlier work of this
    // stream, so they run before the write.
    EXPECT_EQ(read, tier == F ? "012" : "0");
    gradients.acquire(2, false);
    EXPECT_EQ(read, tier == H ? "0" : "012");
    context.streams = {};
  }
}

// The calling thread reads and writes parameters and states only after the compute stream has finished the update.
TEST_F(OrderTest, StatesWaitForTheUpdate) {
  const auto engine = make_late({});
  const PackedBatch batch = make_batch(2, {9, 9});
  int before = 0;
  const auto check = [&] { EXPECT_GT(journal_.num_compute_waits, before); };
  const auto after_update = [&](const char* what, const std::function<void()>& work) {
    SCOPED_TRACE(what);
    engine->train_step({&batch, 1}, kRate);
    before = journal_.num_compute_waits;
    work();
    check();
  };
  after_update("save", [&] { engine->states().save([&](StateKind, int64_t, ElemRange, View) { check(); }); });
  after_update("load", [&] { engine->states().load([&](StateKind, int64_t, ElemRange, View) { check(); }); });
  after_update("save parameters",
               [&] { engine->states().save_parameters([&](Section, int64_t, ElemRange, View) { check(); }); });
  after_update("initialize", [&] { engine->states().initialize(1); });
}

// There are three units. Each unit is one piece, which has four arrays: parameters, gradients and two moments. In the
// expected order, each c is an array that the copy stream reads or writes, and each h is a piece of work of the stream
// `host`.
TEST_F(OrderTest, FilesAreReadOnePieceAhead) {
  EngineOptions options;
  options.sharding = options_of({F, F, F});
  const auto engine = make_late(options, 2);  // with one micro-batch, the device would compute the norm
  const PackedBatch window[] = {make_batch(2, {9, 9}), make_batch(3, {9, 9})};
  probe(*engine).accumulate_gradients(window);
  const size_t num_before = journal_.put.size();
  probe(*engine).accumulate_gradients(window);
  const size_t num_of_backward = journal_.put.size() - num_before;
  journal_.put.clear();
  engine->train_step(window, kRate);
  EXPECT_EQ(journal_.put.substr(num_of_backward),
            // The sum of squares is set to zero. Then the squares of each piece are added.
            "h"
            "c"
            "c"
            "h"
            "c"
            "h"
            "h"
            // In the update, each piece is read before the previous piece is updated and written.
            "cccc"
            "cccc"
            "h"
            "ccc"
            "cccc"
            "h"
            "ccc"
            "h"
            "ccc");
}

// The next step waits until the gradients of this step are added up. This is also true for accumulate_gradients(),
// after which no update reads the sums.
TEST_F(OrderTest, GradientsAreAddedUpBeforeTheNextStepStoresItsFirst) {
  EngineOptions options;
  options.sharding = options_of({H, H, D});
  const auto outcome = [&](Engine& engine) {
    std::vector<PackedBatch> window;
    for (uint64_t i = 0; i < 3; ++i) window.push_back(make_batch(i, {5, 4}));
    for (int i = 0; i < 2; ++i) probe(engine).accumulate_gradients(window);
    return outcome_of(engine, 3);
  };
  Journal journal;
  LateDevice device(pool_, journal, "muc"), host(pool_, journal, "h");
  EXPECT_TRUE(outcome(*make(device, host, options, 3)) == outcome(*make(*device_, *host_, options, 3)));
}

// LateStream must compute the same bits as the streams of a CPU device, which are threads, also if backward recomputes
// values. The test covers every tier, units of one piece (the default size of pieces), and units of several pieces of
// 500 elements.
TEST_F(OrderTest, TheLatestScheduleComputesTheSameBits) {
  std::vector<Offload> all(std::begin(kOffloads), std::end(kOffloads));
  all.insert(all.end(), {{D, D, H}, {D, D, F}, {F, D, H}, {F, F, H}, {H, D, F}});
  size_t turn = 0;
  for (const Offload& offload : all) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t micro_batches : {1, 3}) {
        for (const int64_t piece_elems : {ShardOptions().piece_elems, int64_t{500}}) {
          EngineOptions options;
          options.dtype = dtype;
          options.max_grad_norm = 0.5;
          options.sharding = options_of(offload);
          options.sharding.forward_prefetch = micro_batches == 3;
          options.sharding.piece_elems = piece_elems;
          if (turn % 3 == 1) options.optimizer_states = OptimizerStates::q8;
          const bool tied_head = turn % 2 == 0;
          const char* const frozen =
              std::array<const char*, 5>{nullptr, "h.0.*", nullptr, "word*", "*.bias"}[turn++ % 5];
          const auto expected =
              outcome_of(*make(*device_, *host_, options, micro_batches, tied_head, frozen), micro_batches);
          for (const int64_t late_blocks : {0, 1, 2}) {
            options.sharding.late_blocks = late_blocks;
            options.recomputation = {.blocks = late_blocks / 2, .mlp = late_blocks, .attention = late_blocks % 2};
            Journal journal;
            LateDevice device(pool_, journal, "muc"), host(pool_, journal, "h");
            EXPECT_TRUE(outcome_of(*make(device, host, options, micro_batches, tied_head, frozen), micro_batches) ==
                        expected)
                << name_of(dtype) << " " << micro_batches << " " << piece_elems << " " << words_of(offload) << " "
                << late_blocks << " tied " << tied_head << " frozen " << (frozen ? frozen : "");
          }
        }
      }
    }
  }
}

// A run with some units on another tier computes the same bits as a run without offloading. With several micro-batches,
// offloaded gradients are added in another order than gradients that stay in the buffers of backward. The expected
// outcome is then the outcome with all gradients in host memory.
TEST_F(OrderTest, NoBitDependsOnWhichUnitsAreOffloaded) {
  ModelConfig config = small_config("bloom");
  config.num_layers = 5;
  int turn = 0;
  for (const bool tied_head : {true, false}) {
    config.tied_head = tied_head;
    for (const int64_t micro_batches : {1, 3}) {
      EngineOptions options;
      options.dtype = tied_head ? DType::f32 : DType::bf16;
      options.max_grad_norm = 0.5;
      const auto outcome = [&](Device& device, Device& host, const ShardOptions& sharding) {
        options.sharding = sharding;
        Engine engine({device, host, *alone_}, config, options);
        engine.prepare({kBounds, kBounds, kBounds, 8, micro_batches});
        engine.states().initialize(7);
        return outcome_of(engine, micro_batches);
      };
      const auto kept = outcome(*device_, *host_, {}), moved = outcome(*device_, *host_, options_of({H, H, D}));
      for (const Offload& offload : {Offload{H, D, D}, Offload{H, H, D}, Offload{H, H, H}, Offload{F, F, F},
                                     Offload{F, H, D}, Offload{D, D, H}}) {
        using enum OffloadedPart::Of;
        for (const auto& [optimizer, gradients, parameters] :
             {std::array<OffloadedPart, 3>{{{blocks, 3}, {blocks, 2}, {blocks, 1}}},
              {{{blocks, 2}, {blocks, 2}, {blocks, 4}}},
              {{{percent, 60}, {blocks, 1}, {percent, 1}}},
              {{{all}, {percent, 99}, {all}}}}) {
          ShardOptions sharding = options_of(offload);
          sharding.offload.part_of_optimizer = optimizer;
          sharding.offload.part_of_gradients = gradients;
          sharding.offload.part_of_parameters = parameters;
          sharding.max_units_in_flight = 1 + turn % 4;
          sharding.late_blocks = turn++ % 3;
          sharding.device_update_percent = turn % 5 * 25;
          Journal journal;
          LateDevice device(pool_, journal, "mucido"), host(pool_, journal, "h");  // i, d, o: streamed states
          const bool moves = micro_batches > 1 && offload.gradients != D;
          EXPECT_TRUE(outcome(device, host, sharding) == (moves ? moved : kept))
              << words_of(offload) << " " << optimizer.number << " " << gradients.number << " " << parameters.number
              << " " << micro_batches;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera

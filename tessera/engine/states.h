// The states of a rank: its parameters and AdamW's moments. Loads, initializes, saves and checks them. Each rank reads
// and writes only its own part. One exception: with load_parameters(…, from_rank_0), rank 0 reads all parameters and
// broadcasts them.
//
// Each call waits for all work of the engine, because the host then reads and writes the arrays.
#pragma once

#include <functional>
#include <optional>

#include "tessera/device/stack.h"
#include "tessera/engine/optimizer.h"

namespace tessera {

// The arrays that a checkpoint holds for a unit: the parameters of each section, and AdamW's moments of the trainable
// section.
enum class StateKind { parameters, moment1, moment2, frozen, quantized };
inline constexpr StateKind kStateKinds[] = {StateKind::parameters, StateKind::moment1, StateKind::moment2,
                                            StateKind::frozen, StateKind::quantized};
constexpr Section section_of(StateKind kind) {
  return kind == StateKind::frozen      ? Section::frozen
         : kind == StateKind::quantized ? Section::quantized
                                        : Section::trainable;
}
// The parameters of a section.
constexpr StateKind parameters_of(Section section) {
  return section == Section::frozen      ? StateKind::frozen
         : section == Section::quantized ? StateKind::quantized
                                         : StateKind::parameters;
}

// Refers to arrays of an engine (Engine::states()).
class UnitStates {
 public:
  // `optimizer` is null unless the engine trains. `stack` is null before the engine is prepared.
  UnitStates(EngineContext& context, UnitParameters& parameters, const UnitOptimizer* optimizer, Stack* stack)
      : context_(context), parameters_(parameters), optimizer_(optimizer), stack_(stack) {}

  const Model& model() const { return context_.model; }
  // The type of the arrays that save() passes when training. Masters (the parameters as AdamW updates them) and moments
  // have the types that EngineOptions::optimizer_states gives. Frozen parameters have the format of their section.
  DType dtype(StateKind kind) const {
    switch (kind) {
      case StateKind::moment1:
        return context_.moment1_dtype();
      case StateKind::moment2:
        return context_.moment2_dtype();
      case StateKind::parameters:
        return context_.master_dtype();
      case StateKind::frozen:
      case StateKind::quantized:
        return context_.formats[section_of(kind)];
    }
    assertion_failed("a kind has a type", __FILE__, __LINE__);
  }
  // The number of elements of a unit's array, over all ranks. An element of quantized moments is a block of values. Its
  // last block ends with zeros if the section ends within the block.
  int64_t num_elems(StateKind kind, int64_t unit) const { return cut(kind, unit).num_elems; }

  // Functions that read or write elements `range` of a section of a unit: its parameters, or the array of the given
  // kind. `to` and `from` are in host memory and have any floating-point type, the type of quantized moments, or nf4
  // for quantized parameters. `to` may also have a rest type (f16_rest or bf16_rest, dtype.h). The function then writes
  // the rest of each value: the part that the value loses when it is rounded to 16 bits.
  using ReadParameters = std::function<void(Section section, int64_t unit, ElemRange range, View to)>;
  using WriteParameters = std::function<void(Section section, int64_t unit, ElemRange range, View from)>;
  using ReadState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View to)>;
  using WriteState = std::function<void(StateKind kind, int64_t unit, ElemRange range, View from)>;

  // Draws every parameter from the initial distribution that the model's architecture gives to it. The same seed gives
  // the same bits with any sharding.
  void initialize(uint64_t seed);
  // Calls `read` unit by unit, for the elements that this rank keeps. With `from_rank_0`, the call is collective: only
  // rank 0 calls `read`, for all elements, and broadcasts them in pieces. Each rank keeps its own elements.
  void load_parameters(const ReadParameters& read, bool from_rank_0 = false);
  // Whether a call passes the arrays of a kind of a unit.
  using Wanted = std::function<bool(StateKind kind, int64_t unit)>;
  static bool all(StateKind, int64_t) { return true; }

  // Loads the parameters that this rank keeps and, when training, AdamW's moments.
  void load(const ReadState& read, const Wanted& wanted = all);
  // The elements of a unit that this rank writes to a checkpoint. Over all ranks, each element is written once.
  ElemRange saved_range(StateKind kind, int64_t unit) const { return context_.plan.saved(cut(kind, unit)); }
  // Calls `write` with the elements saved_range() of each unit and kind. Skips empty ranges. `write` receives a range
  // in one call, or in consecutive pieces. Passes moments only when training.
  void save(const WriteState& write, const Wanted& wanted = all);
  // Like save(), but passes only the parameters, section by section.
  void save_parameters(const WriteParameters& write, const Wanted& wanted = all);

  // Returns the first unit whose trainable parameters contain NaN or infinity on any rank, or nullopt if all are
  // finite. When training, it checks the masters. Uses no more memory than save(). Collective.
  std::optional<int64_t> find_non_finite_unit();

 private:
  using Read = std::function<void(ElemRange range, View to)>;
  using Write = std::function<void(ElemRange range, View from)>;
  class DeviceStaging;

  bool counting() const { return context_.device.kind() == DeviceKind::counting; }
  // How the array of a kind is cut into shards, in elements of its type.
  UnitShards cut(StateKind kind, int64_t unit) const {
    return context_.cut(unit, section_of(kind)).in_elements_of(values_of(dtype(kind)));
  }
  void wait_for_all_streams();
  // The gathered copies are out of date now. The kept parts are up to date.
  void parameters_changed();
  // Whether the host can access a unit's array.
  bool visible(const UnitArrays& arrays, int64_t unit) const;
  template <typename Visit>
  void for_each_parameter_array(Visit&& visit);
  void load_sections(const ReadParameters& read, const Wanted& wanted);
  void load_from_rank_0(const ReadParameters& read);
  void load_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first, const Read& read);
  void save_array(const UnitArrays& arrays, int64_t unit, ElemRange range, int64_t first, const Write& write);
  // Calls `write` with elements `range` of a section's parameters. When training, these are the masters of the
  // trainable section. This rank must keep these elements.
  void save_range(Section section, int64_t unit, ElemRange range, const Write& write);
  void draw_quantized(uint64_t seed, const UnitArrays& arrays, int64_t unit, ElemRange range);
  void save_masters(int64_t unit, ElemRange range, const Write& write);
  void join_masters(int64_t unit, int64_t first, View masters);
  double sum_of_squared_parameters(int64_t unit);

  EngineContext& context_;
  UnitParameters& parameters_;
  const UnitOptimizer* optimizer_;
  Stack* stack_;
};

}  // namespace tessera

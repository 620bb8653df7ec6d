// The optimizer of a rank. It holds the moments of AdamW and the master parameters (the values that AdamW updates) of
// the part of the model that this rank updates. It runs the update on the units in forward order.
#pragma once

#include "tessera/engine/gradients.h"
#include "tessera/engine/late_moments.h"
#include "tessera/engine/parameters.h"
#include "tessera/optim/adamw.h"

namespace tessera {

class UnitOptimizer {
 public:
  // Allocates all arrays, zeroed. The arguments must outlive this object.
  UnitOptimizer(EngineContext& context, UnitParameters& parameters, UnitGradients& gradients);

  // Returns the sum of squares of the step's gradients that this rank counts. Over all ranks, each element counts once.
  // The ranks of the first shard group (ShardPlan::replica() is 0) return their sum. A rank of another group returns 0
  // if its sum is finite, and otherwise its sum.
  double sum_of_squares();
  // Runs update number `number` of AdamW, counted from 1, on everything that this rank updates. Offloaded states are
  // updated in pieces. For each unit, an event marks when its new parameters are complete. The next forward waits for
  // this event. Gradients are multiplied by `gradient_scale`. `seed` is for the stochastic rounding of bf16 states.
  void update(const AdamWOptions& options, uint64_t seed, int64_t number, double learning_rate, double gradient_scale);

  // The arrays of the part that this rank updates, which is range(unit) of each unit. In master(), this part begins at
  // element first_master_elem(); in rest(), moment1() and moment2(), at element 0. An element of quantized moments
  // holds several values (values_of()). master() has the format of the trainable section. If masters are split
  // (EngineContext::splits_masters()), each f32 master is in two arrays: master() holds its 16-bit value, and rest()
  // holds the part of the f32 that the 16-bit value does not hold (dtype.h). Otherwise rest() has no arrays.
  ElemRange range(int64_t unit) const { return context_.updated(unit); }
  // Whether the masters are arrays of their own, because the kept parameters are on another tier. Otherwise the kept
  // parameters are the masters.
  bool has_own_master(int64_t unit) const {
    return context_.plan.tier(ArrayKind::optimizer, unit) != context_.plan.tier(ArrayKind::trainable, unit) &&
           !streams_states(unit);
  }
  const UnitArrays& master(int64_t unit) const {
    return has_own_master(unit) ? own_master_ : parameters_.kept(Section::trainable);
  }
  int64_t first_master_elem(int64_t unit) const { return has_own_master(unit) ? 0 : first_kept_elem(unit); }
  const UnitArrays& rest() const { return rest_; }
  const UnitArrays& moment1() const { return m_; }
  const UnitArrays& moment2() const { return v_; }

 private:
  struct PieceBuffers {  // buffers in host memory for one piece
    Buffer master, rest, m, v, gradient;
    Event ready, free;
  };
  struct Piece {
    int64_t unit, first, last;  // parameters [first, last), counted from the start of range(unit)
    AdamWWrites writes = AdamWWrites::all;
    int64_t size() const { return last - first; }
    bool same_work(const Piece& other) const { return unit == other.unit && writes == other.writes; }
  };

  int64_t first_kept_elem(int64_t unit) const {
    return range(unit).begin - parameters_.kept_range(unit, Section::trainable).begin;
  }
  // Buffers on the device for a piece of a unit whose states are in host memory.
  struct StreamedPiece {
    Buffer master, rest, m, v, gradient;
    Event free;
  };
  // Where a unit is updated: on the device; on the device, through buffers, if its states are in host memory and the
  // device updates them (streams_states()); otherwise on the host, in host memory, or through buffers if its states are
  // in a file. The gradients of a unit that the host updates come through a buffer unless they are in host memory.
  Tier tier(int64_t unit) const { return context_.plan.tier(ArrayKind::optimizer, unit); }
  bool streams_states(int64_t unit) const { return context_.plan.streams_states(unit); }
  bool on_host(int64_t unit) const { return tier(unit) != Tier::device && !streams_states(unit); }
  bool buffers_states(int64_t unit) const { return tier(unit) == Tier::file; }
  bool buffers_gradient(int64_t unit) const { return on_host(unit) && gradients_.tier(unit) != Tier::host; }
  void allocate_buffers();
  void allocate_streamed_pieces();
  int64_t streamed_piece_elems() const;
  void choose_late_candidates();
  template <typename PartOf>
  std::vector<Piece> pieces(PartOf&& part_of) const;
  AdamWStep step_of(const AdamWStep& step, const Piece& piece) const;
  void update_on_device(int64_t unit, const AdamWStep& step);
  void update_streamed(int64_t unit, const AdamWStep& step);
  void update_in_pieces(const AdamWStep& step);
  Event send_to_kept(int64_t unit);
  int64_t num_late_blocks();
  std::vector<Piece> pieces_of_update(int64_t num_late) const;
  void add_squares_on_device();
  void add_squares_on_host();
  ElemRange counted(int64_t unit) const;
  void fetch(const Piece& piece, PieceBuffers& buffers);
  void fetch_gradient(const Piece& piece, PieceBuffers& buffers);
  View gradient_in(const PieceBuffers& buffers, const Piece& piece) const;
  Event update_piece(const Piece& piece, PieceBuffers& buffers, const AdamWStep& step);

  EngineContext& context_;
  UnitParameters& parameters_;
  UnitGradients& gradients_;
  UnitArrays own_master_;  // of the units with has_own_master()
  UnitArrays rest_;        // if masters are split
  UnitArrays m_, v_;
  std::vector<int64_t> first_elems_;         // for each unit: number of trainable elements in all earlier units
  std::vector<PieceBuffers> piece_buffers_;  // for the units that the host updates
  std::vector<StreamedPiece> streamed_pieces_;
  size_t next_streamed_ = 0;
  std::vector<Event> states_written_;     // [units] after the new states of a streamed unit are in host memory
  Buffer leaving_;                        // for new parameters on their way from the device to a file
  Event left_;                            // after the last copy of new parameters from the device to another tier
  std::vector<int64_t> late_candidates_;  // the blocks whose moments may be late, in forward order
  // Set if measured times choose the number of blocks with late moments. The host stream uses it until event timed_.
  std::optional<LateMoments> late_moments_;
  Event timed_;
  Buffer squares_;  // [units] f64, in host memory: the squares that the host adds up
};

}  // namespace tessera

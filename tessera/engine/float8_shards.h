// The weights of the blocks in 8 bits, for ranks that gather them so (ShardOptions::gather_float8).
//
// After an update, each rank rounds the elements of its shard, and keeps their codes until the next update. A shard may
// end within a square of values that share a scale. Therefore the ranks first exchange the largest magnitudes of the
// squares in their shards. Scales and codes then have the bits that Kernels::quantize() gives to complete weights. The
// other parameters of these sections, such as the weights of norms, are few. The ranks send them to each other at the
// same time, and all ranks keep them.
#pragma once

#include <optional>
#include <vector>

#include "tessera/engine/unit_arrays.h"

namespace tessera {

class Float8Shards {
 public:
  // Allocates what this rank keeps. `kept` has the parameters that this rank keeps (UnitParameters::kept()). Both
  // arguments must outlive this object. Throws UsageError if no section is gathered in 8 bits.
  Float8Shards(EngineContext& context, const PerSection<UnitArrays>& kept);

  // Whether a section of a unit is gathered in 8 bits: the section of a block that begins with the weights of linear
  // layers, if the parameters after these weights are fewer.
  bool has(int64_t unit, Section section) const { return section_of(unit, section).has_value(); }
  // The section's parameters have new values.
  void replaced(int64_t unit, Section section);
  // Gathers a section, on the stream of collectives. `whole` is the space for the complete section in the type of the
  // computation. Its first bytes get the codes, and the parameters that have no codes get their own places.
  // Collective.
  void gather(int64_t unit, Section section, View whole);
  // What gather() wrote to `whole`.
  Float8Weights weights(int64_t unit, Section section, View whole) const;

 private:
  struct Rounded {
    std::vector<Float8Place> places;
    int64_t num_rounded = 0, num_others = 0;  // elements [0, num_rounded) have codes, and the others follow them
    int64_t num_scales = 0;
    View codes;   // of this rank's shard
    View scales;  // of all squares
    View others;  // complete
    bool stale = true;
  };

  std::optional<Rounded>& section_of(int64_t unit, Section section) {
    return sections_[static_cast<size_t>(unit)][section];
  }
  const std::optional<Rounded>& section_of(int64_t unit, Section section) const {
    return sections_[static_cast<size_t>(unit)][section];
  }
  // What a section consists of, without its arrays. Nothing if it is not gathered in 8 bits.
  std::optional<Rounded> layout_of(int64_t unit, Section section) const;
  void round_shard(int64_t unit, Section section, Rounded& rounded);
  void exchange_others(int64_t unit, Section section, const Rounded& rounded);

  EngineContext& context_;
  const PerSection<UnitArrays>& kept_;
  std::vector<PerSection<std::optional<Rounded>>> sections_;  // [units]
  Buffer memory_;                                             // the views of all sections
  Buffer largest_;  // the largest magnitudes of the squares of one section, from each rank
};

}  // namespace tessera

// The arrays of one kind (for example, the gradients or the first moments of all units), one array per unit. Each array
// is on the tier that the plan gives to its kind and unit.
#pragma once

#include <string>
#include <vector>

#include "tessera/engine/engine_context.h"

namespace tessera {

class UnitArrays {
 public:
  UnitArrays() = default;
  // Allocates zeroed arrays of elems[unit] elements, with one allocation per tier. If given[unit] is not empty (only on
  // Tier::device), allocates nothing for this unit: given[unit] is device memory that the caller owns, and becomes the
  // unit's array. Tier::file uses one unnamed file in ShardOptions::file_folder. The file disappears with this object.
  // Every rank creates the folder if it is missing. Throws OutOfMemoryError. Throws RunError if the folder cannot be
  // written or has no room. On Tier::device, the memory comes from `from`, if it is not null.
  UnitArrays(EngineContext& context, ArrayKind kind, Category category, DType dtype, std::vector<int64_t> elems,
             std::vector<View> given = {}, Allocator* from = nullptr);
  ~UnitArrays();
  UnitArrays(UnitArrays&& other) noexcept { swap(other); }
  UnitArrays& operator=(UnitArrays&& other) noexcept {
    UnitArrays(std::move(other)).swap(*this);
    return *this;
  }

  Tier tier(int64_t unit) const { return places_[static_cast<size_t>(unit)].tier; }
  DType dtype() const { return dtype_; }
  int64_t num_elems(int64_t unit) const { return places_[static_cast<size_t>(unit)].elems; }
  // view() returns a unit's array. views() returns the arrays of all units from first_unit to last_unit (inclusive) as
  // one contiguous view. Several units must be on one tier, and none of them may have a given array. Not for
  // Tier::file.
  View view(int64_t unit) const { return views(unit, unit); }
  View views(int64_t first_unit, int64_t last_unit) const;

  // load() copies elements [first, first + n) of a unit's array to a view of n elements. save() copies the view to
  // these elements. Both copies run on the stream, after its earlier work. On Tier::file, the view must be in host
  // memory. If the file cannot be read or written, the stream throws RunError.
  void load(int64_t unit, int64_t first, View to, Stream& stream) const;
  void save(int64_t unit, int64_t first, View from, Stream& stream) const;

 private:
  struct Place {
    Tier tier;
    int64_t elems, offset;  // offset: bytes in the tier's buffer or file
    View given;             // an array that the caller owns, or empty
  };

  void swap(UnitArrays& other) noexcept;
  int64_t offset_of(int64_t unit, int64_t first) const {
    return places_[static_cast<size_t>(unit)].offset + bytes_of(first, dtype_);
  }

  DType dtype_ = DType::f32;
  std::vector<Place> places_;  // [units]
  Buffer device_, host_;
  int file_ = -1;
  std::string folder_;
};

}  // namespace tessera

// The arrays of one kind, one a unit, on the tier where they live between their uses.
#pragma once

#include <string>
#include <vector>

#include "tessera/engine/workplace.h"

namespace tessera {

class Shelf {
 public:
  Shelf() = default;
  // Zeroed arrays of elems[unit] elements. Tier::file keeps them in one file of the folder that has no name, so that it
  // goes with the process. The first unit's array may lie elsewhere on the device, at `first`, where its owner holds
  // it. A folder that is missing is made, by every rank that needs it. OutOfMemoryError; RunError: the folder cannot
  // be written or has no room.
  Shelf(Workplace& place, Tier tier, Category category, DType dtype, std::vector<int64_t> elems, View first = {});
  ~Shelf();
  Shelf(Shelf&& other) noexcept { swap(other); }
  Shelf& operator=(Shelf&& other) noexcept {
    Shelf(std::move(other)).swap(*this);
    return *this;
  }

  bool empty() const { return elems_.empty(); }
  Tier tier() const { return tier_; }
  DType dtype() const { return dtype_; }
  int64_t num_elems(int64_t unit) const { return elems_[static_cast<size_t>(unit)]; }
  // The array itself, unless it lies in the file. Arrays of units that follow each other are one range, but for one
  // that lies elsewhere.
  View view(int64_t unit) const { return views(unit, unit); }
  View views(int64_t first_unit, int64_t last_unit) const;

  // Elements [first, first + to.num_elems()) of a unit's array to or from a view, in the order of the stream. On
  // Tier::file the view lies in the host's memory; RunError of the stream: the file cannot be read or written.
  void load(int64_t unit, int64_t first, View to, Stream& stream) const;
  void save(int64_t unit, int64_t first, View from, Stream& stream) const;

 private:
  void swap(Shelf& other) noexcept;
  int64_t offset_of(int64_t unit, int64_t first) const {
    return offsets_[static_cast<size_t>(unit)] + bytes_of(first, dtype_);
  }

  Tier tier_ = Tier::device;
  DType dtype_ = DType::f32;
  std::vector<int64_t> elems_;
  std::vector<int64_t> offsets_;  // in bytes, of the buffer or the file
  View first_;                    // the first unit's, if elsewhere
  Buffer buffer_;
  int file_ = -1;
  std::string folder_;
};

}  // namespace tessera

// Memory in last-in-first-out order: the forward pass pushes arrays, the backward pass pops them. All arrays are in one
// buffer. To find the size of this buffer, the engine first runs one training step, one evaluation and one generation
// on the counting device, each with the largest batch.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "tessera/device/device.h"

namespace tessera {

class Stack {
 public:
  // Allocates a buffer of `capacity_bytes` bytes on the device, under Category::activations.
  Stack(Device& device, int64_t capacity_bytes) : buffer_(device.allocate(capacity_bytes, Category::activations)) {}

  // Pushes an array with unspecified contents. Throws OutOfMemoryError if the capacity is too small. This is a fault
  // of the plan, which must cover every batch.
  View push(Shape shape, DType dtype);
  bool has_room_for(Shape shape, DType dtype) const {
    return height_bytes_ + bytes_on_stack(shape, dtype) <= buffer_.bytes();
  }

  // The current height. pop_to(mark) frees everything that was pushed after the call of mark().
  int64_t mark() const { return height_bytes_; }
  void pop_to(int64_t mark) {
    TESSERA_ASSERT(mark <= height_bytes_);
    if (std::exchange(height_bytes_, mark) != mark && watch_) watch_(mark);
  }
  int64_t peak_bytes() const { return peak_bytes_; }
  // Calls `watch` after each change of the height, from now on.
  void watch(std::function<void(int64_t height_bytes)> watch) { watch_ = std::move(watch); }
  // Returns the highest peak of all MeasuredScopes since the previous call, in bytes, or 0 if there was none.
  int64_t take_measured_peak_bytes() { return std::exchange(measured_peak_bytes_, 0); }

 private:
  friend class MeasuredScope;
  static int64_t bytes_on_stack(Shape shape, DType dtype);

  Buffer buffer_;
  int64_t height_bytes_ = 0, peak_bytes_ = 0;
  std::optional<int64_t> measured_from_;  // the height at the start of the current MeasuredScope, if any
  int64_t measured_peak_bytes_ = 0;
  std::function<void(int64_t)> watch_;
};

// The destructor of a StackScope pops everything that was pushed after its construction.
class StackScope {
 public:
  explicit StackScope(Stack& stack) : stack_(stack), mark_(stack.mark()) {}
  ~StackScope() { stack_.pop_to(mark_); }
  StackScope(const StackScope&) = delete;
  StackScope& operator=(const StackScope&) = delete;

 private:
  Stack& stack_;
  int64_t mark_;
};

// A StackScope that also measures its peak: the most bytes that were on the stack above the height at its construction.
// The stack keeps the highest peak of all MeasuredScopes for take_measured_peak_bytes(). The model's head uses a
// MeasuredScope. A MeasuredScope must not contain another MeasuredScope.
class MeasuredScope {
 public:
  explicit MeasuredScope(Stack& stack) : scope_(stack), stack_(stack) {
    TESSERA_ASSERT(!stack.measured_from_);
    stack.measured_from_ = stack.mark();
  }
  ~MeasuredScope() { stack_.measured_from_.reset(); }
  MeasuredScope(const MeasuredScope&) = delete;
  MeasuredScope& operator=(const MeasuredScope&) = delete;

 private:
  StackScope scope_;
  Stack& stack_;
};

}  // namespace tessera

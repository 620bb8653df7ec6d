// TensorBoard's event files. A file is a sequence of records. A record has a length, a protobuf Event, and checksums of
// both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/record.h"

namespace tessera {

// The Event messages that Tessera writes. `wall_s` is in seconds since 1970.
std::string version_event(double wall_s);  // the first event of a file
// When TensorBoard reads this event, it drops all earlier events with a step of at least first_step.
std::string start_event(int64_t first_step, double wall_s);
std::string text_event(const std::string& tag, std::string_view markdown, double wall_s);
std::string scalars_event(const Record& scalars, int64_t step, double wall_s);  // tag → number; null becomes NaN

// The complete record of an event. The caller appends it to a file.
std::string event_bytes(std::string_view event);

class EventFileReader {
 public:
  explicit EventFileReader(std::string_view file) : file_(file) {}
  // Returns the next Event. Returns nothing at the end, or where the file is damaged or cut off.
  std::optional<std::string_view> next();
  int64_t end_bytes() const { return end_bytes_; }  // where the last returned event ends in the file

 private:
  std::string_view file_;
  int64_t end_bytes_ = 0;
};

// Whether an event has a value with this tag. If so, sets `step` to the event's step.
bool has_tag(std::string_view event, std::string_view tag, int64_t& step);

}  // namespace tessera

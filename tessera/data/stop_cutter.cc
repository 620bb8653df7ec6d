#include "tessera/data/stop_cutter.h"

#include <algorithm>
#include <utility>

namespace tessera {

std::string StopCutter::add(std::string_view part) {
  if (has_stopped_) return "";
  std::string text = std::exchange(held_, "");
  text += part;
  size_t first_begin = 0, first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end > first_end || (end == first_end && begin >= first_begin)) continue;
    first_begin = begin;
    first_end = end;
  }
  if (first_end != std::string::npos) {
    has_stopped_ = true;
    return text.substr(0, first_begin);
  }
  size_t num_held = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, text.size()); size > num_held; --size) {
      if (text.ends_with(std::string_view(stop).substr(0, size))) num_held = size;
    }
  }
  held_ = text.substr(text.size() - num_held);
  text.resize(text.size() - num_held);
  return text;
}

std::string StopCutter::finish() {
  return std::exchange(held_, "");
}

}  // namespace tessera

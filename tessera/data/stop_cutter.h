// Cuts a text before a stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The text arrives in parts. It ends before the first stop string: the one that is complete first or, if several are
// complete at the same byte, the longest of them. The returned parts do not depend on how the text is divided, and
// contain no part of this stop string.
class StopCutter {
 public:
  // No stop string may be empty.
  explicit StopCutter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // The text that certainly belongs before a stop string now. Empty after a stop string.
  std::string add(std::string_view part);
  // The rest of the text, which could have become a stop string. Call it after the last part.
  std::string finish();
  // Whether a stop string has ended the text.
  bool has_stopped() const { return has_stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest end of the text that may be the begin of a stop string
  bool has_stopped_ = false;
};

}  // namespace tessera

// Numbers with their nouns, for messages.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace tessera {

// "sample" for 1, "samples" for all other counts.
template <std::integral Count>
std::string noun_for(Count count, std::string_view noun) {
  return std::string(noun) + (count == 1 ? "" : "s");
}

// "1 sample", "22 samples".
template <std::integral Count>
std::string counted(Count count, std::string_view noun) {
  return std::to_string(count) + " " + noun_for(count, noun);
}

}  // namespace tessera

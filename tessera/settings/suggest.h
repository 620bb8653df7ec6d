// Helpers for messages: lists of words; closest_word.h adds "Did you mean …?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/closest_word.h"

namespace tessera {

// The words of a comma-separated list, without spaces around them and without empty words.
std::vector<std::string> split_list(std::string_view text);

// Joins the words with the separator.
std::string joined(const std::vector<std::string>& words, std::string_view separator);

}  // namespace tessera

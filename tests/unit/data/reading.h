// Reads rows from texts, and makes rows in SQuAD's format.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/data/examples.h"

namespace tessera {

inline std::vector<Example> read(std::string_view content) {
  return examples_from_text(content, "f.json");
}

// Returns the message of the InputError that the content must cause.
inline std::string refusal(std::string_view content) {
  try {
    read(content);
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << content.substr(0, 200);
  return "";
}

inline std::string squad(const std::string& context, const std::string& questions) {
  return R"({"version": "1.1", "data": [{"title": "t", "paragraphs": [{"context": ")" + context + R"(", "qas": [)" +
         questions + "]}]}]}";
}

inline std::string question(const std::string& answer, int start) {
  return R"({"id": "q1", "question": "Q?", "answers": [{"text": ")" + answer + R"(", "answer_start": )" +
         std::to_string(start) + "}]}";
}

}  // namespace tessera

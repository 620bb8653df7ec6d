// The templates and references in this folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tessera/jinja/template.h"

namespace tessera::jinja {

using Json = nlohmann::ordered_json;

inline std::string read_text(const std::string& name) {
  std::ifstream file(std::string(TESSERA_TEST_DIR "/unit/jinja/") + name);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// The names of the templates, sorted.
inline std::vector<std::string> template_names() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_TEST_DIR "/unit/jinja/templates")) {
    out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The time that tools/make_jinja_references.py uses: Saturday, 4 July 2026, 9:05.
inline std::tm reference_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 6;
  time.tm_mday = 4;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_wday = 6;
  time.tm_yday = 184;
  return time;
}

}  // namespace tessera::jinja

// A DeepSpeed configuration file (JSON): checks its keys, and gives typed access by path.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A path looks like "zero_optimization.stage". The getters return nullopt for a key that is missing, null or "auto".
// If a value does not have the type that the getter returns, they throw UsageError with the path. A text is never
// converted to a number.
class DeepSpeedFile {
 public:
  // Throws UsageError if the text is not a JSON object. Also throws it for an unknown key, and for a key or value that
  // selects an unsupported feature.
  DeepSpeedFile(std::string_view text, std::string name);

  std::string where(const std::string& path) const { return name_ + ": " + path; }
  const std::string& name() const { return name_; }
  bool has(const std::string& path) const { return find(path) != nullptr; }
  bool is_auto(const std::string& path) const;

  std::optional<bool> boolean(const std::string& path) const;
  std::optional<int64_t> whole(const std::string& path) const;  // also accepts 5e8
  std::optional<double> real(const std::string& path) const;
  std::optional<std::string> word(const std::string& path) const;
  std::optional<std::pair<double, double>> pair(const std::string& path) const;  // an array of two numbers

  // The keys of this file that have no effect in Tessera, each with a reason: "zero_optimization.overlap_comm (always
  // overlapped)".
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  const nlohmann::json* find(const std::string& path) const;
  const nlohmann::json* value(const std::string& path) const;  // nullptr if missing, null or "auto"
  void check_type(const std::string& section, const std::vector<std::string>& types);
  void check_keys(const nlohmann::json& object, const std::string& prefix);
  [[noreturn]] void wrong_type(const std::string& path, const nlohmann::json& value, const char* wanted) const;

  std::string name_;
  nlohmann::json root_;
  std::vector<std::string> ignored_;
};

}  // namespace tessera

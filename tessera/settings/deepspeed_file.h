// DeepSpeed's JSON configuration as a file: which keys there are, and typed access by path.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Access is by path: "zero_optimization.stage". A key that is absent, null or "auto" gives nothing. A value of another
// type is a UsageError that names the path; a text is never taken for a number.
class DeepSpeedFile {
 public:
  // Throws UsageError: no JSON object, a key that DeepSpeed does not have, or one that asks for what Tessera does not
  // do.
  DeepSpeedFile(std::string_view text, std::string name);

  std::string where(const std::string& path) const { return name_ + ": " + path; }
  const std::string& name() const { return name_; }
  bool has(const std::string& path) const { return find(path) != nullptr; }
  bool is_auto(const std::string& path) const;

  std::optional<bool> boolean(const std::string& path) const;
  std::optional<int64_t> whole(const std::string& path) const;  // also 5e8
  std::optional<double> real(const std::string& path) const;
  std::optional<std::string> word(const std::string& path) const;
  std::optional<std::pair<double, double>> pair(const std::string& path) const;  // an array of two numbers

  // "zero_optimization.overlap_comm (always overlapped)": the keys of this file that have no meaning here.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  const nlohmann::json* find(const std::string& path) const;
  const nlohmann::json* value(const std::string& path) const;  // nullptr for null and "auto", too
  void check_type(const std::string& section, const std::vector<std::string>& types);
  void check_keys(const nlohmann::json& object, const std::string& prefix);
  [[noreturn]] void wrong_type(const std::string& path, const nlohmann::json& value, const char* wanted) const;

  std::string name_;
  nlohmann::json root_;
  std::vector<std::string> ignored_;
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera {

// Memory that processes of one machine share. It has no file, so that nothing is left of it however they end: others
// open it through /proc of the process that made it, while that has it. Empty when it could not be had: where the
// system has none to give, or does not let this process see into that one (another user's, or of other namespaces).
class SharedPages {
 public:
  static SharedPages create(int64_t bytes);                         // zeroed
  static SharedPages open(const std::string& name, int64_t bytes);  // that of another process's
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&&) = delete;
  ~SharedPages();

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  // By which others open what this process has made; empty if it has not. Letters, digits and '-', 63 at most.
  const std::string& name() const { return name_; }

 private:
  SharedPages(int descriptor, int64_t bytes);  // −1 for none
  std::byte* data_ = nullptr;
  size_t bytes_;
  std::string name_;
  int descriptor_ = -1;  // through which others open it
};

}  // namespace tessera

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera {

// Memory that processes of one machine share under a name until it is removed. Empty when it could not be had.
class SharedPages {
 public:
  // A name that no other pages of this machine have.
  static std::string unique_name();
  static SharedPages create(const std::string& name, int64_t bytes);  // zeroed
  static SharedPages open(const std::string& name, int64_t bytes);
  static void remove(const std::string& name);  // from the names: those who have it keep it
  SharedPages(SharedPages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  SharedPages& operator=(SharedPages&&) = delete;
  ~SharedPages();

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  SharedPages(int descriptor, int64_t bytes);  // takes the descriptor; −1 for none
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace tessera

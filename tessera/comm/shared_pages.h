#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tessera {

// Memory that processes of one machine share. It is not in a file system, so nothing is left behind when the processes
// end. While its creator holds it, other processes can open it through the creator's entries in /proc. The object is
// empty if the memory is not available. For create(), the usual reason is that too little memory is free. For open(),
// the usual reason is that the creator has ended, or belongs to another user or namespace.
class SharedPages {
 public:
  static SharedPages create(int64_t bytes);                         // zeroed
  static SharedPages open(const std::string& name, int64_t bytes);  // pages that another process has created
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&&) = delete;
  ~SharedPages();

  std::byte* data() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  // Other processes pass this name to open(). Empty if this process did not create the pages. At most 63 characters:
  // letters, digits and '-'.
  const std::string& name() const { return name_; }

 private:
  SharedPages(int descriptor, int64_t bytes);  // the descriptor −1 makes an empty object
  std::byte* data_ = nullptr;
  size_t bytes_;
  std::string name_;
  int descriptor_ = -1;  // other processes open the pages through it
};

}  // namespace tessera

#include "tessera/app/shared_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhat = "the shared folder";

fs::path existing_parent(fs::path path) {
  std::error_code error;
  while (!fs::exists(path, error) && path != path.parent_path()) path = path.parent_path();
  return path;
}

// The text of the error that `work` throws. Empty if `work` throws nothing.
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Whether the file has this content. Checks again for up to 3 s, because network file systems may show a new file late.
bool sees(const fs::path& path, const std::string& content) {
  constexpr int kTries = 30;
  for (int i = 0; i < kTries; ++i) {
    bool is_there = false;
    error_of([&] { is_there = read_file(path.string(), {}) == content; });
    if (is_there) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

}  // namespace

SharedFolder check_shared_folder(Communicator& world, const std::string& folder,
                                 const std::vector<std::string>& ranks) {
  const int rank = world.rank();
  std::error_code none;
  fs::path asked = fs::absolute(folder, none).lexically_normal();
  if (!asked.has_filename()) asked = asked.parent_path();  // removes a slash at the end
  const auto from_first = [&](const std::string& text) {
    return world.all_gather_text(rank == 0 ? text : "", kWhat)[0];
  };
  SharedFolder result;
  result.folder = from_first(asked.string());
  result.tested = from_first(existing_parent(asked).string());
  const std::string mark = from_first(fmt::format("{:08x}{:08x}", std::random_device()(), getpid()));
  const auto file_of = [&](int r) { return fs::path(result.tested) / fmt::format(".tessera-doctor-{}-{}", mark, r); };
  const auto content_of = [&](int r) { return fmt::format("{} {}", mark, r); };
  const auto name_of = [&](int r) { return ranks[static_cast<size_t>(r)]; };
  const auto write = [&] { return error_of([&] { write_new_file(file_of(rank), content_of(rank)); }); };

  std::string failure;
  if (rank == 0) failure = write();
  const std::string at_first = from_first(failure);
  if (at_first.empty() && rank > 0) {
    failure = !sees(file_of(0), content_of(0)) ? "does not see the file of " + name_of(0) : write();
  }
  const std::vector<std::string> failures = world.all_gather_text(failure, kWhat);
  std::string unseen;
  for (int r = 1; rank == 0 && at_first.empty() && r < world.size(); ++r) {
    if (failures[static_cast<size_t>(r)].empty() && !sees(file_of(r), content_of(r))) {
      unseen += fmt::format("{}{}", unseen.empty() ? "does not see the files of " : ", ", name_of(r));
    }
  }
  unseen = from_first(unseen);  // after this exchange, no rank reads the files
  if (failure.empty() || rank == 0) fs::remove(file_of(rank), none);
  for (int r = 0; r < world.size(); ++r) {
    const std::string& text = failures[static_cast<size_t>(r)];
    if (!text.empty()) result.failures.push_back(fmt::format("{}: {}", name_of(r), text));
  }
  if (!unseen.empty()) result.failures.push_back(fmt::format("{}: {}", name_of(0), unseen));
  world.barrier(kWhat);
  return result;
}

}  // namespace tessera

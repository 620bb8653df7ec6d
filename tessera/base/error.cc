#include "tessera/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "tessera/base/library.h"

namespace tessera {

namespace {

std::string compose(const std::string& where, const std::string& what, const std::string& remedy) {
  std::string text;
  if (!where.empty()) text += where + ": ";
  text += what;
  if (!remedy.empty()) text += ". " + remedy;
  return text;
}

}  // namespace

bool is_wrong_path(int error) {
  for (const int known : {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EACCES, EPERM}) {
    if (error == known) return true;
  }
  return false;
}

Error::Error(ExitCode code, std::string where, std::string what, std::string remedy)
    : std::runtime_error(compose(where, what, remedy)), code_(code), where_(std::move(where)) {}

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what(), error.where()};
  } catch (const std::length_error&) {  // a size that no memory can hold
    return {ExitCode::kOutOfMemory, "a size exceeds what memory can hold. Check the sizes in settings and input files"};
  } catch (const std::bad_alloc&) {
    return {ExitCode::kOutOfMemory,
            "out of host memory. Free memory on this machine, or use fewer ranks per machine or smaller batches"};
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = printable(error.path1().string(), 300), reason = error.code().message();
    const std::string text = (path.empty() ? "" : path + ": ") + "cannot be used: " + reason;
    return {is_wrong_path(error.code().value()) ? ExitCode::kBadInput : ExitCode::kRunFailed,
            text + ". Check the path, its permissions and the disk", path};
  } catch (const std::system_error& error) {
    return {ExitCode::kRunFailed, "the system refuses a request: " + error.code().message() +
                                      ". Check the limits of this process (ulimit -a), and start the command again"};
  } catch (const std::exception& error) {
    return {ExitCode::kRunFailed, "an internal error of Tessera or one of its libraries (" +
                                      printable(error.what(), 300) + "). Report the command and its output"};
  } catch (...) {
    return {ExitCode::kRunFailed, "an unknown exception. Report the command and its output"};
  }
}

std::string printable(std::string_view text, size_t longest_bytes) {
  size_t end = std::min(text.size(), longest_bytes);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  std::string result(text.substr(0, end));
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return end < text.size() ? result + "…" : result;
}

void assertion_failed(const char* condition, const char* file, int line) {
  if (is_library()) throw std::logic_error(fmt::format("assertion failed at {}:{}: {}", file, line, condition));
  std::fprintf(stderr, "tessera: assertion failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace tessera

#include <unistd.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/app/command_line.h"
#include "tessera/base/error.h"
#include "tessera/base/process.h"
#include "tessera/launch/surroundings.h"

namespace {

std::terminate_handler previous_handler = nullptr;

// The destructor of a JSON document allocates memory. No exception can leave a destructor, so the process ends here.
void end_without_memory() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    constexpr std::string_view kText = "error: out of host memory. Free memory on this machine\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
    _exit(static_cast<int>(tessera::ExitCode::kOutOfMemory));
  } catch (...) {  // the handler below prints it
  }
  previous_handler();
}

}  // namespace

int main(int argc, char** argv) {
  previous_handler = std::set_terminate(end_without_memory);
  tessera::prepare_process();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tessera::guarded_run(arguments, tessera::environment_of_process(), tessera::all_verbs());
}

#include <string>
#include <vector>

#include "tessera/app/command_line.h"
#include "tessera/base/process.h"
#include "tessera/launch/surroundings.h"

int main(int argc, char** argv) {
  tessera::prepare_process();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return tessera::guarded_run(arguments, tessera::environment_of_process(), tessera::all_verbs());
}

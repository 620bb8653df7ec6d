#include "tessera/comm/messenger.h"

namespace tessera {

void Messenger::end_others(ExitCode) {}
void Messenger::watch(std::function<void(const Alarm&)>) {}
void Messenger::raise(ExitCode, const std::string&) {}
void Messenger::enter_phase(const char*) {}

}  // namespace tessera

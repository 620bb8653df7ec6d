// The time of work on counting devices. Only for the counting kernels and the counting communicator, and only on
// devices with a timeline.
#pragma once

#include "tessera/device/counting/timeline.h"
#include "tessera/device/device.h"

namespace tessera {

// The timeline of a counting device; null for other devices, and for counting devices that only count memory.
Timeline* timeline_of(Device& device);

// The kernel `name` takes `seconds` on the compute stream, or on the stream whose host code calls it.
void spend_on_kernel(Device& device, const char* name, Busy what, double seconds);
// A collective takes `seconds` on this stream of a counting device.
void spend_on_network(Stream& stream, double seconds);

}  // namespace tessera
